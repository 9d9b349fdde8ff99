"""The best merge of two sequences: that of all merges, and the first of equal ones."""

import itertools

import numpy as np
import tensorflow as tf

from tfrank_sel.losses.direct import best_interleaving


def test_the_merge_is_the_best_of_all() -> None:
    size = 4
    values = np.random.default_rng(0).normal(size=[20, size, size + 1])
    num_rows = np.arange(20) % (size + 1)
    found = best_interleaving(tf.constant(values), tf.constant(num_rows, tf.int32))
    for value, count, places in zip(values, num_rows, found.numpy(), strict=True):
        # the other sequence has the rest of the items
        merges = itertools.combinations_with_replacement(range(size - count + 1), count)
        best = max(merges, key=lambda j: sum(value[i, x] for i, x in enumerate(j)))
        np.testing.assert_array_equal(places, [*best, *[0] * (size - count)])


def test_of_equal_merges_it_is_the_first() -> None:
    found = best_interleaving(tf.zeros([1, 4, 5]), tf.constant([2]))
    np.testing.assert_array_equal(found, [[0, 0, 0, 0]])
