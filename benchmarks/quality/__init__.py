"""Benchmarks of ranking quality, compared with peers."""
