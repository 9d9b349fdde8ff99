"""Inspection of models on a sample: feature importance, calibration and explanations."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import spans
from tfrank_sel.metrics.importance import REPEATS, Importance, importances
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.models import explanation
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.pipelines.ingestion.stored_lists import Sample, Scorer, Tensors

SCORED = 100_000  # items that importance scores, all features and shuffles together
AT_ONCE = 2_000  # items that are scored at once
BINS = 10


def calibrations(
    scored: Mapping[str, np.ndarray], lists: Sample
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the mean score and label of tenths of the items by rising score, of each model.

    Args:
        scored: `scores` of the lists, by model.
        lists: The lists.
    """
    mask = lists.inputs["mask"]
    return {name: _tenths(x[mask], lists.labels[mask]) for name, x in scored.items()}


def errors(
    scored: Mapping[str, np.ndarray], lists: Sample
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the mean label of tenths of the items by rising label, and in each the root mean
    square of score less label, of each model, for labels that are scores.
    """
    mask, by_model = lists.inputs["mask"], {}
    labels = lists.labels[mask]
    for name, x in scored.items():
        means, squares = _tenths(labels, np.square(x[mask] - labels))
        by_model[name] = means, np.sqrt(squares)
    return by_model


def _tenths(by: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of two arrays in groups of equal numbers of items, by rising values of the first."""
    order = np.argsort(by, kind="stable")
    bins = [x for x in np.array_split(order, BINS) if len(x)]
    first, second = (np.array([y[x].mean() for x in bins]) for y in (by, values))
    return first, second


def scores(model: Scorer, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the scores of padded lists, `[lists, items]`; 0 at padding."""
    scored = np.zeros(inputs["mask"].shape, np.float32)
    for part in _parts(inputs["mask"].sum(axis=1)):
        scored[part] = model(_tensors({name: x[part] for name, x in inputs.items()}))
    return scored


def _parts(sizes: np.ndarray) -> Iterator[tuple[np.ndarray, slice]]:
    """Parts of padded lists, of similar sizes: most lists are much shorter than the longest."""
    order = np.argsort(sizes, kind="stable")
    first = 0
    while first < len(order):
        slots = sizes[order[first:]] * np.arange(1, len(order) - first + 1)
        last = first + max(int(np.searchsorted(slots, AT_ONCE, side="right")), 1)
        yield order[first:last], np.s_[: sizes[order[last - 1]]]
        first = last


def feature_importances(
    model: Scorer,
    schema: Schema,
    lists: Sample,
    *,
    seed: int,
    gain: str | float = "exponential",
) -> dict[str, Importance]:
    """Returns the drop of NDCG@10 without each feature of items, the largest first.

    The numbers of a single feature are features of their own. A list of equal labels, and one that
    a shuffle leaves as it was, are not scored for it, because their NDCG cannot change.

    Args:
        model: Scores lists.
        schema: The features.
        lists: The lists. The numbers of lists and of shuffles keep the scored items below `SCORED`.
        seed: Seed of the shuffles.
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
    """
    columns_of = columns(schema)
    lists, repeats = _affordable(lists, columns_of)
    lists = lists.by_size()
    mask, ndcg = lists.inputs["mask"], metrics.NDCG(10, **gain_arguments(gain), ties=AVERAGED)
    sizes, can_change = mask.sum(axis=1), _differ(lists.labels, mask)
    names = {name for own in columns_of.values() for name, _ in own}
    items = {name: lists.inputs[name][mask] for name in names}
    of_list = np.repeat(np.arange(len(sizes)), sizes)
    spec = tf.TensorSpec([None, None])

    @tf.function(input_signature=[spec, spec], autograph=False)
    def values(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        return ndcg.evaluate(labels, scores).values

    def measure(shuffled: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        inputs, ndcgs = dict(lists.inputs), np.zeros(len(rows))
        for name, x in shuffled.items():
            inputs[name] = inputs[name].copy()
            inputs[name][mask] = x
        for part, slots in _parts(sizes[rows]):
            index = rows[part], slots
            scored = model(_tensors({name: x[index] for name, x in inputs.items()}))
            ndcgs[part] = values(lists.labels[index], scored)
        return ndcgs

    whole = measure(items, np.arange(len(sizes)))

    def after(shuffled: Mapping[str, np.ndarray]) -> np.ndarray:
        moved = np.zeros(len(sizes), bool)
        for name, x in shuffled.items():
            moved[of_list[np.any(_fill_missing(x) != _fill_missing(items[name]), axis=1)]] = True
        rows, changed = np.flatnonzero(moved & can_change), whole.copy()
        if len(rows):
            changed[rows] = measure(shuffled, rows)
        return changed

    by_feature = importances(after, items, sizes, columns_of, seed=seed, repeats=repeats)
    return dict(sorted(by_feature.items(), key=lambda item: -item[1].drop))


def _affordable(
    lists: Sample, columns_of: Mapping[str, Sequence[tuple[str, int]]]
) -> tuple[Sample, int]:
    """The first lists, and the number of shuffles, for which at most `SCORED` items are scored."""
    mask = lists.inputs["mask"]
    differ = {
        name: _differ(_fill_missing(lists.inputs[name]), mask[:, :, None])
        for name in {name for own in columns_of.values() for name, _ in own}
    }
    shuffles = sum(np.any([differ[x][:, i] for x, i in own], axis=0) for own in columns_of.values())
    sizes = mask.sum(axis=1)
    costs = sizes * shuffles * _differ(lists.labels, mask)
    # more lists are worth more than more shuffles
    repeats = int(np.clip((SCORED - sizes.sum()) // max(costs.sum(), 1), 1, REPEATS))
    count = np.searchsorted(np.cumsum(sizes + repeats * costs), SCORED, side="right")
    return lists.first(int(count)), repeats


def _differ(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Whether the items of each list have several values, `[lists, ...]`."""
    return np.any((x != x[:, :1]) & mask, axis=1)


def _fill_missing(x: np.ndarray) -> np.ndarray:
    """Values that equal themselves: without NaN."""
    return np.nan_to_num(x, nan=-np.inf) if x.dtype.kind == "f" else x


def explain_pair(
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
    for number, numbers_of_feature in enumerate(columns_of.values()):
        for name, column in numbers_of_feature:
            numbers[name][column] = number

    def score(lists: Mapping[str, tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        return model({**lists, "mask": mask})

    parts = explanation.contributions(score, values, mask, tf.constant([pair]), numbers).values[0]
    named = zip(columns_of, parts.numpy().tolist(), strict=False)
    return dict(sorted(named, key=lambda item: -abs(item[1])))


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


def _tensors(inputs: Mapping[str, np.ndarray]) -> Tensors:
    return {name: tf.constant(x) for name, x in inputs.items()}
