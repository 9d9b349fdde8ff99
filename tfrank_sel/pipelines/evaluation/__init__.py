"""Evaluation of models: metrics by query and slice, intervals, blessing."""
