"""Scoring of files of lists by exported models, and evaluation on new data."""

from tfrank_sel.data.resumption import SUCCESS
from tfrank_sel.pipelines.scoring.score import inputs, judge, score, settings

__all__ = ["SUCCESS", "inputs", "judge", "score", "settings"]
