"""Feature importance and calibration of models, on a bounded sample of lists."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import data, metrics
from tfrank_sel.data import packed
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import spans
from tfrank_sel.metrics.importance import REPEATS, Importance, importances
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import GAINS
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.ingestion import stored

SLOTS = 20_000  # items of the sample, with padding
SCORED = 1_000_000  # items that importance scores, all features and shuffles together
BINS = 10
PARTS = 8  # of the lists, by size


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first lists of a split, padded.

    Args:
        inputs: What a scorer takes, by name.
        labels: Labels `[lists, items]`; NaN is padding.
    """

    inputs: Mapping[str, np.ndarray]
    labels: np.ndarray

    def first(self, count: int) -> "Sample":
        """Returns the sample of the first lists, at least one."""
        count = max(count, 1)
        return Sample({k: x[:count] for k, x in self.inputs.items()}, self.labels[:count])

    def by_size(self) -> "Sample":
        """Returns the sample with the shortest lists first."""
        order = np.argsort(np.sum(~np.isnan(self.labels), axis=1), kind="stable")
        return Sample({k: x[order] for k, x in self.inputs.items()}, self.labels[order])


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Mean label by score: bins of equal numbers of items, by rising score.

    Args:
        scores: Mean score of each bin.
        labels: Mean label of each bin.
    """

    scores: np.ndarray
    labels: np.ndarray


def sample(shards: Sequence[str], spec: data.FeatureSpec, *, longest: int) -> Sample:
    """Reads the first lists of a split, as many as fit into `SLOTS` items, at least one.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        longest: Number of items of the longest list.
    """
    count, records = max(SLOTS // longest, 1), list[bytes]()
    for serialized in stored.serialized_batches(shards):
        records += serialized.numpy().tolist()
        if len(records) >= count:
            break
    parsed = packed.parse(tf.constant(records[:count]), spec)
    inputs = {name: x.numpy() for name, x in stored.inputs(parsed, spec).items()}
    return Sample(inputs, parsed[spec.label].numpy())


def calibrations(models: Mapping[str, Scorer], lists: Sample) -> dict[str, Calibration]:
    """Returns the mean label by score of each model."""
    mask, found = ~np.isnan(lists.labels), {}
    for name, model in models.items():
        scores = model(_tensors(lists.inputs)).numpy()[mask]
        order = np.argsort(scores, kind="stable")
        bins = [x for x in np.array_split(order, BINS) if len(x)]
        found[name] = Calibration(
            np.array([scores[x].mean() for x in bins]),
            np.array([lists.labels[mask][x].mean() for x in bins]),
        )
    return found


def feature_importances(
    model: Scorer,
    layout: Schema,
    spec: data.FeatureSpec,
    lists: Sample,
    *,
    seed: int,
    gain: str = "exponential",
) -> dict[str, Importance]:
    """Returns the drop of NDCG@10 without each feature of items, the largest first.

    The numbers of a single feature are features of their own.

    Args:
        model: Scores lists.
        layout: The features.
        spec: Names of the parts and number of features.
        lists: The lists. The numbers of lists and of shuffles keep the scored items below `SCORED`.
        seed: Seed of the shuffles.
        gain: Name of the gain of NDCG, in `ranking.GAINS`.
    """
    columns_of = columns(layout, spec)
    # more lists are worth more than more shuffles
    shuffles = SCORED // (max(len(columns_of), 1) * lists.labels.size)
    repeats = min(max(shuffles, 1), REPEATS)
    slots = SCORED // (repeats * len(columns_of) + 1)
    lists = lists.first(slots // lists.labels.shape[1]).by_size()
    scored = tf.function(model, autograph=False, reduce_retracing=True)
    mask, ndcg = ~np.isnan(lists.labels), metrics.NDCG(10, GAINS[gain], ties=AVERAGED)
    sizes = mask.sum(axis=1)
    ends = np.linspace(0, len(sizes), min(len(sizes), PARTS) + 1).astype(int)
    parts = [np.s_[i:j, : sizes[j - 1]] for i, j in itertools.pairwise(ends)]

    def values(items: Mapping[str, np.ndarray]) -> np.ndarray:
        inputs = dict(lists.inputs)
        for name, x in items.items():
            inputs[name] = inputs[name].copy()
            inputs[name][mask] = x
        scores = np.zeros(mask.shape, np.float32)
        for part in parts:  # most lists are much shorter than the longest
            scores[part] = scored(_tensors({name: x[part] for name, x in inputs.items()}))
        return ndcg.evaluate(lists.labels, scores).values

    names = {name for own in columns_of.values() for name, _ in own}
    items = {name: lists.inputs[name][mask] for name in names}
    found = importances(values, items, sizes, columns_of, seed=seed, repeats=repeats)
    return dict(sorted(found.items(), key=lambda one: -one[1].drop))


def columns(layout: Schema, spec: data.FeatureSpec) -> dict[str, list[tuple[str, int]]]:
    """Returns the columns of each feature of items: names of inputs, and positions there."""
    if len(layout.features) == 1:  # packed features, such as those of a LETOR file
        matrices = {spec.features: layout.names, spec.texts: layout.texts}
        return {x: [(kind, i)] for kind, own in matrices.items() for i, x in enumerate(own)}
    return {
        name: [(spec.texts if is_text else spec.features, i) for i in range(span.start, span.stop)]
        for name, feature, is_text, span in spans(layout.features)
        if feature.of == "item"
    }


def _tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(x) for name, x in inputs.items()}
