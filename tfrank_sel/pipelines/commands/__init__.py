"""Commands of `tfrank-sel-pipelines`."""
