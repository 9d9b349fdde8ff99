"""Scoring of files of lists by exported models, and evaluation on new data."""

from tfrank_sel.pipelines.scoring.score import SUCCESS, inputs, judge, score, settings

__all__ = ["SUCCESS", "inputs", "judge", "score", "settings"]
