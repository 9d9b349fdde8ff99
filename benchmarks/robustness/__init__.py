"""Benchmarks of robustness: numerical accuracy, faults, and memory over time."""
