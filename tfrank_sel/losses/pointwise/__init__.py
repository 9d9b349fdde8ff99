"""Pointwise losses: each item has a term of its own."""
