"""Benchmarks of robustness: digits, faults, memory over time."""
