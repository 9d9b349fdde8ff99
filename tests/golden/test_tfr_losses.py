"""Replays the losses of tensorflow-ranking 0.5.5, values and gradients.

Where we mean to differ, the loss must equal what `tfr_differences.json` has instead.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden import differences, tfr_counterparts, vectors
from tests.golden.vectors import Case

Array = NDArray[np.float64]

CASES = [*vectors.contents("tfr_losses.json")["cases"], *differences.MORE_LOSSES]
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


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


def scaled(x: Array, ours: tfr_counterparts.Ours, case: Case) -> Array:
    """What tensorflow-ranking has, the sum over items, samples and the width of the list."""
    width = max(len(labels) for labels in case["y_true"]) if ours.by_width else 1
    factors = []
    for row in zip(case["y_true"], case["y_pred"], strict=True):
        valid = [(y, s) for y, s in zip(*row, strict=True) if y >= 0]
        factors.append(width * ours.times([y for y, _ in valid], [s for _, s in valid]))
    return x * np.reshape(factors, [-1] + [1] * (x.ndim - 1))


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


def assert_equals_recorded(case: Case, of: Collection[str] = ("value", "gradient")) -> None:
    ours, dtype = tfr_counterparts.of(case), "float32"
    if ours.is_of_order and not case["deterministic"]:
        case, dtype = with_ordered_labels(case), "float64"
    found = value_and_gradient(loss_of(ours, dtype), case)
    value, grad = (scaled(x, ours, case) for x in found)
    if "value" in of:
        np.testing.assert_allclose(value, recorded_per_list(case), **CLOSE)
    if "gradient" in of:
        np.testing.assert_allclose(grad, numbers(case["grad_sum"]), rtol=1e-5, atol=1e-5)


def loss_of(ours: tfr_counterparts.Ours, dtype: str) -> Any:
    return ours.make(dtype=dtype, reduction="none")


@pytest.mark.parametrize("case", vectors.in_modes(CASES, kind="loss"))
def test_replay(case: Case) -> None:
    of = {"value", "gradient"}
    for difference in differences.of("losses", case):
        if "refused" in difference:
            with pytest.raises(TypeError, match="lambda_weight"):
                tfr_counterparts.of({**case, "lambda_weight": None}).make(lambda_weight=object())
            return
        of -= set(difference.get("of", of))
        loss = loss_of(tfr_counterparts.of(case), "float64")
        expected = difference["cases"][case["id"]]
        for name, found in zip(("value", "gradient"), value_and_gradient(loss, case), strict=True):
            np.testing.assert_allclose(found, np.array(expected[name]), **CLOSE, err_msg=name)
    if of:
        assert_equals_recorded(case, of)
