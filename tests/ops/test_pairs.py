"""Sums over pairs: any size, in any number of blocks."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel.ops import layout, pairs
from tfrank_sel.ops.pairs import Items

RNG = np.random.default_rng(0)


def items_of(size: int) -> Items:
    scores, labels = RNG.normal(size=[2, 3, size])
    ones = np.ones([3, size])
    ranks = np.arange(1.0, size + 1)[None]
    return Items(*map(tf.constant, (scores, labels, ones > 0.0, ones, ranks, labels)))


def bowl(first: Items, second: Items, x: tf.Tensor) -> pairs.Sums:
    """A symmetric function that is no polynomial, and its height: 0 for an item with itself."""
    is_pair = first.mask & second.mask
    height = tf.abs(first.labels - second.labels) + tf.abs(first.ranks - second.ranks)
    height = tf.where(is_pair, height, tf.zeros_like(height))
    return tf.cos(x), height


PAIRINGS = {
    "all": (pairs.all_pairs, lambda i, j: i != j),
    "neighbours": (pairs.neighbours, lambda i, j: abs(i - j) == 1),
    "top": (pairs.with_top(4), lambda i, j: (i != j) & (np.minimum(i, j) <= 4)),
}


@pytest.fixture(params=PAIRINGS)
def pairing(request: pytest.FixtureRequest) -> str:
    return request.param


def expected(pairing: str, items: Items) -> tuple[np.ndarray, np.ndarray]:
    s, y, r = (np.array(x) for x in (items.scores, items.labels, items.ranks))
    height = np.abs(y[:, :, None] - y[:, None]) + np.abs(r[:, :, None] - r[:, None])
    height *= PAIRINGS[pairing][1](r[:, :, None], r[:, None])
    x = s[:, :, None] - s[:, None]
    return 0.5 * np.sum(height * np.cos(x), axis=(1, 2)), -np.sum(height * np.sin(x), axis=2)


def sums_and_gradient(pairing: str, items: Items) -> tuple[tf.Tensor, tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(items.scores)
        costs = pairs.sums_over_pairs(bowl, items, PAIRINGS[pairing][0])
    return costs, tape.gradient(costs, items.scores)


@pytest.mark.sample(9)
@pytest.mark.parametrize("size", [0, 1, 5, 63, 64, 65, 67, 130])
@pytest.mark.parametrize("at_a_time", [2**24, 20_000, 1])
def test_each_pair_counts_once(
    size: int, at_a_time: int, pairing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "terms", lambda: at_a_time)
    items = items_of(size)
    for actual, wanted in zip(
        sums_and_gradient(pairing, items), expected(pairing, items), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_lists_of_unknown_size_are_summed_alike(
    pairing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "terms", lambda: 1000)
    shapes = Items(*(tf.TensorSpec([None, None], x.dtype) for x in items_of(1)))
    in_graph, under_xla = (
        tf.function(
            functools.partial(sums_and_gradient, pairing),
            input_signature=[shapes],
            jit_compile=jit,
            autograph=False,
        )
        for jit in (False, True)
    )
    for size in (3, 90):
        items = items_of(size)
        for function in (in_graph, under_xla):
            for actual, wanted in zip(function(items), expected(pairing, items), strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12)


def test_second_derivatives_are_exact_in_blocks(
    pairing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "terms", lambda: 1000)
    items, direction = items_of(70), RNG.normal(size=[3, 70])
    with tf.GradientTape() as tape:
        tape.watch(items.scores)
        _, gradient = sums_and_gradient(pairing, items)
        along = tf.reduce_sum(gradient * direction)
    step = 1e-6
    up, down = (
        expected(pairing, items._replace(scores=items.scores + sign * step * direction))[1]
        for sign in (1.0, -1.0)
    )
    slope = (up - down) / (2 * step)
    np.testing.assert_allclose(tape.gradient(along, items.scores), slope, rtol=1e-6, atol=1e-5)
