"""Sorting: padding last, ties in order, and the same everywhere."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel.ops import ranking

SCORES = tf.constant([[2.0, 5.0, 2.0, 9.0, -math.inf, math.nan]])
MASK = tf.constant([[True, True, True, False, True, True]])
IN_GRAPH = tf.function(ranking.order, reduce_retracing=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", ["eager", "graph", "xla"])
def test_the_two_zeros_are_equal(run: str, dtype: str) -> None:
    call = {
        "eager": ranking.order,
        "graph": tf.function(ranking.order),
        "xla": tf.function(ranking.order, jit_compile=True),
    }[run]
    scores = tf.constant([[-0.0, 0.0, -0.0, 1.0, -1.0]], dtype)
    np.testing.assert_array_equal(call(scores, scores == scores), [[3, 0, 1, 2, 4]])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            # TensorFlow takes a subnormal number for 0, NumPy does not
            st.floats(width=32, allow_subnormal=False)
            | st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_order_on_the_host_is_that_of_tensorflow(items: list[tuple[float, bool]]) -> None:
    scores, mask = (tf.constant([x]) for x in zip(*items, strict=True))
    for k in (None, 3):
        on_host = ranking.order(scores, mask, k)
        np.testing.assert_array_equal(on_host, IN_GRAPH(scores, mask, k))


@pytest.mark.parametrize("run", ["eager", "graph", "xla"])
def test_ties_keep_their_order_and_padding_is_last(run: str) -> None:
    call = {"eager": lambda f: f, "graph": tf.function}.get(
        run, lambda f: tf.function(f, jit_compile=True)
    )(lambda: (ranking.sort_by(SCORES, SCORES, mask=MASK)[0], ranking.ranks(SCORES, MASK)))
    ordered, ranks = call()
    np.testing.assert_array_equal(ordered[0], [5.0, 2.0, 2.0, -math.inf, math.nan, 9.0])
    np.testing.assert_array_equal(ranks[0], [2.0, 1.0, 3.0, 6.0, 4.0, 5.0])


def test_the_first_k_are_those_of_the_whole_order() -> None:
    [top] = ranking.sort_by(SCORES, SCORES, mask=MASK, k=2)
    np.testing.assert_array_equal(top, [[5.0, 2.0]])
    [beyond] = ranking.sort_by(SCORES, SCORES, mask=MASK, k=99)
    assert beyond.shape == [1, 6]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([-1e38, -1.0, 0.0, 0.0, 1.0, math.inf]), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_ranks_equal_a_stable_sort(items: list[tuple[float, bool]]) -> None:
    scores, mask = (np.array(x) for x in zip(*items, strict=True))
    order = sorted(range(len(items)), key=lambda i: (not mask[i], -scores[i] if mask[i] else 0.0))
    expected = np.empty(len(items))
    expected[order] = np.arange(1, len(items) + 1)
    ranks = ranking.ranks(tf.constant([scores], tf.float32), tf.constant([mask]))
    np.testing.assert_array_equal(ranks[0], expected)


def test_ranks_take_one_sort() -> None:
    hlo = tf.function(ranking.ranks, jit_compile=True).experimental_get_compiler_ir(SCORES, MASK)
    assert hlo(stage="hlo").count(" sort(") == 1


def test_gains_and_discounts() -> None:
    np.testing.assert_allclose(ranking.exponential_gain(tf.constant([0.0, 1.0, 3.0])), [0, 1, 7])
    np.testing.assert_allclose(ranking.linear_gain(tf.constant([0.0, 2.5])), [0.0, 2.5])
    np.testing.assert_allclose(
        ranking.log2_discount(tf.constant([1.0, 3.0, 7.0])), [1, 1 / 2, 1 / 3], rtol=1e-6
    )
