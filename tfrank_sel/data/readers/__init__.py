"""Readers of lists: one for each file format."""
