"""Benchmarks of speed and memory, beside peers."""
