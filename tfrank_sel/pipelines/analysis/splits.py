"""Splits of the lists on disk."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.pipelines.analysis import statistics
from tfrank_sel.pipelines.ingestion import stored


@dataclasses.dataclass(frozen=True)
class Split:
    """A split on disk: its shards and statistics."""

    shards: Sequence[str]
    statistics: statistics.Statistics

    @classmethod
    def load(cls, shards: Sequence[str], path: Path) -> Self:
        """Returns the split of these shards, with its statistics from a file."""
        return cls(shards, statistics.Statistics.load(path))

    def batches(self, spec: data.FeatureSpec) -> tf.data.Dataset:
        """Returns batches of features and mask by name, and labels, for one pass."""
        return stored.batches(self.shards, spec, self.statistics.list_sizes)
