"""Features of an item relative to those of the other items of its list."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.serialization import Configurable, register

FARTHEST = 4.0


@register
class WithinList(Configurable, keras.layers.Layer):
    """Appends to each feature where it stands among those of its list.

    For each feature `x` of a list of `n` items:

    ```
    z_i = (x_i - mean(x)) / deviation(x), clipped to [-4, 4]
    r_i = (#{j: x_j < x_i} - #{j: x_j > x_i}) / (n - 1)
    ```

    so that the largest of a list has `r` = 1 and the smallest -1. Both are 0 where all items are
    alike. What is relevant is often what is better than the rest of the list, which a scorer that
    sees each item alone cannot tell.

    Args:
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: features of shape `[batch_size, list_size, num_features]`, and a mask
    `[batch_size, list_size]`, True for an item: padding counts for nothing.

    Outputs: `[batch_size, list_size, 3 * num_features]`, float32: `x`, `z` and `r`; 0 at padding.

    Example:
        >>> features = tf.constant([[[1.0], [3.0], [0.0]]])
        >>> mask = tf.constant([[True, True, False]])
        >>> WithinList()(features, mask).numpy().tolist()
        [[[1.0, -1.0, -1.0], [3.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]
    """

    def __init__(self, name: str = "within_list", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, features: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the features, and each relative to its list."""
        x, is_item = tf.cast(features, tf.float32), mask[..., tf.newaxis]
        size = tf.reduce_sum(tf.cast(is_item, tf.float32), axis=1, keepdims=True)
        x = tf.where(is_item, x, 0.0)
        gaps = tf.where(is_item, x - _mean(x, size), 0.0)
        deviation = tf.sqrt(_mean(gaps**2, size))
        # rounding of the mean leaves gaps where there are none
        is_spread = deviation > 1e-6 * tf.reduce_max(tf.abs(x), axis=1, keepdims=True)
        z = tf.where(is_spread, gaps / tf.where(is_spread, deviation, 1.0), 0.0)
        z = tf.clip_by_value(z, -FARTHEST, FARTHEST)
        return tf.concat([x, z, _centred_ranks(x, is_item, size)], axis=-1)

    def compute_output_shape(
        self, features_shape: Any, mask_shape: Any = None
    ) -> tuple[int | None, ...]:
        """Returns the shape of the output: thrice the features."""
        return (*features_shape[:-1], 3 * features_shape[-1])


def _mean(values: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(values, axis=1, keepdims=True), size)


def _centred_ranks(x: tf.Tensor, is_item: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """How many items are below, less how many are above, as a share of the others.

    Counted item by item, which is faster than sorting up to some hundreds of items, and under XLA
    for any number.
    """
    # padding stands above every item, where it can be taken off again
    x = tf.stop_gradient(tf.where(is_item, x, x.dtype.max))
    count = tf.shape(x)[1]

    def add(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return j + 1, total + tf.sign(x - x[:, j, tf.newaxis])

    _, total = tf.while_loop(lambda j, total: j < count, add, (0, tf.zeros_like(x)))
    total += tf.cast(count, x.dtype) - size
    return tf.where(is_item, tf.math.divide_no_nan(total, size - 1.0), 0.0)
