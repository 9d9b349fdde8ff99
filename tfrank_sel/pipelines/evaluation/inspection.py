"""Inspection of models on a split: NDCG curves, feature importance and calibration."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import data, metrics
from tfrank_sel.data import packed
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import spans
from tfrank_sel.metrics import significance
from tfrank_sel.metrics.importance import REPEATS, Importance, importances
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.models import explanation
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.pipelines.ingestion import stored
from tfrank_sel.pipelines.ingestion.stored import Sample, Scorer

SCORED = 1_000_000  # items that importance scores, all features and shuffles together
BINS = 10
PARTS = 8  # of the lists, by size


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Mean label by score: bins of equal numbers of items, by rising score.

    Args:
        scores: Mean score of each bin.
        labels: Mean label of each bin.
    """

    scores: np.ndarray
    labels: np.ndarray


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


@dataclasses.dataclass(frozen=True)
class Errors:
    """Error by label: bins of equal numbers of items, by rising label.

    Args:
        labels: Mean label of each bin.
        error: Root mean square of score less label in each bin.
    """

    labels: np.ndarray
    error: np.ndarray


def errors(models: Mapping[str, Scorer], lists: Sample) -> dict[str, Errors]:
    """Returns the error of each model by label, for labels that are scores."""
    mask = ~np.isnan(lists.labels)
    labels = lists.labels[mask]
    order = np.argsort(labels, kind="stable")
    bins = [x for x in np.array_split(order, BINS) if len(x)]
    means, found = np.array([labels[x].mean() for x in bins]), {}
    for name, model in models.items():
        squares = np.square(model(_tensors(lists.inputs)).numpy()[mask] - labels)
        found[name] = Errors(means, np.sqrt([squares[x].mean() for x in bins]))
    return found


def feature_importances(
    model: Scorer,
    schema: Schema,
    lists: Sample,
    *,
    seed: int,
    gain: str | float = "exponential",
) -> dict[str, Importance]:
    """Returns the drop of NDCG@10 without each feature of items, the largest first.

    The numbers of a single feature are features of their own.

    Args:
        model: Scores lists.
        schema: The features.
        lists: The lists. The numbers of lists and of shuffles keep the scored items below `SCORED`.
        seed: Seed of the shuffles.
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
    """
    columns_of = columns(schema)
    # more lists are worth more than more shuffles
    shuffles = SCORED // (max(len(columns_of), 1) * lists.labels.size)
    repeats = min(max(shuffles, 1), REPEATS)
    slots = SCORED // (repeats * len(columns_of) + 1)
    lists = lists.first(slots // lists.labels.shape[1]).by_size()
    mask, ndcg = ~np.isnan(lists.labels), metrics.NDCG(10, **gain_arguments(gain), ties=AVERAGED)
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
            scores[part] = model(_tensors({name: x[part] for name, x in inputs.items()}))
        return ndcg.evaluate(lists.labels, scores).values

    names = {name for own in columns_of.values() for name, _ in own}
    items = {name: lists.inputs[name][mask] for name in names}
    found = importances(values, items, sizes, columns_of, seed=seed, repeats=repeats)
    return dict(sorted(found.items(), key=lambda one: -one[1].drop))


def explained(
    model: Scorer, schema: Schema, inputs: Mapping[str, tf.Tensor], pair: Sequence[int]
) -> dict[str, float]:
    """Returns what each feature contributes to the gap of two scores, the largest first.

    Args:
        model: Scores lists.
        schema: The features.
        inputs: A batch of one list.
        pair: An item and the one against: see `models.explain`.
    """
    columns_of, mask = columns(schema), inputs["mask"]
    values = {name: x for name, x in inputs.items() if name != "mask"}
    # columns of the query are equal: all are the last number, whose contribution is 0
    numbers = {name: np.full(x.shape[-1], len(columns_of)) for name, x in values.items()}
    for number, own in enumerate(columns_of.values()):
        for name, column in own:
            numbers[name][column] = number

    def score(lists: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        return model({**lists, "mask": mask})

    found = explanation.contributions(score, values, mask, tf.constant([pair]), numbers).values[0]
    named = zip(columns_of, found.numpy().tolist(), strict=False)
    return dict(sorted(named, key=lambda one: -abs(one[1])))


def columns(schema: Schema) -> dict[str, list[tuple[str, int]]]:
    """Returns the columns of each feature of items: names of inputs, and positions there."""
    spec = schema.spec
    if len(schema.features) == 1:  # packed features, such as those of a LETOR file
        matrices = {spec.features: schema.names, spec.texts: schema.texts}
        return {x: [(kind, i)] for kind, own in matrices.items() for i, x in enumerate(own)}
    return {
        name: [(spec.texts if is_text else spec.features, i) for i in range(span.start, span.stop)]
        for name, feature, is_text, span in spans(schema.features)
        if feature.of == "item"
    }


def _tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(x) for name, x in inputs.items()}


CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20)  # each is traced, which takes longer than to draw it


@dataclasses.dataclass(frozen=True)
class Curve:
    """NDCG of a model by cut-off.

    Args:
        cutoffs: The cut-offs.
        mean: Mean over the queries, `[cut-offs]`.
        low: Lower ends of the 95 % intervals.
        high: Upper ends of the 95 % intervals.
    """

    cutoffs: Sequence[int]
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def ndcg(
    models: Mapping[str, Scorer],
    spec: data.FeatureSpec,
    shards: Sequence[str],
    *,
    longest: int,
    seed: int,
    gain: str | float = "exponential",
) -> dict[str, Curve]:
    """Measures NDCG at `CUTOFFS`, up to the longest list.

    Args:
        models: Scoring function of each model, by name.
        spec: Names of the parts and number of features.
        shards: TFRecord files of the packed layout. They are streamed: only sums are kept.
        longest: Number of items of the longest list.
        seed: Seed of the bootstrap.
        gain: Gain, as in `ranking.gain_arguments`.
    """
    cutoffs = [k for k in CUTOFFS if k <= longest]
    evaluate = metrics.Evaluator(
        [metrics.NDCG(k, **gain_arguments(gain), name=f"{k}", ties=AVERAGED) for k in cutoffs],
    )

    signature = [stored.inputs_spec(spec), tf.TensorSpec([None, None])]

    @tf.function(input_signature=signature, autograph=False)
    def values(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        # as one batch, so that the metrics are traced once
        scores = tf.concat([model(inputs) for model in models.values()], axis=0)
        found = evaluate(tf.tile(labels, [len(models), 1]), scores)
        of_models = tf.split(tf.stack([x.values for x in found.values()], axis=1), len(models))
        return tf.concat(of_models, axis=1)

    total, seen = None, 0
    for serialized in stored.serialized_batches(shards):
        parsed = packed.parse(serialized, spec)
        found = values(stored.inputs(parsed, spec), parsed[spec.label]).numpy()
        keys = np.arange(seen, seen + len(found), dtype=np.uint64)
        part, seen = significance.resampled(keys, found, seed=seed), seen + len(found)
        total = part if total is None else total + part
    if total is None:
        raise ValueError(f"expected a list in {', '.join(shards)}. Received: none")
    ends = (total.mean(), *total.interval())
    by_model = zip(*(np.split(end, len(models)) for end in ends), strict=True)
    return {name: Curve(cutoffs, *curve) for name, curve in zip(models, by_model, strict=True)}
