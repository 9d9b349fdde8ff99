"""Every link, loss and metric beside its reference, where TensorFlow is not installed."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases import (
    CALIBRATION,
    DIVERSITY,
    HOLDING,
    HOLDING_VECTORS,
    IN_BATCH,
    LINKS,
    LOSSES,
    METRICS,
    N_WAY,
    SAMPLED,
    SCORE_VECTORS,
    Array,
    Case,
    LinkCase,
    missing_formulas,
    name_of,
)
from tests.references.links import divergence
from tfrank_sel import losses, metrics, numerics as xp

pytestmark = pytest.mark.skipif(xp.NAME == "tensorflow", reason="tests/contracts has these")

LENGTHS = (5, 1, 4)
WIDTH = 5
STEP = 1e-5

OF_LISTS = {"dtype": "float64", "reduction": "none"}
each = functools.partial(pytest.mark.parametrize, "case", ids=name_of)


def with_gradient(function: Callable[[Any], Any], x: Array) -> tuple[Array, Array | None]:
    """The values in float64, and the gradient of their sum, if the backend has one."""

    @xp.entry_point
    def run() -> tuple[Array, Array | None]:
        if not xp.HAS_GRADIENTS:
            return np.asarray(function(xp.constant(x, xp.float64))), None
        values, pull_back = xp.vjp(function, xp.constant(x, xp.float64))
        return np.asarray(values), np.asarray(pull_back(xp.ones_like(values))[0])

    return run()


def in_float64(function: Callable[..., Any], *arrays: Array) -> Array:
    """The values in float64."""
    return xp.entry_point(lambda: np.asarray(function(*map(xp.constant, arrays))))()


def lists(case: Case) -> tuple[list[Array], list[Array], list[Array]]:
    """Labels, scores and weights of a few lists of different lengths."""
    rng = np.random.default_rng(0)
    of_row = (3,) if case in N_WAY else ()
    of_item = (case.make().num_scores or 2,) if case in SCORE_VECTORS else of_row
    labels = [case.labels(rng, (n, *of_row)) for n in LENGTHS]
    scores = [rng.normal(0.0, 1.5, (n, *of_item)).round(3) for n in LENGTHS]
    return labels, scores, [rng.uniform(0.5, 2.0, n).round(3) for n in LENGTHS]


def padded(rows: list[Array], fill: float) -> Array:
    """The lists in one array."""
    whole = np.full((len(rows), WIDTH, *rows[0].shape[1:]), fill)
    for row, values in zip(whole, rows, strict=True):
        row[: len(values)] = values
    whole.flags.writeable = False  # what computes with it must not change it
    return whole


def slopes(reference: Callable[[Array], float], scores: Array) -> Array:
    """The derivatives of a reference, by differences."""
    moves = STEP * np.eye(scores.size).reshape(-1, *scores.shape)
    found = [(reference(scores + x) - reference(scores - x)) / (2.0 * STEP) for x in moves]
    return np.reshape(found, scores.shape)


@pytest.mark.parametrize("module", [losses, metrics], ids=["losses", "metrics"])
def test_no_public_formula_is_missing(module: Any) -> None:
    assert missing_formulas(module) == set()


@each(LINKS)
def test_a_link_equals_its_reference(case: LinkCase) -> None:
    for ours, theirs in zip(
        (case.link, case.link.potential, case.link.slope), case.reference, strict=True
    ):
        expected = [theirs(x) for x in case.points]
        np.testing.assert_allclose(in_float64(ours, case.points), expected, 1e-12, 1e-15)
    z, s = map(np.ravel, np.meshgrid(case.points, case.points))
    expected = [divergence(case.reference, *pair) for pair in zip(z, s, strict=True)]
    found = in_float64(case.link.divergence, z, s)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not xp.HAS_GRADIENTS, reason="the backend has no gradients")
@each(LINKS)
def test_gradients_of_a_link_are_its_own(case: LinkCase) -> None:
    for function, derivative in (
        (case.link.potential, case.link),
        (case.link, case.link.slope),
        (lambda z: case.link.divergence(z, z[::-1]), None),
    ):
        _, found = with_gradient(function, case.points)
        if derivative is not None:
            expected = in_float64(derivative, case.points)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        assert np.all(np.isfinite(found))


@each(LOSSES + HOLDING + SCORE_VECTORS + N_WAY)
def test_a_loss_equals_its_reference(case: Case) -> None:
    rows = lists(case)
    labels, scores, weights = map(padded, rows, (math.nan, 7.0, 3.0))
    expected = [case.reference(*x) for x in zip(*rows, strict=True)]
    loss = case.make(**OF_LISTS)
    values, gradient = with_gradient(lambda s: loss(labels, s, weights), scores)
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-13)
    if gradient is None:
        return
    expected = []
    for y, s, w in zip(*rows, strict=True):
        held = {"held": s} if case in HOLDING + HOLDING_VECTORS else {}
        expected.append(slopes(functools.partial(reference, case, y, w, held), s))
    np.testing.assert_allclose(gradient, padded(expected, 0.0), rtol=1e-6, atol=1e-7)


def reference(case: Case, labels: Array, weights: Array, held: dict[str, Any], s: Array) -> float:
    """The value of a list by its scores."""
    return case.reference(labels, s, weights, **held)


@each(IN_BATCH)
def test_a_loss_of_a_batch_equals_its_reference(case: Case) -> None:
    rng = np.random.default_rng(0)
    labels, scores = case.labels(rng, (5,)), rng.normal(size=(5, 5)).round(3)
    weights = rng.uniform(0.5, 2.0, 5)
    expected = case.reference(labels, scores, weights)
    loss = case.make(**OF_LISTS)
    found = in_float64(loss, labels, scores, weights)
    np.testing.assert_allclose(found.mean(), expected, rtol=1e-12)


@each(SAMPLED)
def test_a_loss_of_samples_equals_its_reference(case: Case) -> None:
    rows, loss = lists(case), case.make(dtype="float64")
    noise = np.random.default_rng(1).gumbel(size=[len(LENGTHS), loss.sample_size, WIDTH])
    labels, scores, weights = map(padded, rows, (0.0, 0.0, 0.0))
    found = in_float64(loss.of_noise, labels, scores, padded(rows[2], 0.0) > 0.0, weights, noise)
    for value, n, *row, of_list in zip(found, LENGTHS, *rows, noise, strict=True):
        expected = case.reference(*row, noise=of_list[:, :n])
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "inner", [losses.RG2Loss(), losses.SoftmaxLoss(), losses.SmoothTopKLoss(2)], ids=repr
)
def test_a_loss_of_a_catalogue_equals_that_of_all_logits(inner: losses.ListwiseLoss) -> None:
    rng = np.random.default_rng(0)
    items, states = rng.normal(size=(9, 3)), rng.normal(size=(5, 3))
    indices = np.array([3, 0, -1, 8, 3])

    def of_logits(states: Any) -> Any:
        labels = np.eye(9)[indices] * (indices >= 0)[:, np.newaxis]
        labels[indices < 0] = math.nan
        logits = xp.matmul(states, xp.constant(items.T))
        return type(inner).from_config(inner.get_config() | OF_LISTS)(labels, logits)

    def of_states(states: Any) -> Any:
        loss = losses.CatalogueLoss(
            inner, lambda: xp.constant(items), **OF_LISTS, logits_at_once=18
        )
        return loss(indices, states)

    for found, expected in zip(
        *(with_gradient(f, states) for f in (of_states, of_logits)), strict=True
    ):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    loss = losses.CatalogueLoss(inner, lambda: xp.constant(items))
    assert float(loss(indices[:0], xp.constant(states[:0]))) == 0.0


@each(METRICS + DIVERSITY)
def test_a_metric_equals_its_reference(case: Case) -> None:
    rows = lists(case)
    arrays = map(padded, rows, (math.nan, 7.0, 3.0))
    expected = [case.reference(*x) for x in zip(*rows, strict=True)]
    values = case.make(dtype="float64").evaluate(*arrays).values
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-13)


@each(CALIBRATION)
def test_a_metric_of_items_equals_its_reference(case: Case) -> None:
    rows = lists(case)
    arrays = map(padded, rows, (math.nan, 0.5, 3.0))
    metric = case.make(dtype="float64")
    metric.update_state(*arrays)
    expected = case.reference(*map(np.concatenate, rows))
    # the sums are in the dtypes that the user's JAX has
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)
