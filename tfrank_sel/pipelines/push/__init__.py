"""The step `push`: the comparison with the served model, and the publication."""
