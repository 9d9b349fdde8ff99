"""Losses of clicks that no relevance explains alone."""
