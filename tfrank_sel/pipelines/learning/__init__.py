"""Training of candidates on lists that are prepared once."""
