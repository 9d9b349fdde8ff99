"""Statistics of a split: per feature, per label and per list size, in one streaming pass."""

import collections
import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data
from tfrank_sel.features import Category, Feature, Vector
from tfrank_sel.models import preparation, summary
from tfrank_sel.models.summary import Moments, compressed, told_apart
from tfrank_sel.pipelines import artefacts
from tfrank_sel.pipelines.analysis import bands, sketches
from tfrank_sel.pipelines.evaluation.lists import PackedLists
from tfrank_sel.pipelines.ingestion import stored

SHOWN = 1000  # values of a hashed feature that are told
KEPT = 500_000  # values of a feature of texts that are counted; of more, the most frequent so far
SHARES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What a split holds.

    Args:
        lists: Number of lists.
        items: Number of items.
        names: Names of the features that are numbers, of which `features` and `histograms` tell:
            see `Feature.columns`.
        comparable_lists: Number of lists with two different labels: those that can teach.
        labels: Number of items of each label; the names are those of the numbers (`"2"`).
        list_sizes: Number of lists of each size.
        features: For each measure, its value for each feature: `min`, `mean`, `max`, `std`,
            `zeros` and `missing` (counts), the percentiles `p01`, `p25`, `p50`, `p75` and `p99` to
            12.5 %, `compressed_mean` and `compressed_variance`: of `sign(x) * log(1 + abs(x))`.
        histograms: For each feature, its number of items by bin of `sketches`.
        by_label: For each label, the mean of each feature over the items that have it.
        by_list_size: For each band of list sizes, the number of items of each label.
        texts: For each feature of texts, how often its most frequent values occur; an empty text is
            an item without any.
    """

    lists: int
    items: int
    names: list[str]
    comparable_lists: int
    labels: dict[str, int]
    list_sizes: dict[int, int]
    features: dict[str, list[float]]
    histograms: list[dict[int, int]]
    by_label: dict[str, list[float]]
    by_list_size: dict[str, dict[str, int]]
    texts: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)

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
    shards: Mapping[str, Sequence[str]],
    spec: data.FeatureSpec,
    folder: Path,
    *,
    features: Mapping[str, Feature] | None = None,
    options: PipelineOptions | None = None,
) -> dict[str, Statistics]:
    """Computes the statistics of splits and writes them as JSON.

    Args:
        shards: TFRecord files of the packed layout, of each split.
        spec: Names of the parts and number of features.
        folder: Folder for a file `SPLIT.json` of each split.
        features: Type of each feature; by default all are numbers.
        options: Of the Beam pipeline.

    Returns:
        The statistics of each split.
    """
    features = features or {spec.features: Vector(size=spec.num_features)}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        with beam.Pipeline(options=options) as pipeline:
            for split, files in shards.items():
                summary = (
                    pipeline
                    | f"Read {split}" >> stored.Read(files)
                    | f"Summarise {split}"
                    >> beam.CombineGlobally(Summary(PackedLists(files, spec).parse, features))
                    | f"As JSON {split}" >> beam.Map(dataclasses.asdict)
                )
                artefacts.tell(summary, Path(scratch) / split)
        found = {split: next(artefacts.told(Path(scratch) / split)) for split in shards}
    for split, values in found.items():
        artefacts.write_json(folder / f"{split}.json", values)
    return {split: Statistics.of(values) for split, values in found.items()}


@dataclasses.dataclass
class _Totals:
    """What `Summary` has seen so far."""

    comparable_lists: int
    list_sizes: collections.Counter[int]
    low: np.ndarray
    high: np.ndarray
    zeros: np.ndarray
    missing: np.ndarray
    counts: np.ndarray
    plain: Moments
    compressed: Moments
    labels: collections.Counter[str]
    by_label: dict[str, Moments]
    by_list_size: dict[str, collections.Counter[str]]
    texts: dict[str, collections.Counter[str]]


class Summary(beam.CombineFn):
    """Batches of serialized lists to `Statistics`.

    Args:
        parse: Returns `features`, `mask` and, if there are any, `texts` by name, and the labels.
        features: Type of each feature.
    """

    def __init__(
        self,
        parse: Callable[[tf.Tensor], tuple[Any, ...]],
        features: Mapping[str, Feature],
    ) -> None:
        self.parse, self.features = parse, features
        self.names = preparation.column_names(features)

    def create_accumulator(self) -> _Totals:
        return self._totals(np.zeros([0, 0]), np.zeros([0, len(self.names)]), {})

    def add_input(self, accumulator: _Totals, serialized: list[bytes]) -> _Totals:
        inputs, labels, *_ = self.parse(tf.constant(serialized))
        mask = inputs["mask"].numpy()
        labels = np.where(mask, labels.numpy(), np.nan)
        numbers = tf.constant(inputs["features"].numpy()[mask], tf.float64)
        rows = preparation.columns(self.features, numbers).numpy()
        texts = {}
        if "texts" in inputs:
            of_items = summary.decoded(inputs["texts"].numpy()[mask])
            texts = summary.by_feature(of_items, self.features)
        return _merged(accumulator, self._totals(labels, rows, texts))

    def merge_accumulators(self, accumulators: Iterable[_Totals]) -> _Totals:
        merged = self.create_accumulator()
        for other in accumulators:
            merged = _merged(merged, other)
        return merged

    def extract_output(self, totals: _Totals) -> Statistics:
        of_labels = sorted(totals.by_label.items(), key=lambda entry: float(entry[0]))
        percentiles = sketches.quantiles(totals.counts, np.array(list(SHARES.values())))
        # a feature without any value has no least one
        low, high = (np.where(np.isfinite(x), x, 0.0) for x in (totals.low, totals.high))
        measures = {
            "min": low,
            "mean": totals.plain.mean,
            "max": high,
            "std": np.sqrt(totals.plain.variance()),
            "zeros": totals.zeros,
            "missing": totals.missing,
            **dict(zip(SHARES, np.clip(percentiles.T, low, high), strict=True)),
            "compressed_mean": totals.compressed.mean,
            "compressed_variance": _told_apart(totals),
        }
        return Statistics(
            lists=sum(totals.list_sizes.values()),
            items=sum(totals.labels.values()),
            names=self.names,
            comparable_lists=totals.comparable_lists,
            labels={label: totals.labels[label] for label, _ in of_labels},
            list_sizes=dict(sorted(totals.list_sizes.items())),
            features={name: values.tolist() for name, values in measures.items()},
            histograms=[
                {int(b): int(row[b]) for b in np.flatnonzero(row)} for row in totals.counts
            ],
            by_label={label: moments.mean.tolist() for label, moments in of_labels},
            by_list_size={band: dict(found) for band, found in totals.by_list_size.items()},
            texts={
                name: dict(found.most_common(1 + self._kept(name)))
                for name, found in totals.texts.items()
            },
        )

    def _kept(self, name: str) -> int:
        """How many values of a feature of texts are told."""
        feature = self.features[name]
        return max(SHOWN, feature.max_size if isinstance(feature, Category) else 0)

    def _totals(
        self,
        labels: np.ndarray,
        rows: np.ndarray,
        texts: Mapping[str, collections.Counter[str]],
    ) -> _Totals:
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
            low=np.fmin.reduce(rows, axis=0, initial=np.inf),
            high=np.fmax.reduce(rows, axis=0, initial=-np.inf),
            zeros=(rows == 0.0).sum(axis=0),
            missing=np.isnan(rows).sum(axis=0),
            counts=sketches.counts(rows),
            plain=Moments.of(rows),
            compressed=Moments.of(compressed(rows)),
            labels=collections.Counter(
                {name: int(np.sum(of_item == x)) for name, x in names.items()}
            ),
            by_label={name: Moments.of(rows[of_item == x]) for name, x in names.items()},
            by_list_size=of_band,
            texts=dict(texts),
        )


def _merged(one: _Totals, other: _Totals) -> _Totals:
    by_label = dict(one.by_label)
    for label, moments in other.by_label.items():
        by_label[label] = by_label[label].merged(moments) if label in by_label else moments
    by_list_size = dict(one.by_list_size)
    for band, counts in other.by_list_size.items():
        by_list_size[band] = by_list_size.get(band, collections.Counter()) + counts
    texts = one.texts  # in place: it may be large, and Beam allows it
    for name, found in other.texts.items():
        texts.setdefault(name, collections.Counter()).update(found)
        texts[name] = _few(texts[name])
    return _Totals(
        one.comparable_lists + other.comparable_lists,
        one.list_sizes + other.list_sizes,
        np.minimum(one.low, other.low),
        np.maximum(one.high, other.high),
        one.zeros + other.zeros,
        one.missing + other.missing,
        one.counts + other.counts,
        one.plain.merged(other.plain),
        one.compressed.merged(other.compressed),
        one.labels + other.labels,
        by_label,
        by_list_size,
        texts,
    )


def _few(found: collections.Counter[str]) -> collections.Counter[str]:
    """Drops the rarest values where there are too many to keep."""
    return collections.Counter(dict(found.most_common(KEPT))) if len(found) > 2 * KEPT else found


def _told_apart(totals: _Totals) -> np.ndarray:
    """Variances as a model divides by them, 0 of a constant, too."""
    variance = told_apart(totals.compressed.mean, totals.compressed.variance())
    return np.where(totals.low == totals.high, 0.0, variance)
