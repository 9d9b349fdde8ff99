"""Soft ranks after a sort: those of the definition, with exact gradients, in every mode."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.references import links as reference
from tests.references.listwise import soft_ranks as by_pairs
from tfrank_sel import links
from tfrank_sel.losses import relaxed
from tfrank_sel.ops.soft_ranks import laplace_ranks

RNG = np.random.default_rng(0)


def quadratic(x: tf.Tensor, among: tf.Tensor) -> tf.Tensor:
    """The same ranks by all pairs: a shift of 0 that is not 0 hides the closed form."""
    return relaxed.relaxed_ranks(x + 1e-300, among, links.Laplace(shift=1e-300))


def with_gradient(f, x, among, upstream) -> tuple[np.ndarray, np.ndarray]:
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = f(x, tf.constant(among))
        value = tf.reduce_sum(found * upstream)
    return found.numpy(), tape.gradient(value, x).numpy()


@given(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.floats(-1e4, 1e4, width=32), min_size=size, max_size=size),
            min_size=1,
            max_size=9,
        )
    ),
    st.sampled_from([1.0, 1e-3, 0.0]),
)
@settings(max_examples=40)
def test_ranks_are_those_of_the_definition(scores, scale: float) -> None:
    scores = np.float32(scores) * np.float32(scale)
    found = laplace_ranks(tf.constant(scores), tf.ones(scores.shape, tf.bool))
    expected = [by_pairs(row, 1.0, reference.LAPLACE.h) for row in scores.tolist()]
    np.testing.assert_allclose(found, expected, rtol=3e-7)


@pytest.mark.sample(6)
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("list_size", [0, 1, 2, 3, 64, 65, 300])
def test_gradients_are_those_of_all_pairs(list_size: int, spread: float) -> None:
    x = spread * RNG.normal(size=[4, list_size]).round(2)  # with ties
    among = RNG.random(x.shape) < 0.8
    upstream = RNG.normal(size=x.shape)
    found, gradient = with_gradient(laplace_ranks, x, among, upstream)
    expected, expected_gradient = with_gradient(quadratic, x, among, upstream)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["graph", "xla"])
@pytest.mark.parametrize("shape", [[None, None], [3, 100]])
def test_modes_agree(mode: str, shape: list[int | None]) -> None:
    x, among = RNG.normal(size=[3, 100]).astype("float32"), RNG.random([3, 100]) < 0.8
    upstream = RNG.normal(size=x.shape).astype("float32")

    @tf.function(
        input_signature=[tf.TensorSpec(shape), tf.TensorSpec(shape, tf.bool)],
        jit_compile=mode == "xla",
    )
    def compiled(x: tf.Tensor, among: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = laplace_ranks(x, among)
            value = tf.reduce_sum(found * upstream)
        return found, tape.gradient(value, x)

    expected = with_gradient(laplace_ranks, x, among, upstream)
    for found, eager in zip(compiled(x, among), expected, strict=True):
        np.testing.assert_allclose(found, eager, rtol=1e-5, atol=1e-5)


def test_ranks_of_a_long_list_sum_up_and_approach_the_order() -> None:
    x = RNG.normal(size=[2, 10_000]).astype("float32")
    among = tf.ones(x.shape, tf.bool)
    soft = laplace_ranks(tf.constant(x), among).numpy()
    np.testing.assert_allclose(soft.mean(axis=1), (x.shape[1] + 1) / 2, rtol=1e-6)
    hard = laplace_ranks(tf.constant(1e9 * x), among).numpy()
    np.testing.assert_allclose(hard, (-x).argsort(1).argsort(1) + 1, atol=0.6)  # ties count 1/2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_spoils_its_list_only_if_it_counts(value: float) -> None:
    x = tf.constant([[1.0, value, 0.0], [1.0, value, 0.0], [1.0, 2.0, 0.0]])
    among = tf.constant([[True, True, True], [True, False, True], [True, True, True]])
    found = laplace_ranks(x, among).numpy()
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(np.isnan(found[1]), [False, True, False])
    assert np.isfinite(found[2]).all()


def test_a_graph_takes_float64() -> None:
    x, among = tf.constant(RNG.normal(size=[2, 5])), tf.ones([2, 5], tf.bool)
    found, slope = with_gradient(tf.function(laplace_ranks), x, among, 1.0)
    expected, expected_slope = with_gradient(laplace_ranks, x, among, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(slope, expected_slope, atol=1e-14)
