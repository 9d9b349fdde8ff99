"""Replays the losses of tensorflow-ranking 0.5.5, values and gradients.

Where we mean to differ (`tfr_differences`), the loss must equal its independent reference instead.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden import tfr_counterparts, tfr_differences, tfr_losses_extra, vectors
from tests.golden.vectors import Case

Array = NDArray[np.float64]

CASES = [*vectors.contents("tfr_losses.json")["cases"], *tfr_losses_extra.CASES]
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
STEP = 1e-6


def tensor(x: Any, case: Case) -> Any:
    """An input of the case; a ragged one if the case has such."""
    if not case["ragged"]:
        return tf.reshape(tf.constant(x, tf.float64), case.get("shape") or np.shape(x))
    return tf.ragged.constant(x, tf.float64, ragged_rank=1)


def dense(x: Any) -> Array:
    return np.array(x.to_tensor() if isinstance(x, tf.RaggedTensor) else x, np.float64)


def value_and_gradient(loss: Any, case: Case) -> tuple[Array, Array]:
    """Our loss of each list, and the gradient of their sum."""
    labels, scores = tensor(case["y_true"], case), tensor(case["y_pred"], case)
    weights = case["sample_weight"]
    if isinstance(weights, list):
        is_item = case["ragged"] and case["weight_kind"].startswith("w_item")
        weights = tensor(weights, case) if is_item else tf.constant(weights, tf.float32)
    flat = scores.flat_values if isinstance(scores, tf.RaggedTensor) else scores
    with tf.GradientTape() as tape:
        tape.watch(flat)
        x = scores.with_flat_values(flat) if isinstance(scores, tf.RaggedTensor) else flat
        value = loss_of_noise(loss, case, labels, x, weights)
    grad = tape.gradient(value, flat)
    if isinstance(scores, tf.RaggedTensor):
        grad = scores.with_flat_values(grad)
    return dense(value), dense(grad)


def loss_of_noise(loss: Any, case: Case, labels: Any, scores: Any, weights: Any) -> Any:
    """Calls a loss; one that is random gets the noise of the case."""
    if "gumbel_noise" not in case:
        return loss(labels, scores, weights)
    batch = loss.batch_of(labels, scores, weights, loss.dtype)
    noise = tf.constant(case["gumbel_noise"], loss.dtype)
    fields = (batch.labels, batch.scores, batch.mask, batch.weights)
    return batch.list_weights * loss.of_noise(*fields, noise)


def times(ours: tfr_counterparts.Ours, case: Case) -> Array:
    width = max(len(x) for x in case["y_true"]) if ours.by_width else 1
    return width * np.array([ours.times(*row) for row in tfr_differences.rows(case)])


def scaled(x: Array, factors: Array) -> Array:
    return x * factors.reshape([-1] + [1] * (x.ndim - 1))


def numbers(x: Any) -> Array:
    """Reads recorded numbers; rows of different lengths are padded with 0."""
    if isinstance(x, list) and x and isinstance(x[0], list):
        inner = [numbers(row) for row in x]
        shape = np.max([row.shape for row in inner], axis=0)
        return np.stack(
            [np.pad(r, [(0, n - m) for n, m in zip(shape, r.shape, strict=True)]) for r in inner]
        )
    return np.array([float(v) for v in x] if isinstance(x, list) else float(x))


def recorded_per_list(case: Case) -> Array:
    """What tensorflow-ranking has for each list, summed over its items and samples."""
    expected = case["expected"]
    if "per_list_loss" in expected:
        return numbers(expected["per_list_loss"]) * numbers(expected["per_list_weight"])
    per_item = numbers(expected["none"])
    return per_item.reshape([len(case["y_true"]), -1]).sum(axis=1)


def with_ordered_labels(case: Case) -> Case:
    """The case with equal labels in the order of the list, as what is recorded has them."""
    rows = (enumerate(reversed(row), start=1) for row in case["y_true"])
    ordered = ([y + 1e-9 * i if y >= 0 else y for i, y in row][::-1] for row in rows)
    return {**case, "y_true": [*ordered]}


def assert_equals_recorded(
    ours: tfr_counterparts.Ours, case: Case, of: Collection[str] = ("value", "gradient")
) -> None:
    dtype = "float32"
    if ours.is_of_order and not case["deterministic"]:
        assert_equals_reference(ours, case)
        case, dtype = with_ordered_labels(case), "float64"
    found = value_and_gradient(loss_of(ours, case, dtype), case)
    value, grad = (scaled(x, times(ours, case)) for x in found)
    if "value" in of:
        np.testing.assert_allclose(value, recorded_per_list(case), **CLOSE)
    if "gradient" in of:
        np.testing.assert_allclose(grad, numbers(case["grad_sum"]), rtol=1e-5, atol=1e-5)


def assert_equals_reference(ours: tfr_counterparts.Ours, case: Case) -> None:
    """Compares values with the reference, and gradients with its finite differences.

    Where slopes ahead and behind differ, any between them is a gradient.
    """
    value, grad = value_and_gradient(loss_of(ours, case, "float64"), case)
    expected = np.zeros_like(value)
    slopes = np.zeros([2, *grad.shape])
    for i, (labels, scores) in enumerate(tfr_differences.rows(case)):
        columns = [j for j, y in enumerate(case["y_true"][i]) if y >= 0]
        weights = weights_of_list(case, i, columns)
        reference = reference_of_list(ours, case, i, columns)
        expected[i] = reference(labels, scores, weights)
        if ours.holds:
            reference = functools.partial(reference, held=scores)
        for place in np.ndindex(np.shape(scores)):
            for direction, step in enumerate((STEP, -STEP)):
                moved = np.array(scores, np.float64)
                moved[place] += step
                change = reference(labels, moved.tolist(), weights) - expected[i]
                slopes[(direction, i, columns[place[0]], *place[1:])] = change / step
    np.testing.assert_allclose(value, expected, **CLOSE)
    low, high = np.sort(slopes, axis=0)
    tolerance = 1e-5 + 1e-5 * np.abs(high)
    assert np.all((grad >= low - tolerance) & (grad <= high + tolerance)), (grad, low, high)


def reference_of_list(
    ours: tfr_counterparts.Ours, case: Case, i: int, columns: list[int]
) -> Callable[..., float]:
    """The reference of one list of the case, with its noise."""
    if "gumbel_noise" not in case:
        return ours.reference
    noise = [[sample[j] for j in columns] for sample in case["gumbel_noise"][i]]
    return functools.partial(ours.reference, noise=noise)


def weights_of_list(case: Case, i: int, columns: list[int]) -> list[float]:
    weights = case["sample_weight"]
    if not isinstance(weights, list):
        return [1.0 if weights is None else weights] * len(columns)
    return [weights[i][j if len(weights[i]) > 1 else 0] for j in columns]


def loss_of(ours: tfr_counterparts.Ours, case: Case, dtype: str) -> Any:
    return ours.make(dtype=dtype, reduction="none")


@pytest.mark.parametrize("case", vectors.in_modes(CASES, kind="loss"))
def test_replay(case: Case) -> None:
    difference = tfr_differences.of(case)
    if difference is tfr_differences.REFUSED:
        plain = tfr_counterparts.of({**case, "lambda_weight": None})
        with pytest.raises(TypeError, match="lambda_weight"):
            plain.make(lambda_weight=object())
        return
    ours = tfr_counterparts.of(case)
    if "error" in case:
        assert difference in tfr_differences.RAISED
        assert np.all(np.isfinite(value_and_gradient(loss_of(ours, case, "float32"), case)[0]))
    elif difference is None:
        assert_equals_recorded(ours, case)
    else:
        assert_equals_reference(ours, case)
        assert_equals_recorded(ours, case, difference.leaves("value", "gradient"))


@vectors.of_our_files
def test_every_difference_is_that_of_some_case() -> None:
    met = {id(tfr_differences.of(case)) for case in CASES}
    for difference in tfr_differences.DIFFERENCES:
        assert id(difference) in met, difference.scenario


def test_the_table_of_differences_has_a_line_for_each() -> None:
    lines = tfr_differences.table().splitlines()
    others = [tfr_differences.REFUSED, *tfr_differences.RAISED]
    assert len(lines) == 2 + len(tfr_differences.DIFFERENCES) + len(others)
    assert all(len(line.split(" | ")) == 3 for line in lines if not line.startswith("|--"))
