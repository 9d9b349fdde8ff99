"""The layer of the soft top k: inputs of all kinds, padding, precision."""

import math
import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.references import topk as reference
from tfrank_sel import models

INF = math.inf
ABSENT = [[3.0, -INF, 2.0, 1.0, 0.0], [-INF, -INF, 1.0, -INF, 5.0], [-INF] * 5]
MASK = np.array([[True] * 4 + [False], [True] * 5, [True] * 5])
MASKED = np.zeros([3, 5])
MASKED[0, [0, 2, 3]] = reference.memberships([3.0, 2.0, 1.0], 1.0)
MASKED[1, [2, 4]] = reference.memberships([1.0, 5.0], 1.0)
EXPECTED = MASKED.copy()
EXPECTED[0, [0, 2, 3, 4]] = reference.memberships([3.0, 2.0, 1.0, 0.0], 1.0)
ANY = [None, None]


@pytest.mark.long
@pytest.mark.parametrize(("jit_compile", "shape"), [(None, None), (False, ANY), (True, [3, 5])])
def test_minus_infinity_is_absent_and_has_no_gradient(jit_compile: Any, shape: Any) -> None:
    layer = models.SoftTopK(1.0)

    def run(scores: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(scores)
            found, masked = layer(scores), layer(scores, mask=mask)
            total = tf.reduce_sum(tf.sin(found))
        return found, masked, tape.gradient(total, scores)

    if jit_compile is not None:
        signature = [tf.TensorSpec(shape), tf.TensorSpec(shape, tf.bool)]
        run = tf.function(run, signature, jit_compile=jit_compile, autograph=False)
    found, masked, gradient = run(tf.constant(ABSENT), tf.constant(MASK))
    np.testing.assert_allclose(found, EXPECTED, atol=1e-6)
    np.testing.assert_allclose(masked, MASKED, atol=1e-6)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient.numpy() != 0.0, EXPECTED > 0.0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float16", "bfloat16", "float64"])
def test_scores_of_every_dtype_give_float32(dtype: str) -> None:
    scores = tf.cast([[3, 0, 2, 1]], dtype)
    found = models.SoftTopK(2.0)(scores)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found[0], reference.memberships([3, 0, 2, 1], 2.0), atol=1e-6)
    assert models.SoftTopK(2.0, dtype="float64")(scores).dtype == tf.float64


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_memberships_are_exact_under_mixed_precision(policy: str) -> None:
    scores = np.random.default_rng(0).normal(size=[4, 100]).astype("float32")
    found = models.SoftTopK(5.0, dtype=policy)(scores)
    np.testing.assert_array_equal(found, models.SoftTopK(5.0)(scores))
    np.testing.assert_allclose(found.numpy().sum(axis=1), 5.0, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_network_with_the_layer_trains_and_is_saved(policy: str, tmp_path: pathlib.Path) -> None:
    features = np.random.default_rng(0).normal(size=[8, 6, 2]).astype("float32")
    inputs = keras.Input([None, 2])
    scores = keras.layers.Dense(1, dtype=policy)(inputs)
    scores = keras.layers.Reshape([-1], dtype=policy)(scores)
    model = keras.Model(inputs, models.SoftTopK(2.0, 0.5, dtype=policy)(scores))
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(features, (features[..., 0] > 0.0).astype("float32"), verbose=0)
    assert all(np.isfinite(x).all() for x in model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(features), model(features))


TENSORS = {
    "1-D": ([3], None, r"shape \[batch_size, list_size\]. Received: scores.shape=\(3,\)"),
    "3-D": ([2, 3, 1], None, r"Received: scores.shape=\((2|None), 3, 1\)"),
    "mask": ([2, 3], [2, 1], r"Received: scores.shape=.* 3\), mask.shape=.* 1\)"),
}


@pytest.mark.long
@pytest.mark.parametrize(("scores", "mask", "message"), TENSORS.values(), ids=list(TENSORS))
def test_other_shapes_are_refused(scores: Any, mask: Any, message: str) -> None:
    layer = models.SoftTopK(1.0)
    items = tf.ones(scores)
    is_item = None if mask is None else tf.ones(mask, tf.bool)
    for call in (layer, tf.function(lambda x, mask: layer(x, mask=mask))):
        with pytest.raises(ValueError, match=message):
            call(items, mask=is_item)
    if len(scores) > 2:
        with pytest.raises(ValueError, match=message):
            layer(keras.Input(scores[1:]))
    unknown = tf.function(layer, [tf.TensorSpec(None)])
    assert unknown(tf.ones([2, 3])).shape == [2, 3]
    if len(scores) != 2:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
            unknown(items)


ONES = np.ones([1, 2], np.float32)


@pytest.mark.parametrize(
    ("scores", "mask", "error", "message"),
    [
        (tf.constant([["a", "b"]]), None, TypeError, "Received: scores.dtype=string"),
        (ONES > 0.0, None, TypeError, "Received: scores.dtype=bool"),
        (ONES, np.ones([1, 2], np.int64), TypeError, "mask.dtype=int64"),
        (tf.ragged.constant([[1.0], [2.0, 3.0]]), None, ValueError, r"`scores` must be dense"),
        (ONES, tf.ragged.constant([[True, True]]), ValueError, r"`mask` must be dense"),
    ],
)
def test_other_kinds_are_refused(
    scores: Any, mask: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        models.SoftTopK(1.0)(scores, mask=mask)
