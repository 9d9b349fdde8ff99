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
