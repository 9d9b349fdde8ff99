"""Benchmarks of speed and memory, compared with peers."""
