"""Statistics of splits."""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfrank_sel import data
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import rejection
from tfrank_sel.errors import refusal
from tfrank_sel.features import Category, FeatureTypes, Vector
from tfrank_sel.models import summary
from tfrank_sel.models.summary import Moments, compress
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import sketches
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.stored_lists import Records, StoredLists
from tfrank_sel.pipelines.runners import Options

if TYPE_CHECKING:
    import tensorflow as tf

SHOWN = 1000  # reported values of a hashed feature
KEPT = 500_000  # counted values of a text feature; if there are more, the most frequent so far
SHARES = {"p01": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p99": 0.99}
MEASURES = ("min", "mean", "max", "std", "zeros", "missing", *SHARES)
MEASURES += ("compressed_mean", "compressed_variance")


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Statistics of a split.

    The sum of two objects is the statistics of both splits together: counts are exact, means and
    variances are exact up to rounding, and percentiles are those of the summed histograms. If a
    feature is absent in one split, its items count as missing. For texts with more values than are
    reported, a sum counts only the reported values. For several splits, use
    `functools.reduce(operator.add, splits)`.

    Args:
        lists: Number of lists.
        items: Number of items.
        names: Names of the numeric columns in `features` and `histograms`: see `Feature.columns`.
        comparable_lists: Number of lists with two different labels, from which a model can learn.
        labels: Number of items of each label; keys are numbers as text (`"2"`). Of more than
            `sketches.MOST` different ones, see `sketches.few`.
        list_sizes: Number of lists of each size.
        features: For each measure, its value for each feature: `min`, `mean`, `max`, `std`,
            `zeros` and `missing` (counts), the percentiles `p01`, `p25`, `p50`, `p75` and `p99` to
            12.5 %, `compressed_mean` and `compressed_variance`: of `sign(x) * log(1 + abs(x))`. All
            except the counts are 0 for a feature without values.
        histograms: For each feature, its number of items by bin of `sketches`.
        texts: For each text feature, the counts of its most frequent values; an empty text means a
            missing value.
    """

    lists: int
    items: int
    names: list[str]
    comparable_lists: int
    labels: dict[str, int]
    list_sizes: dict[int, int]
    features: dict[str, list[float]]
    histograms: list[dict[int, int]]
    texts: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "Statistics":
        """Reads statistics written by `summarise`.

        Raises:
            tfrank_sel.data.InputError: If the file is malformed or of another version.
        """
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise rejection(
                str(path), "expected statistics in the format of this version", error
            ) from error

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Statistics":
        """Returns statistics from JSON, in which all names are text."""
        sizes = {int(size): count for size, count in values["list_sizes"].items()}
        histograms = [{int(b): count for b, count in row.items()} for row in values["histograms"]]
        return cls(**{**values, "list_sizes": sizes, "histograms": histograms})

    def __add__(self, other: "Statistics") -> "Statistics":
        changed = ({*self.names} & {*other.texts}) | ({*self.texts} & {*other.names})
        if changed:
            reason = "features must be numbers in both statistics, or texts in both"
            raise refusal(reason, f"{', '.join(sorted(changed))}, which changed")
        names = [*dict.fromkeys([*self.names, *other.names])]
        texts = [*dict.fromkeys([*self.texts, *other.texts])]
        mine, theirs = (_totals_of(x, names, texts) for x in (self, other))
        return _merge(mine, theirs).statistics(names)


def summarise(
    shards: Mapping[str, Sequence[str]],
    spec: data.FeatureSpec,
    folder: Path,
    *,
    scratch: str | None = None,
    features: FeatureTypes | None = None,
    options: Options = None,
) -> dict[str, Statistics]:
    """Computes the statistics of splits and writes them as JSON.

    Args:
        shards: TFRecord files of the packed layout, of each split.
        spec: Names of the parts and number of features.
        folder: Folder for a file `SPLIT.json` of each split.
        scratch: Temporary folder or URL that all workers can write to; by default `folder`.
        features: Type of each feature; by default all are numbers.
        options: Options of Beam; None for this process.

    Returns:
        The statistics of each split.
    """
    features = features or {spec.features: Vector(size=spec.num_features)}
    folder.mkdir(parents=True, exist_ok=True)
    summary = Summary(functools.partial(stored_lists.items, spec=spec), features)
    summaries = runners.totals(
        shards, stored_lists.blocks, summary, dataclasses.asdict, scratch or folder, options
    )
    for split, values in summaries.items():
        folders.write_json(folder / f"{split}.json", values)
    return {split: Statistics.of(values) for split, values in summaries.items()}


@dataclasses.dataclass
class _Totals:
    """Sums and extremes of the items so far in `Summary`."""

    comparable_lists: int
    list_sizes: collections.Counter[int]
    low: np.ndarray
    high: np.ndarray
    zeros: np.ndarray
    missing: np.ndarray
    counts: np.ndarray
    plain: Moments
    compressed: Moments
    labels: collections.Counter[float]
    texts: dict[str, collections.Counter[str]]

    def statistics(self, names: list[str]) -> Statistics:
        """Returns the statistics of the features of these names."""
        shares = np.array(list(SHARES.values()))
        # a feature without values has no minimum
        low, high = (np.where(np.isfinite(x), x, 0.0) for x in (self.low, self.high))
        measures = [
            low,
            self.plain.mean,
            high,
            np.sqrt(self.plain.variance()),
            self.zeros,
            self.missing,
            *np.clip(sketches.quantiles(self.counts, shares).T, low, high),
            self.compressed.mean,
            self.compressed.variance(),
        ]
        # by the shortest number that is read as this float32
        labels = {str(np.float32(x)).removesuffix(".0"): n for x, n in sorted(self.labels.items())}
        return Statistics(
            lists=sum(self.list_sizes.values()),
            items=sum(self.labels.values()),
            names=names,
            comparable_lists=self.comparable_lists,
            labels=labels,
            list_sizes=dict(sorted(self.list_sizes.items())),
            features={x: y.tolist() for x, y in zip(MEASURES, measures, strict=True)},
            histograms=[{int(b): int(row[b]) for b in np.flatnonzero(row)} for row in self.counts],
            texts={name: dict(counts.most_common()) for name, counts in self.texts.items()},
        )


class Summary(runners.Combiner):
    """Combiner from batches of serialized lists to `Statistics`: see `runners.Combiner`.

    Args:
        read: Returns the items of serialized lists.
        features: Type of each feature.
    """

    def __init__(self, read: Callable[[Sequence[bytes]], Lists], features: FeatureTypes) -> None:
        self.read, self.features = read, features
        self.names = summary.column_names(features)

    def create_accumulator(self) -> _Totals:
        none, count = np.zeros([0], int), sum(len(y.numbers(x)) for x, y in self.features.items())
        return self._totals(Lists.of(none, np.zeros([0, count]), np.zeros([0, 0]), label=none))

    def count(self, element: Sequence[bytes]) -> _Totals:
        return self._totals(self.read(element))

    def add(self, total: _Totals, other: _Totals) -> _Totals:
        return _merge(total, other)

    def extract_output(self, accumulator: _Totals) -> Statistics:
        statistics = accumulator.statistics(self.names)
        texts = {}
        for name, counts in statistics.texts.items():
            feature = self.features[name]
            most = max(SHOWN, feature.max_size if isinstance(feature, Category) else 0)
            texts[name] = _most_frequent(counts, most)
        return dataclasses.replace(statistics, texts=texts)

    def _totals(self, items: Lists) -> _Totals:
        labels, rows = items.labels, summary.joined_columns(self.features, items.features)
        of_list, is_item = np.repeat(np.arange(len(items.sizes)), items.sizes), ~np.isnan(labels)
        first = labels[np.repeat(np.cumsum(items.sizes) - items.sizes, items.sizes)]
        sizes = np.bincount(of_list[is_item], minlength=len(items.sizes))
        # Adding 0 turns -0 into 0, which is the same grade.
        grades, of_grade = np.unique(labels[is_item] + 0.0, return_counts=True)
        return _Totals(
            comparable_lists=len(np.unique(of_list[is_item & (labels != first)])),
            list_sizes=collections.Counter(sizes.tolist()),
            low=np.fmin.reduce(rows, axis=0, initial=np.inf),
            high=np.fmax.reduce(rows, axis=0, initial=-np.inf),
            zeros=np.count_nonzero(rows == 0.0, axis=0),
            missing=np.count_nonzero(np.isnan(rows), axis=0),
            counts=sketches.counts(rows),
            plain=Moments.of(rows),
            compressed=Moments.of(compress(rows)),
            labels=collections.Counter(dict(zip(grades.tolist(), of_grade.tolist(), strict=True))),
            texts=dict(summary.by_feature(np.asarray(items.texts), self.features)),
        )


def _merge(totals: _Totals, other: _Totals) -> _Totals:
    # in place: they may be large, and Beam allows it
    texts, labels = totals.texts, totals.labels
    labels.update(other.labels)
    for name, counts in other.texts.items():
        texts.setdefault(name, collections.Counter()).update(counts)
        if len(texts[name]) > 2 * KEPT:  # the rarest values are dropped
            texts[name] = collections.Counter(_most_frequent(dict(texts[name].most_common()), KEPT))
    return _Totals(
        totals.comparable_lists + other.comparable_lists,
        totals.list_sizes + other.list_sizes,
        np.minimum(totals.low, other.low),
        np.maximum(totals.high, other.high),
        totals.zeros + other.zeros,
        totals.missing + other.missing,
        totals.counts + other.counts,
        totals.plain.merge(other.plain),
        totals.compressed.merge(other.compressed),
        sketches.few(labels),
        texts,
    )


def _most_frequent(counts: Mapping[str, int], kept: int) -> dict[str, int]:
    """The most frequent values in descending order, and the number of items without a value."""
    return {x: n for i, (x, n) in enumerate(counts.items()) if i < kept or not x}


def _totals_of(source: Statistics, names: Sequence[str], texts: Sequence[str]) -> _Totals:
    """The sums of statistics for these features; absent features count as missing."""
    places = {name: place for place, name in enumerate(source.names)}
    columns = [places.get(name, -1) for name in names]  # the last is that of absent features

    def of(measure: str, absent: float) -> np.ndarray:
        return np.append(source.features[measure], float(absent))[columns]

    missing = of("missing", source.items).astype(int)
    count = source.items - missing
    counts = np.zeros([len(places) + 1, sketches.NUM_BINS], int)
    for row, histogram in zip(counts, source.histograms, strict=False):
        row[list(histogram)] = list(histogram.values())
    nothing = {"": source.items} if source.items else {}
    return _Totals(
        comparable_lists=source.comparable_lists,
        list_sizes=collections.Counter(source.list_sizes),
        low=np.where(count > 0, of("min", 0.0), np.inf),
        high=np.where(count > 0, of("max", 0.0), -np.inf),
        zeros=of("zeros", 0).astype(int),
        missing=missing,
        counts=counts[columns],
        plain=Moments(count, of("mean", 0.0), count * of("std", 0.0) ** 2),
        compressed=Moments(
            count, of("compressed_mean", 0.0), count * of("compressed_variance", 0.0)
        ),
        labels=collections.Counter({float(np.float32(x)): n for x, n in source.labels.items()}),
        texts={name: collections.Counter(source.texts.get(name, nothing)) for name in texts},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSplit(StoredLists):
    """A split on disk.

    Args:
        layout: Schema of its lists.
        statistics: Its statistics.
        most: Maximum number of lists of `batches`, about the first ones; None for all.
    """

    layout: Schema
    statistics: Statistics
    most: int | None = None

    @classmethod
    def of(cls, records: Records, name: str, statistics: Statistics) -> Self:
        """Returns a split of the records of a run."""
        return cls(
            shards=records.of(name),
            spec=records.spec,
            context=records.layout.context,
            layout=records.layout,
            statistics=statistics,
        )

    @property
    def longest(self) -> int:
        """Number of items of the longest list."""
        return max(self.statistics.list_sizes)

    @property
    def has_irrelevant(self) -> bool:
        """Whether a label is 0 or below; those of corrected clicks may all be above."""
        return min(map(float, self.statistics.labels)) <= 0.0

    def sample(self) -> stored_lists.Sample:
        """Returns the first lists, as `stored_lists.sample`."""
        return stored_lists.sample(self.shards, self.spec, longest=self.longest)

    def batches(self) -> "tf.data.Dataset":
        """Returns batches of features and mask by name, and labels, for one pass."""
        batches = stored_lists.batches(self.shards, self.spec, self.statistics.list_sizes)
        return batches.take(-1 if self.most is None else self.most // stored_lists.BATCH)
