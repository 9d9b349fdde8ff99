"""Pointwise losses: a sum of one term per item."""
