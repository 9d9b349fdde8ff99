"""Soft top-k: memberships of the definition, exact gradients, hard cases."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.references import topk as reference
from tfrank_sel import models
from tfrank_sel.ops import soft_topk

RNG = np.random.default_rng(0)


def memberships(scores, k: float, mask=None) -> np.ndarray:
    scores = tf.constant(scores)
    mask = tf.ones_like(scores, tf.bool) if mask is None else tf.constant(mask)
    return soft_topk.memberships(scores, k, mask).numpy()


@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.sample(3)
@given(st.data(), st.floats(0.25, 13.0, width=32), st.sampled_from([1.0, 1e-3, 0.0]))
@settings(max_examples=20)
def test_memberships_are_those_of_the_definition(
    size: int, data: st.DataObject, k: float, scale: float
) -> None:
    numbers = st.floats(-1e4, 1e4, width=32)
    scores = np.float32(data.draw(st.lists(numbers, min_size=size, max_size=size)))
    scores = scores * np.float32(scale)
    found = memberships([scores], k)[0]
    np.testing.assert_allclose(found, reference.memberships(scores.tolist(), k), atol=3e-7)


@pytest.mark.sample(2)
@pytest.mark.parametrize("k", [1, 5.5, 500, 999])
def test_memberships_of_long_lists_sum_up_to_k(k: float) -> None:
    spreads = np.repeat([1e-3, 1.0, 30.0, 1e4], 4)
    scores = spreads[:, np.newaxis] * RNG.normal(size=[16, 1000])
    for dtype, rtol in (("float32", 1e-6), ("float64", 1e-13)):
        found = memberships(scores.astype(dtype), k)
        np.testing.assert_allclose(found.sum(axis=1), k, rtol=rtol)
        assert np.all((found >= 0.0) & (found <= 1.0))


@pytest.mark.sample(8)
@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("k", [0.3, 1, 5.5])
def test_long_lists_have_the_same_memberships_by_their_best_items(
    monkeypatch: pytest.MonkeyPatch, k: float, spread: float
) -> None:
    scores = spread * RNG.normal(size=[7, 2003])
    scores[1] = np.round(scores[1] / (spread or 1.0))  # with ties
    scores[2, :9] += 100.0 * spread
    scores = np.float32(scores)  # the same for both types
    mask = RNG.random(scores.shape) < 0.9
    mask[3, 4:] = mask[4] = False  # a short list, and an empty one
    found, steps, newton = {}, [], soft_topk._newton

    def counted(gaps, *rest):
        steps.append(gaps.shape[1])
        return newton(gaps, *rest)

    monkeypatch.setattr(soft_topk, "_newton", counted)
    for is_long in (True, False):
        monkeypatch.setattr(soft_topk, "LONG", 0 if is_long else 10**9)
        for dtype in ("float32", "float64"):
            log_p = soft_topk.log_memberships(tf.constant(scores, dtype), k, tf.constant(mask))
            found[is_long, dtype] = log_p.numpy()
            assert {*steps} == {2 * int(np.ceil(k)) + 1 if is_long else 2003}
            assert len(steps) < 60
            steps.clear()
    for (_, dtype), values in found.items():
        rtol = 1e-6 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(values, found[False, "float64"], rtol=rtol, atol=rtol)


@pytest.mark.sample(5)
@pytest.mark.parametrize("k", [0.3, 1, 5.5, 25, 49])
def test_float32_has_six_digits_at_any_spread_of_scores(k: float) -> None:
    rows = [
        height + spread * RNG.standard_cauchy([2, 50])
        for spread in (1e-4, 1e-2, 1.0, 10.0, 1e3, 1e6, 1e9)
        for height in (0.0, 3e3, 1e6)
    ]
    drawn = np.concatenate(rows).astype(np.float32)
    scores = drawn.astype(np.longdouble)

    def laplace(x):
        tail = np.exp(-np.abs(x)) / 2
        return np.where(x < 0, tail, 1 - tail)

    low = scores.min(axis=1, keepdims=True) - 100
    high = scores.max(axis=1, keepdims=True) + 100
    for _ in range(100):
        b = (low + high) / 2
        above = laplace(scores - b).sum(axis=1, keepdims=True) > k
        low, high = np.where(above, b, low), np.where(above, high, b)
    exact = laplace(scores - low)
    np.testing.assert_allclose(memberships(drawn, k), exact, rtol=0.0, atol=1e-6)


def test_logarithms_keep_the_digits_of_tiny_memberships() -> None:
    scores = tf.constant([[0.0, -200.0, 5.0]], tf.float64)
    found = soft_topk.log_memberships(scores, 1.0, tf.ones_like(scores, tf.bool))[0, 1].numpy()
    assert found == pytest.approx(-202.5 - np.log(2.0), rel=1e-12)  # F(x) = exp(x) / 2, b = 2.5
    near = scores[:, ::2]
    exact = np.log(reference.memberships([0.0, 5.0], 1.0))
    found = soft_topk.log_memberships(near, 1.0, tf.ones_like(near, tf.bool))[0]
    np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_of_first_and_second_order_are_exact(jit_compile: bool) -> None:
    scores = RNG.normal(size=[3, 40])
    scores[1, :20] = scores[1, 20]  # many ties
    weights, direction = RNG.normal(size=scores.shape), RNG.normal(size=scores.shape)
    mask = tf.constant(RNG.random(scores.shape) < 0.8)

    def value(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * soft_topk.memberships(x, 3.0, mask))

    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = value(x)
        return tf.reduce_sum(tape.gradient(y, x) * direction)

    @tf.function(jit_compile=jit_compile)
    def curvature(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = slope(x)
        return tf.reduce_sum(tape.gradient(y, x) * direction)

    x, step = tf.constant(scores), 1e-6 * direction
    assert float(slope(x)) == pytest.approx(float(value(x + step) - value(x - step)) / 2e-6, 1e-5)
    numeric = float(slope(x + step) - slope(x - step)) / 2e-6
    assert float(curvature(x)) == pytest.approx(numeric, rel=1e-3, abs=1e-5)


def test_lists_of_up_to_k_items_have_all_and_no_gradient() -> None:
    scores = tf.constant([[1.0, np.nan, 2.0], [1.0, 2.0, 3.0], [np.inf, np.nan, -np.inf]])
    mask = tf.constant([[True, False, True], [True] * 3, [False] * 3])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        found = soft_topk.memberships(scores, 2.0, mask)
    expected = [[1.0, 0.0, 1.0], reference.memberships([1.0, 2.0, 3.0], 2.0), [0.0] * 3]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    gradient = tape.gradient(found, scores, tf.constant([[1.0, 2.0, 3.0]] * 3)).numpy()
    assert np.all(gradient[[0, 2]] == 0.0)
    assert np.all(gradient[1] != 0.0)


def test_the_layer_divides_by_the_temperature_and_takes_the_mask() -> None:
    scores, mask = RNG.normal(size=[2, 6]).astype("float32"), RNG.random([2, 6]) < 0.7
    found = models.SoftTopK(2.0, temperature=0.5)(scores, mask=mask)
    np.testing.assert_allclose(found, memberships(2.0 * scores, 2.0, mask), rtol=1e-6)
    with pytest.raises(ValueError, match=r"must be positive\. Received: k=0"):
        models.SoftTopK(0)
