"""Derivatives of losses over lists that lie one after the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.references import (
    listwise as ref_listwise,
    losses as ref_losses,
    pairwise as ref_pairwise,
    rg as ref_rg,
    selective as ref_selective,
)
from tests.references.links import SIGMOID
from tfrank_sel import links, losses
from tfrank_sel.losses import lambdas
from tfrank_sel.objectives import Derivatives, closed_forms
from tfrank_sel.objectives.lists import ITEMS_AT_A_TIME, batches, content

pytestmark = pytest.mark.usefixtures("eagerly")

SIZES = np.array([3, 6, 1, 0, 4])
STEP = 1e-4
Reference = Callable[..., float]


def sample(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels with fractions, scores and weights of the items."""
    random = np.random.default_rng(seed)
    items = int(SIZES.sum())
    labels = random.choice([0.0, 0.5, 1.0, 2.25], items)
    return labels, random.normal(size=items), random.uniform(0.5, 2.0, items)


def differences(
    reference: Reference, labels: np.ndarray, scores: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Central differences of a reference in float64, list by list."""
    first, second = np.zeros_like(scores), np.zeros_like(scores)
    for i, end in enumerate(np.cumsum(SIZES)):
        of_list = slice(end - SIZES[i], end)
        for j in range(end - SIZES[i], end):
            move = STEP * (np.arange(len(scores)) == j)
            below, at, above = (
                reference(labels[of_list], (scores + x)[of_list], weights[of_list])
                for x in (-move, 0.0 * move, move)
            )
            first[j] = (above - below) / (2.0 * STEP)
            second[j] = (above - 2.0 * at + below) / STEP**2
    return first, second


def softmax(labels: Any, scores: Any, weights: Any) -> float:
    return ref_losses.softmax(labels, scores, weights, temperature=0.5)


def rg_cross(labels: Any, scores: Any, weights: Any) -> float:
    return ref_rg.rg(labels, scores, weights, kappa=1.0, alpha=0.5)


def selective_softmax(labels: Any, scores: Any, weights: Any) -> float:
    return ref_selective.selective_softmax(labels, scores, weights, scaling=SIGMOID, gamma=1.0)


def matching(labels: Any, scores: Any, weights: Any) -> float:
    return ref_selective.matching(labels, scores, weights, link=SIGMOID)


def lambda_loss(labels: Any, scores: Any, weights: Any) -> float:
    return ref_pairwise.pairwise(
        labels,
        scores,
        weights,
        surrogate=ref_pairwise.logistic,
        weigh=ref_pairwise.lambda_loss(),
        is_sum=True,
    )


def approx_ndcg(labels: Any, scores: Any, weights: Any) -> float:
    return ref_listwise.approx_ndcg(labels, scores, weights, temperature=1.0)


def list_mle(labels: Any, scores: Any, weights: Any) -> float:
    return ref_listwise.list_mle(labels, scores, weights, position_weight=None, temperature=1.0)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("loss", "reference"),
    [
        (losses.SoftmaxLoss(0.5, dtype="float64"), softmax),
        (losses.RGCrossLoss(0.5, dtype="float64"), rg_cross),
        (losses.SelectiveSoftmaxLoss(links.Sigmoid(), dtype="float64"), selective_softmax),
        (losses.MatchingLoss(links.Sigmoid(), dtype="float64"), matching),
        (losses.LambdaLoss(dtype="float64"), lambda_loss),
        (losses.ApproxNDCGLoss(1.0, dtype="float64"), approx_ndcg),
        (losses.ListMLELoss(dtype="float64"), list_mle),
    ],
    ids=lambda x: x.__name__ if callable(x) and not isinstance(x, losses.ListwiseLoss) else "",
)
def test_derivatives_equal_differences_of_a_float64_reference(
    loss: losses.ListwiseLoss, reference: Reference
) -> None:
    labels, scores, weights = sample()
    # eight probes are exact for lists of up to eight items
    found = Derivatives(loss, probes=8, floor=1e-9)(labels, scores, weights, SIZES)
    first, second = differences(reference, labels, scores, weights)
    np.testing.assert_allclose(found[0], first, atol=2e-6)
    np.testing.assert_allclose(found[1], np.abs(second), rtol=1e-3, atol=3e-5)


@pytest.mark.parametrize(
    "loss",
    [
        losses.MeanSquaredLoss(),
        losses.MeanSquaredLoss(losses.sum_over_terms, upper=1.5),
        losses.RGCrossLoss(),
        losses.RGCrossLoss(0.5, 2.0),
    ],
    ids=lambda x: str(x.name),
)
def test_closed_forms_equal_the_graphs(
    loss: losses.ListwiseLoss, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, scores, of_items = sample()
    labels[[1, 8]] = np.nan  # an item of the first list, and the only one of another
    of_items[:3] = 0.0
    for weights in (None, of_items, np.array([2.0, 0.5, 1.0, 3.0, 0.0])):
        values = Derivatives(loss)(labels, scores, weights, SIZES)
        with monkeypatch.context() as patch:
            patch.setattr(closed_forms, "has_derivatives", lambda _: False)
            by_graph = Derivatives(loss)(labels, scores, weights, SIZES)
        np.testing.assert_allclose(values, by_graph, rtol=3e-6, atol=1e-6)


def test_weights_per_list_multiply_the_lists() -> None:
    labels, scores, _ = sample()
    derivatives = Derivatives(losses.SoftmaxLoss())
    of_lists = np.array([2.0, 0.5, 1.0, 3.0, 0.25])
    plain = derivatives(labels, scores, None, SIZES)
    weighted = derivatives(labels, scores, of_lists, SIZES)
    for found, one in zip(weighted, plain, strict=True):
        np.testing.assert_allclose(found, np.repeat(of_lists, SIZES) * one, rtol=1e-6)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("loss", [losses.RGCrossLoss(), losses.LambdaLoss()])
def test_lists_may_come_in_any_order(loss: losses.ListwiseLoss) -> None:
    random = np.random.default_rng(1)
    sizes = random.integers(1, 40, 30)
    starts, items = np.cumsum(sizes) - sizes, int(sizes.sum())
    labels, scores = random.integers(0, 3, items).astype(float), random.normal(size=items)
    order = random.permutation(len(sizes))
    moved = np.concatenate([starts[i] + np.arange(sizes[i]) for i in order])
    derivatives = Derivatives(loss)
    there = derivatives(labels, scores, None, sizes)
    here = derivatives(labels[moved], scores[moved], None, sizes[order])
    for x, y in zip(there, here, strict=True):
        np.testing.assert_allclose(x[moved], y, rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_large_sets_are_computed_in_chunks() -> None:
    sizes = np.full(2 * ITEMS_AT_A_TIME // 50, 50)
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, sizes.sum()).astype(float)
    scores = random.normal(size=sizes.sum())
    loss = losses.SoftmaxLoss()
    slots = [index for *_, index in batches(loss, *content(labels, None, sizes))]
    assert [x.shape for x in slots] == [(2, 655, 50)]
    derivatives = Derivatives(loss)
    gradient, _ = derivatives(labels, scores, None, sizes)
    some = slice(50 * 654, 50 * 657)  # on both sides of the border
    alone, _ = derivatives(labels[some], scores[some], None, sizes[:3])
    np.testing.assert_allclose(gradient[some], alone, rtol=1e-5, atol=1e-7)


@pytest.mark.long
@pytest.mark.compiled
def test_probes_estimate_without_bias() -> None:
    random = np.random.default_rng(3)
    labels, scores = random.integers(0, 3, 16).astype(float), random.normal(size=16)
    loss = losses.CalibratedSoftmaxLoss()
    exact = Derivatives(loss, probes=16)(labels, scores, None, [16])[1]
    estimates = Derivatives(loss, probes=1, floor=1e-9)
    found = [
        estimates(labels, scores + shift, None, [16])[1] for shift in np.linspace(0.0, 1e-3, 300)
    ]
    assert np.std(found, axis=0).max() > 0.1 * exact.max()
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=0.15)


@pytest.mark.long
@pytest.mark.compiled
def test_the_same_call_gives_the_same_result() -> None:
    labels, scores, weights = sample()
    derivatives = Derivatives(losses.CalibratedSoftmaxLoss(), probes=2)
    first = derivatives(labels, scores, weights, SIZES)
    derivatives(labels, scores + 1.0, weights, SIZES)
    anew = Derivatives(losses.CalibratedSoftmaxLoss(), probes=2)
    again = anew(labels, scores, weights, SIZES)
    np.testing.assert_array_equal(first, again)


@pytest.mark.compiled
def test_a_second_call_traces_nothing() -> None:
    labels, scores, _ = sample()
    derivatives = Derivatives(losses.SoftmaxLoss())
    for shift in range(3):
        derivatives(labels, scores + shift, None, SIZES)
    assert sum(x.experimental_get_tracing_count() for x in derivatives._graphs) == 1


def test_a_loss_without_curvature_has_steps_of_about_one() -> None:
    gradient, diagonal = Derivatives(losses.PairwiseHingeLoss())([1, 0, 0], [0.5] * 3, group=[3])
    np.testing.assert_allclose(gradient, [-1.0, 0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(diagonal, [2 / 3] * 3, rtol=1e-6)


def test_an_item_without_label_has_no_derivatives() -> None:
    derivatives = Derivatives(losses.SoftmaxLoss())
    gradient, diagonal = derivatives([1.0, np.nan, 0.0], [0.0, 5.0, 0.0], group=[3])
    np.testing.assert_allclose(gradient, [-0.5, 0.0, 0.5], atol=1e-7)
    np.testing.assert_allclose(diagonal, [0.25, 0.0, 0.25], atol=1e-7)


def test_no_items_have_no_derivatives() -> None:
    gradient, diagonal = Derivatives(losses.SoftmaxLoss())([], [], group=[0, 0])
    assert gradient.shape == diagonal.shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"loss": "rank:ndcg"}, TypeError, "must be a `losses.ListwiseLoss`"),
        ({"loss": losses.OrdinalLoss(3)}, ValueError, "takes several scores for an item"),
        ({"loss": losses.InBatchInfoNCELoss()}, ValueError, "depends on other lists"),
        (
            {"loss": losses.GumbelLoss(losses.SoftmaxLoss(), 2)},
            ValueError,
            "draws new noise at each call",
        ),
        ({"loss": losses.SoftmaxLoss(), "probes": 3}, ValueError, "power of two.*probes=3"),
        ({"loss": losses.SoftmaxLoss(), "floor": 0.0}, ValueError, "positive.*floor=0.0"),
    ],
)
def test_what_cannot_be_an_objective_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Derivatives(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give the data the sizes of the lists"),
        ({"group": [2, 2]}, r"sum\(group\)=4, len\(labels\)=3"),
        ({"group": [3], "weights": [1.0, 2.0]}, r"len\(weights\)=2, for 3 items in 1 lists"),
        ({"group": [3], "scores": [1.0]}, r"len\(scores\)=1, len\(labels\)=3"),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments: dict[str, Any], message: str) -> None:
    derivatives = Derivatives(losses.SoftmaxLoss())
    with pytest.raises(ValueError, match=message):
        derivatives(**{"labels": [1.0, 0.0, 0.0], "scores": [0.0] * 3, **arguments})


@pytest.mark.long
def test_lambda_weights_sort_and_return_each_item_its_own() -> None:
    labels, scores, weights = sample(4)
    loss = losses.PairwiseLogisticLoss(lambdas.NDCGLambdaWeight(), dtype="float64")
    found = Derivatives(loss, floor=1e-9)(labels, scores, weights, SIZES)[1]
    y, s = tf.constant(labels[3:9]), tf.constant(scores[3:9])
    with tf.GradientTape() as outer:
        outer.watch(s)
        with tf.GradientTape() as inner:
            inner.watch(s)
            value = loss(y[None], s[None], weights[None, 3:9])
        slope = inner.gradient(value, s)
    exact = np.diag(outer.jacobian(slope, s))
    np.testing.assert_allclose(found[3:9], exact, rtol=1e-5)
