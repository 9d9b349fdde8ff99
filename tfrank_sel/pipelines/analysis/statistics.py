"""Statistics of a split: per feature, per label and per list size, in one streaming pass."""

import collections
import dataclasses
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.models import preparation
from tfrank_sel.pipelines import artefacts
from tfrank_sel.pipelines.analysis import bands, sketches
from tfrank_sel.pipelines.ingestion import stored

SHARES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}


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
            `zeros` (a count), the percentiles `p01`, `p25`, `p50`, `p75` and `p99` to 12.5 %, and
            `compressed_mean` and `compressed_variance`, those of `sign(x) * log(1 + abs(x))`.
        histograms: For each feature, its number of items by bin of `sketches`.
        by_label: For each label, the mean of each feature over the items that have it.
        by_list_size: For each band of list sizes, the number of items of each label.
    """

    lists: int
    items: int
    comparable_lists: int
    labels: dict[str, int]
    list_sizes: dict[int, int]
    features: dict[str, list[float]]
    histograms: list[dict[int, int]]
    by_label: dict[str, list[float]]
    by_list_size: dict[str, dict[str, int]]

    @classmethod
    def load(cls, path: Path) -> "Statistics":
        """Reads the statistics that `summarise` wrote."""
        return cls.of(json.loads(path.read_text()))

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Statistics":
        """Returns the statistics that JSON holds, whose names are all text."""
        sizes = {int(size): count for size, count in values["list_sizes"].items()}
        histograms = [{int(b): count for b, count in one.items()} for one in values["histograms"]]
        return cls(**{**values, "list_sizes": sizes, "histograms": histograms})


def summarise(
    shards: Sequence[str],
    spec: data.FeatureSpec,
    path: Path,
    *,
    options: PipelineOptions | None = None,
) -> Statistics:
    """Computes the statistics of a split and writes them as JSON.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        path: JSON file to write.
        options: Of the Beam pipeline.

    Returns:
        The statistics.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        found = Path(scratch) / "statistics"
        with beam.Pipeline(options=options) as pipeline:
            summary = pipeline | stored.Read(shards) | beam.CombineGlobally(_Summary(spec))
            artefacts.tell(summary | beam.Map(dataclasses.asdict), found)
        [values] = artefacts.told(found)
    artefacts.write_json(path, values)
    return Statistics.of(values)


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
    list_sizes: collections.Counter[int]
    low: np.ndarray
    high: np.ndarray
    zeros: np.ndarray
    counts: np.ndarray
    plain: _Moments
    compressed: _Moments
    by_label: dict[str, _Moments]
    by_list_size: dict[str, collections.Counter[str]]


class _Summary(beam.CombineFn):
    """Batches of serialized lists to `Statistics`."""

    def __init__(self, spec: data.FeatureSpec) -> None:
        self.spec = spec

    def create_accumulator(self) -> _Totals:
        return self._totals(np.zeros([0, 0]), np.zeros([0, self.spec.num_features]))

    def add_input(self, accumulator: _Totals, serialized: list[bytes]) -> _Totals:
        parsed = packed.parse(tf.constant(serialized), self.spec)
        mask = parsed["mask"].numpy()
        labels = np.where(mask, parsed[self.spec.label].numpy(), np.nan)
        rows = parsed[self.spec.features].numpy()[mask].astype(np.float64)
        return _merged(accumulator, self._totals(labels, rows))

    def merge_accumulators(self, accumulators: Iterable[_Totals]) -> _Totals:
        merged = self.create_accumulator()
        for other in accumulators:
            merged = _merged(merged, other)
        return merged

    def extract_output(self, totals: _Totals) -> Statistics:
        of_labels = sorted(totals.by_label.items(), key=lambda entry: float(entry[0]))
        percentiles = sketches.quantiles(totals.counts, np.array(list(SHARES.values())))
        measures = {
            "min": totals.low,
            "mean": totals.plain.mean,
            "max": totals.high,
            "std": np.sqrt(totals.plain.variance()),
            "zeros": totals.zeros,
            **dict(zip(SHARES, np.clip(percentiles.T, totals.low, totals.high), strict=True)),
            "compressed_mean": totals.compressed.mean,
            "compressed_variance": _told_apart(totals),
        }
        return Statistics(
            lists=sum(totals.list_sizes.values()),
            items=totals.plain.count,
            comparable_lists=totals.comparable_lists,
            labels={label: moments.count for label, moments in of_labels},
            list_sizes=dict(sorted(totals.list_sizes.items())),
            features={name: values.tolist() for name, values in measures.items()},
            histograms=[
                {int(b): int(row[b]) for b in np.flatnonzero(row)} for row in totals.counts
            ],
            by_label={label: moments.mean.tolist() for label, moments in of_labels},
            by_list_size={band: dict(found) for band, found in totals.by_list_size.items()},
        )

    def _totals(self, labels: np.ndarray, rows: np.ndarray) -> _Totals:
        is_item = ~np.isnan(labels)
        differs = is_item & (labels != labels[:, :1])
        of_item = labels[is_item]
        sizes = is_item.sum(axis=1)
        names = {f"{grade:g}": grade for grade in np.unique(of_item)}
        of_band: dict[str, collections.Counter[str]] = {}
        in_band = np.repeat([bands.band(size, bands.LIST_SIZES) for size in sizes.tolist()], sizes)
        for band in np.unique(in_band).tolist():
            counts = {
                name: int(np.sum((in_band == band) & (of_item == grade)))
                for name, grade in names.items()
            }
            of_band[band] = collections.Counter(counts)
        return _Totals(
            comparable_lists=int(differs.any(axis=1).sum()) if labels.size else 0,
            list_sizes=collections.Counter(sizes.tolist()),
            low=rows.min(axis=0, initial=np.inf),
            high=rows.max(axis=0, initial=-np.inf),
            zeros=(rows == 0.0).sum(axis=0),
            counts=sketches.counts(rows),
            plain=_Moments.of(rows),
            compressed=_Moments.of(preparation.compressed(rows)),
            by_label={name: _Moments.of(rows[of_item == x]) for name, x in names.items()},
            by_list_size=of_band,
        )


def _merged(one: _Totals, other: _Totals) -> _Totals:
    by_label = dict(one.by_label)
    for label, moments in other.by_label.items():
        by_label[label] = by_label[label].merged(moments) if label in by_label else moments
    by_list_size = dict(one.by_list_size)
    for band, counts in other.by_list_size.items():
        by_list_size[band] = by_list_size.get(band, collections.Counter()) + counts
    return _Totals(
        one.comparable_lists + other.comparable_lists,
        one.list_sizes + other.list_sizes,
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
        one.zeros + other.zeros,
        one.counts + other.counts,
        one.plain.merged(other.plain),
        one.compressed.merged(other.compressed),
        by_label,
        by_list_size,
    )


def _told_apart(totals: _Totals) -> np.ndarray:
    """Variances as a model divides by them, 0 of a constant, too."""
    variance = preparation.told_apart(totals.compressed.mean, totals.compressed.variance())
    return np.where(totals.low == totals.high, 0.0, variance)
