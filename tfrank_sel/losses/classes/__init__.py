"""Losses of classes: multi-label, n-way, margins."""
