"""Symmetric polynomials: what their logarithms and the soft k-th largest score must satisfy."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.references import topk as reference
from tfrank_sel.ops import layout, symmetric

RNG = np.random.default_rng(0)


@functools.cache
def plain(k: int):
    """The function by its definition, and its gradient, in a graph."""

    @tf.function(autograph=False, reduce_retracing=True)
    def f(x: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logs = symmetric.log_symmetric(x / scale, k)
        kth = scale * (logs[:, k] - logs[:, k - 1])
        return kth, tf.gradients(kth, x)[0]

    return lambda x, scale: f(tf.constant(x, tf.float64), tf.constant(scale, tf.float64))


def soft_kth_largest(x: tf.Tensor, k: int, scale: float = 1.0) -> tf.Tensor:
    """The soft k-th largest of all scores of each list: beside no item."""
    nothing = tf.fill([tf.shape(x)[0]], -1)
    return symmetric.soft_kth_largest_beside(x, nothing, k, scale)[0]


def value_and_gradient(x: np.ndarray, k: int, scale: float, dtype: str) -> tuple:
    x = tf.constant(x, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        kth = soft_kth_largest(x, k, scale)
    return kth.numpy(), tape.gradient(kth, x).numpy().astype(np.float64)


def assert_as_plain(x: np.ndarray, k: int, scale: float, dtype: str = "float32") -> None:
    x = np.asarray(x, dtype).astype(np.float64)
    kth, grad = value_and_gradient(x, k, scale, dtype)
    rtol = 1e-9 if dtype == "float64" else 2e-6
    expected_kth, expected = plain(k)(x, scale)
    np.testing.assert_allclose(kth, expected_kth, rtol=rtol, atol=rtol * scale)
    for row, expected_row in zip(grad, expected, strict=True):
        atol = (1e-11 if dtype == "float64" else 5e-7) * np.max(np.abs(expected_row))
        np.testing.assert_allclose(row, expected_row, rtol=10 * rtol, atol=atol)


@pytest.mark.parametrize("degree", range(6))
def test_logarithms_equal_sums_over_all_sets(degree: int) -> None:
    x = RNG.normal(size=5)
    logs = symmetric.log_symmetric(tf.constant([x]), 5)[0]
    np.testing.assert_allclose(logs[degree], reference.log_symmetric(x, degree), atol=1e-13)


def test_absent_items_change_no_logarithm() -> None:
    x = tf.constant([[1.0, -2.0, 700.0]])
    absent = tf.constant([[-math.inf, 1.0, -math.inf, -2.0, 700.0]])
    np.testing.assert_allclose(
        symmetric.log_symmetric(absent, 4), symmetric.log_symmetric(x, 4), rtol=1e-6
    )
    assert symmetric.log_symmetric(x, 4)[0, 4] == -math.inf


def test_gradient_of_logarithms_is_the_chance_of_being_sampled() -> None:
    x = tf.constant([RNG.normal(size=6)])
    with tf.GradientTape() as tape:
        tape.watch(x)
        third = symmetric.log_symmetric(x, 3)[:, 3]
    chances = tape.gradient(third, x)[0]
    for i in range(6):
        with_item = reference.log_symmetric(np.delete(x[0], i), 2) + x[0, i]
        np.testing.assert_allclose(chances[i], np.exp(with_item - third[0]), rtol=1e-12)
    np.testing.assert_allclose(np.sum(chances), 3.0)


@pytest.mark.long
@settings(max_examples=15)
@given(st.data())
def test_soft_kth_equals_its_plain_form(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([2, 7, 41, 333]))
    k = data.draw(st.sampled_from([1, 2, 6, 20]))
    k = min(k, size)
    spread = data.draw(st.sampled_from([0.0, 0.01, 1.0, 30.0, 1e3, 1e4]))
    tau = data.draw(st.sampled_from([1e-3, 0.1, 1.0, 50.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    x = rng.normal(0.0, spread, (3, size)).round(data.draw(st.sampled_from([0, 4])))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    with layout.traced_for(data.draw(st.sampled_from(["CPU", "GPU"]))):
        assert_as_plain(x, k, k * tau, dtype)


@pytest.mark.parametrize("k", [1, 5, 6, 7, 20])
def test_peaked_lists_do_not_change_the_others_of_a_batch(k: int) -> None:
    easy = RNG.normal(size=[4, 200])
    peaked = np.sort(RNG.normal(size=[4, 200])) ** 5 * 100.0
    alone, grad_alone = value_and_gradient(easy, k, 0.1 * k, "float32")
    mixed, grad_mixed = value_and_gradient(np.concatenate([peaked, easy]), k, 0.1 * k, "float32")
    np.testing.assert_allclose(mixed[4:], alone, rtol=1e-6)
    np.testing.assert_allclose(grad_mixed[4:], grad_alone, atol=5e-7 * grad_alone.max())


def test_heavy_items_in_one_lane_bring_the_full_degree() -> None:
    x = RNG.normal(size=[1, 4000]) - 20.0
    x[:, ::128] += 40.0  # 32 of them, all of which fall into one lane
    assert_as_plain(x, 30, 1.0)


@pytest.mark.long
def test_k_of_100_among_2000() -> None:
    for tau in (1e-3, 0.1, 1.0):
        assert_as_plain(RNG.normal(size=[1, 2000]), 100, 100 * tau)


@pytest.mark.parametrize("device", ["CPU", "GPU"])
@pytest.mark.parametrize("x", [[3.0, -math.inf, 1.0], [-math.inf] * 3])
def test_too_few_items_have_no_kth(x: list[float], device: str) -> None:
    with layout.traced_for(device):
        kth, grad = value_and_gradient(np.array([x]), 3, 1.0, "float32")
    assert kth == [-math.inf]
    assert np.all(grad == 0.0)


def test_soft_kth_lies_between_its_bounds() -> None:
    x = RNG.normal(size=[50, 30])
    for k in (1, 4, 30):
        hard = np.sort(x)[:, -k]
        kth = value_and_gradient(x, k, 0.7, "float32")[0]
        assert np.all(kth >= hard - 0.7 * math.log(k) - 1e-6)
        assert np.all(kth <= hard + 0.7 * math.log(30 - k + 1) + 1e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(5, 7), (None, 7), (None, None)])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_graphs_of_any_known_shape_agree(shape: tuple, jit_compile: bool) -> None:
    spec = [tf.TensorSpec(shape, tf.float32)]

    @tf.function(jit_compile=jit_compile, input_signature=spec, autograph=False)
    def gradient(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(soft_kth_largest(x, 3, 0.5), x)[0]

    x = RNG.normal(size=[5, 7])
    expected = value_and_gradient(x, 3, 0.5, "float32")[1]
    np.testing.assert_allclose(gradient(tf.constant(x, tf.float32)), expected, atol=1e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("device", ["CPU", "GPU"])
@pytest.mark.parametrize("batch_size", [None, 24, 21])
def test_blocks_of_lists_equal_the_whole(batch_size, device, monkeypatch) -> None:
    x = RNG.normal(size=[21 if batch_size is None else batch_size, 50])
    expected = value_and_gradient(x, 4, 0.3, "float32")
    monkeypatch.setattr(symmetric, "SCORES", 400)  # 8 lists
    monkeypatch.setattr(layout, "terms", lambda: 400)
    spec = [tf.TensorSpec([batch_size, 50], tf.float32)]

    @tf.function(jit_compile=True, input_signature=spec, autograph=False)
    def both(x: tf.Tensor) -> tuple:
        kth = soft_kth_largest(x, 4, 0.3)
        return kth, tf.gradients(kth, x)[0]

    with layout.traced_for(device):
        found = both(tf.constant(x, tf.float32))
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-7)


def test_third_derivatives_equal_those_of_the_plain_form() -> None:
    x = tf.constant(RNG.normal(size=[2, 6]))

    def by_logs(x: tf.Tensor) -> tf.Tensor:
        logs = symmetric.log_symmetric(x, 3)
        return logs[:, 3] - logs[:, 2]

    def third(f) -> tf.Tensor:
        with tf.GradientTape() as c:
            c.watch(x)
            with tf.GradientTape() as b:
                b.watch(x)
                with tf.GradientTape() as a:
                    a.watch(x)
                    y = tf.reduce_sum(f(x) ** 2)
                y = tf.reduce_sum(tf.sin(a.gradient(y, x)))
            y = tf.reduce_sum(tf.sin(b.gradient(y, x)))
        return c.gradient(y, x)

    actual = third(lambda x: soft_kth_largest(x, 3))
    np.testing.assert_allclose(actual, third(by_logs), rtol=1e-8)


def test_a_wrong_rank_or_degree_is_named() -> None:
    with pytest.raises(ValueError, match=r"`k` must be positive. Received: k=0$"):
        soft_kth_largest(tf.zeros([1, 2]), 0)
    with pytest.raises(ValueError, match=r"`degree` must be at least 0. Received: degree=-1"):
        symmetric.log_symmetric(tf.zeros([1, 2]), -1)
