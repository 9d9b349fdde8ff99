"""Rewriting of code that uses tensorflow-ranking: `tfrank-sel-migrate`."""
