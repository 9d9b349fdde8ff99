"""The order of labels: in every mode, and where a label is -0."""

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel.ops import label_order


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_minus_zero_is_zero(dtype: tf.DType) -> None:
    labels = tf.constant([[-0.0, 1.0, 0.0, -0.0, 2.0]], dtype)
    scores, mask = tf.range(5, dtype=dtype)[tf.newaxis], tf.constant([[True] * 4 + [False]])
    for sort in (
        label_order.sort,
        tf.function(label_order.sort, autograph=False),
        tf.function(label_order.sort, autograph=False, jit_compile=True),
    ):
        labels_found, scores_found, mask_found = sort(labels, scores, mask)
        np.testing.assert_array_equal(labels_found, [[1.0, 0.0, 0.0, 0.0, 0.0]])
        np.testing.assert_array_equal(scores_found[:, :4], [[1.0, 0.0, 2.0, 3.0]])
        np.testing.assert_array_equal(mask_found, [[True] * 4 + [False]])


def test_pairs_of_different_labels_are_counted() -> None:
    labels = np.random.default_rng(0).integers(-1, 3, [5, 40])
    labels[0], labels[1] = -1, 2
    mask = labels >= 0
    is_pair = (labels[:, :, None] > labels[:, None]) & mask[:, :, None] & mask[:, None]
    found = label_order.num_pairs(tf.constant(np.abs(labels), tf.float32), tf.constant(mask))
    np.testing.assert_array_equal(found, is_pair.sum(axis=(1, 2)))
    empty = label_order.num_pairs(tf.zeros([2, 0]), tf.zeros([2, 0], tf.bool))
    np.testing.assert_array_equal(empty, [0.0, 0.0])
