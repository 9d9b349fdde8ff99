"""Benchmarks of ranking quality, beside peers."""
