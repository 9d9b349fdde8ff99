"""Statistics of a split: per feature, per label and per list size, in one streaming pass."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.data import elwc


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What a split holds.

    Args:
        lists: Number of lists.
        items: Number of items.
        comparable_lists: Number of lists with two different labels: those that can teach.
        labels: Number of items of each label; the names are those of the numbers (`"2"`).
        list_sizes: Number of lists of each size.
        features: For each measure, its value for each feature: `min`, `mean`, `max`, `std`,
            `zeros` (a count), and `compressed_mean` and `compressed_variance`, those of
            `sign(x) * log(1 + abs(x))`.
    """

    lists: int
    items: int
    comparable_lists: int
    labels: dict[str, int]
    list_sizes: dict[int, int]
    features: dict[str, list[float]]

    @classmethod
    def load(cls, path: Path) -> "Statistics":
        """Reads the statistics that `summarise` wrote."""
        values = json.loads(path.read_text())
        sizes = {int(size): count for size, count in values.pop("list_sizes").items()}
        return cls(list_sizes=sizes, **values)


def summarise(shards: Sequence[str], spec: data.FeatureSpec, path: Path) -> Statistics:
    """Computes the statistics of a split and writes them as JSON.

    Args:
        shards: TFRecord files of `ExampleListWithContext`.
        spec: Names of the parts and number of features.
        path: JSON file to write.

    Returns:
        The statistics.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | beam.Create(shards)
            | beam.io.ReadAllFromTFRecord()
            | beam.BatchElements(min_batch_size=16, max_batch_size=64)
            | beam.CombineGlobally(_Summary(spec))
            | beam.Map(lambda statistics: json.dumps(dataclasses.asdict(statistics), indent=2))
            | beam.io.WriteToText(str(path), shard_name_template="")
        )
    return Statistics.load(path)


@dataclasses.dataclass
class _Moments:
    """Count, mean and sum of squared deviations of each feature, merged without cancellation."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> "_Moments":
        mean = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
        return cls(len(rows), mean, np.square(rows - mean).sum(axis=0))

    def merged(self, other: "_Moments") -> "_Moments":
        count = self.count + other.count
        if count == 0:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.count / count)
        squares = self.squares + other.squares + gap**2 * (self.count * other.count / count)
        return _Moments(count, mean, squares)

    def variance(self) -> np.ndarray:
        return self.squares / max(self.count, 1)


@dataclasses.dataclass
class _Totals:
    """What `_Summary` has seen so far."""

    comparable_lists: int
    labels: collections.Counter[str]
    list_sizes: collections.Counter[int]
    low: np.ndarray
    high: np.ndarray
    zeros: np.ndarray
    plain: _Moments
    compressed: _Moments


class _Summary(beam.CombineFn):
    """Batches of serialized lists to `Statistics`."""

    def __init__(self, spec: data.FeatureSpec) -> None:
        self.spec = spec

    def create_accumulator(self) -> _Totals:
        return self._totals(np.zeros([0, 0]), np.zeros([0, self.spec.num_features]), [])

    def add_input(self, accumulator: _Totals, serialized: list[bytes]) -> _Totals:
        parsed = elwc.parse(tf.constant(serialized), self.spec)
        mask = parsed["mask"].numpy()
        labels = np.where(mask, parsed[self.spec.label].numpy(), np.nan)
        rows = parsed[self.spec.features].numpy()[mask].astype(np.float64)
        return self.merge_accumulators(
            [accumulator, self._totals(labels, rows, mask.sum(axis=1).tolist())]
        )

    def merge_accumulators(self, accumulators: Iterable[_Totals]) -> _Totals:
        merged = self.create_accumulator()
        for other in accumulators:
            merged = _Totals(
                merged.comparable_lists + other.comparable_lists,
                merged.labels + other.labels,
                merged.list_sizes + other.list_sizes,
                np.minimum(merged.low, other.low),
                np.maximum(merged.high, other.high),
                merged.zeros + other.zeros,
                merged.plain.merged(other.plain),
                merged.compressed.merged(other.compressed),
            )
        return merged

    def extract_output(self, totals: _Totals) -> Statistics:
        measures = {
            "min": totals.low,
            "mean": totals.plain.mean,
            "max": totals.high,
            "std": np.sqrt(totals.plain.variance()),
            "zeros": totals.zeros,
            "compressed_mean": totals.compressed.mean,
            "compressed_variance": totals.compressed.variance(),
        }
        return Statistics(
            lists=sum(totals.list_sizes.values()),
            items=totals.plain.count,
            comparable_lists=totals.comparable_lists,
            labels=dict(sorted(totals.labels.items(), key=lambda entry: float(entry[0]))),
            list_sizes=dict(sorted(totals.list_sizes.items())),
            features={name: values.tolist() for name, values in measures.items()},
        )

    def _totals(self, labels: np.ndarray, rows: np.ndarray, sizes: list[int]) -> _Totals:
        grades, counts = np.unique(labels[~np.isnan(labels)], return_counts=True)
        first = labels[:, :1]
        differs = ~np.isnan(labels) & (labels != first)
        return _Totals(
            comparable_lists=int(differs.any(axis=1).sum()) if labels.size else 0,
            labels=collections.Counter(
                {f"{grade:g}": int(count) for grade, count in zip(grades, counts, strict=True)}
            ),
            list_sizes=collections.Counter(sizes),
            low=rows.min(axis=0, initial=np.inf),
            high=rows.max(axis=0, initial=-np.inf),
            zeros=(rows == 0.0).sum(axis=0),
            plain=_Moments.of(rows),
            compressed=_Moments.of(np.sign(rows) * np.log1p(np.abs(rows))),
        )
