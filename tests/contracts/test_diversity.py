"""The contracts of the metrics of items that cover subtopics."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import DIVERSITY, Array, Case, name_of

pytestmark = pytest.mark.usefixtures("eagerly")

every_metric = pytest.mark.parametrize("case", DIVERSITY, ids=name_of)

LENGTHS = (4, 1, 3)


def lists(case: Case, seed: int = 0) -> tuple[list[Array], list[Array], list[Array]]:
    rng = np.random.default_rng(seed)
    labels = [case.labels(rng, (n,)) for n in LENGTHS]
    scores = [rng.integers(-2, 3, n).astype(float) for n in LENGTHS]  # with ties
    weights = [rng.uniform(0.5, 2.0, n).round(3) for n in LENGTHS]
    return labels, scores, weights


def batch(case: Case, junk: float = 7.0, front: int = 0) -> tuple[Array, Array, Array]:
    """The lists, padded to one width, in front and behind."""

    def padded(rows: list[Array], fill: float) -> Array:
        wide = [(front, 4 - len(r)) for r in rows]
        return np.array(
            [
                np.pad(r, [w] + [(0, 0)] * (r.ndim - 1), constant_values=fill)
                for r, w in zip(rows, wide, strict=True)
            ]
        )

    labels, scores, weights = lists(case)
    return padded(labels, math.nan), padded(scores, junk), padded(weights, junk)


def values(case: Case, *arguments: Any) -> Array:
    return case.make(dtype="float64").evaluate(*arguments).values.numpy()


@every_metric
def test_equals_its_reference(case: Case) -> None:
    expected = [case.reference(*one) for one in zip(*lists(case), strict=True)]
    np.testing.assert_allclose(values(case, *batch(case)), expected, rtol=1e-10)


@pytest.mark.sample(3)
@every_metric
@pytest.mark.parametrize("junk", [1e30, math.inf, math.nan])
def test_padding_of_items_and_of_subtopics_changes_nothing(case: Case, junk: float) -> None:
    labels, scores, weights = batch(case, junk, front=2)
    labels = np.pad(labels, [(0, 0), (0, 0), (0, 2)], constant_values=-1.0)
    padded = values(case, labels, scores, weights)
    np.testing.assert_allclose(padded, values(case, *batch(case)), rtol=1e-12)


@pytest.mark.sample(3)
@every_metric
def test_ragged_equals_padded(case: Case) -> None:
    labels, scores, weights = lists(case)
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(labels), LENGTHS)
    rows = [tf.ragged.constant([r.tolist() for r in x]) for x in (scores, weights)]
    np.testing.assert_allclose(values(case, ragged, *rows), values(case, *batch(case)), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="row lengths"):
        case.make()(ragged, tf.ragged.constant([[1.0], [1.0], [1.0]]))


@every_metric
def test_lists_without_items_are_not_counted_and_without_relevant_ones_are_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    found = case.make().evaluate(np.full_like(labels, math.nan), scores)
    np.testing.assert_array_equal(found, np.zeros([2, 3]))
    found = case.make().evaluate(np.zeros_like(labels), scores)
    np.testing.assert_array_equal(found, [np.zeros(3), np.ones(3)])
    assert values(case, np.zeros([1, 0, 3]), np.zeros([1, 0])) == [0.0]
    assert values(case, np.zeros([1, 2, 0]), np.zeros([1, 2])) == [0.0]


@every_metric
def test_a_wrong_shape_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"subtopics.*y_true.shape=\(2, 3\)"):
        case.make()(np.zeros([2, 3]), np.zeros([2, 3]))
    with pytest.raises(ValueError, match=r"y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 3, 2]), np.zeros([2, 4]))
