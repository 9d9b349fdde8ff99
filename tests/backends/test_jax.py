"""Losses and metrics as functions of JAX, and under Keras on JAX."""

import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfrank_sel import losses, metrics, numerics

if numerics.NAME != "jax":
    pytest.skip("`make test-jax` has these", allow_module_level=True)

import jax
import keras

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=[64, 6, 4]).astype(np.float32)
LABELS = np.clip(FEATURES @ [1.0, -2.0, 0.5, 0.0], 0.0, 4.0).round()
LABELS[:, -1] = np.nan  # padding
SCORES = RNG.normal(size=[8, 6]).astype(np.float32)
SCORES[:, -1] = np.nan

Make = Callable[..., Any]
each = pytest.mark.parametrize(
    "make",
    [
        losses.SoftmaxLoss,
        losses.RGCrossLoss,
        lambda **options: losses.SmoothTopKLoss(2, **options),
        losses.PairwiseLogisticLoss,
        losses.SoftRankLoss,
    ],
    ids=["softmax", "rg_cross", "smooth_top_k", "pairwise", "soft_rank"],
)


def training(loss: Any, **options: Any) -> dict[str, list[float]]:
    """The history of a ranker from random weights, always the same ones."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input(FEATURES.shape[1:])
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    scores = keras.layers.Reshape([6])(keras.layers.Dense(1)(hidden))
    model = keras.Model(inputs, scores)
    model.compile(keras.optimizers.Adam(0.05), loss, metrics=[metrics.NDCG(k=3)], **options)
    return model.fit(FEATURES, LABELS, batch_size=16, epochs=8, verbose=0).history


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_model_of_keras_learns(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        found = training(losses.RGCrossLoss())
    finally:
        keras.config.set_dtype_policy("float32")
    assert found["loss"][-1] < found["loss"][0]
    assert found["ndcg_at_3"][-1] > 0.9 > found["ndcg_at_3"][0]


def test_a_model_learns_the_same_without_a_compiled_step() -> None:
    found, expected = (training(losses.SoftmaxLoss(), run_eagerly=x) for x in (True, False))
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-4)


@each
def test_values_and_gradients_are_those_of_compiled_and_mapped_functions(make: Make) -> None:
    loss = make(reduction="none")
    labels = LABELS[: len(SCORES)].astype(np.float32)

    def total(scores: Any) -> Any:
        return loss(labels, scores).sum()

    def of_list(labels: Any, scores: Any) -> Any:
        return loss(labels[None], scores[None])[0]

    values, slopes = loss(labels, SCORES), jax.grad(total)(SCORES)
    assert (values.dtype, slopes.dtype) == (np.float32, np.float32)
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    assert not np.any(slopes[:, -1])  # of padding, whose score is NaN
    np.testing.assert_allclose(jax.jit(loss)(labels, SCORES), values, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(of_list)(labels, SCORES), values, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(SCORES), slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_of_16_bits_have_gradients_of_16_bits(dtype: str) -> None:
    scores = jax.numpy.asarray(SCORES, dtype)
    loss = losses.RGCrossLoss()
    value, slopes = jax.value_and_grad(lambda x: loss(LABELS[: len(SCORES)], x))(scores)
    assert (value.dtype, slopes.dtype) == (np.float32, scores.dtype)


def test_the_example_of_the_guide_runs() -> None:
    text = pathlib.Path("docs/compatibility.md").read_text(encoding="utf-8")
    [(code, printed)] = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_a_compiled_function_draws_new_noise_at_each_call() -> None:
    labels = LABELS[: len(SCORES)]
    first, second = (losses.GumbelLoss(losses.SoftmaxLoss(), seed=1) for _ in range(2))
    compiled = jax.jit(second)
    expected = [float(first(labels, SCORES)) for _ in range(3)]
    found = [float(compiled(labels, SCORES)) for _ in range(3)]
    assert len(set(expected)) == 3
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_state_of_a_metric_is_a_value() -> None:
    metric = metrics.NDCG(k=3)
    labels = LABELS[: len(SCORES)]
    state = [x.value for x in metric.variables]
    state = jax.jit(metric.stateless_update_state)(state, labels, SCORES)
    expected = float(metrics.NDCG(k=3)(labels, SCORES))
    assert float(metric.stateless_result(state)) == pytest.approx(expected)
    assert expected > 0.0
