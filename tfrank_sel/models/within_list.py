"""Features of an item relative to those of the other items of its list."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.serialization import Configurable, register

FARTHEST = 4.0
# longest lists for which items are counted one by one, in a loop that XLA compiles best
COUNTED, COUNTED_BY_XLA = 128, 1024


@register
class WithinList(Configurable, keras.layers.Layer):
    """Appends to each feature its value relative to the other items of its list.

    For each feature `x` of a list of `n` items:

    ```
    z_i = (x_i - mean(x)) / deviation(x), clipped to [-4, 4]
    r_i = (#{j: x_j < x_i} - #{j: x_j > x_i}) / (n - 1)
    ```

    so that the largest value of a list has `r` = 1 and the smallest -1. Both are 0 if all items are
    equal. A relevant item is often one that is better than the rest of its list; a scorer of single
    items cannot detect this. Time grows with `n log n`, and memory with `n`.

    Args:
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: features of shape `[batch_size, list_size, num_features]`, and a mask
    `[batch_size, list_size]`, True for an item; padding is ignored.

    Outputs: `[batch_size, list_size, 3 * num_features]`, float32: `x`, `z` and `r`; 0 at padding.

    Example:
        >>> features = tf.constant([[[1.0], [3.0], [0.0]]])
        >>> mask = tf.constant([[True, True, False]])
        >>> WithinList()(features, mask).numpy().tolist()
        [[[1.0, -1.0, -1.0], [3.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]
    """

    def __init__(self, name: str = "within_list", **kwargs: Any) -> None:
        super().__init__(name=name, autocast=False, **kwargs)

    def call(self, features: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the features and their values relative to the list."""
        is_item = mask[..., tf.newaxis]
        size = tf.reduce_sum(tf.cast(is_item, tf.float64), axis=1, keepdims=True)
        x = tf.where(is_item, tf.cast(features, tf.float32), 0.0)
        ranks = _centred_ranks(x, is_item, tf.cast(size, tf.float32))
        # a sum in float32 depends on the amount of padding, a sum in float64 does not
        exact = tf.cast(x, tf.float64)
        gaps = tf.where(is_item, exact - _mean(exact, size), tf.zeros_like(exact))
        deviation = tf.sqrt(_mean(gaps**2, size))
        # rounding of the mean would leave differences between equal values
        is_spread = deviation > 1e-6 * tf.reduce_max(tf.abs(exact), axis=1, keepdims=True)
        deviation = tf.where(is_spread, deviation, tf.ones_like(deviation))
        z = tf.cast(tf.where(is_spread, gaps / deviation, tf.zeros_like(gaps)), tf.float32)
        return tf.concat([x, tf.clip_by_value(z, -FARTHEST, FARTHEST), ranks], axis=-1)

    def compute_output_shape(
        self, features_shape: Any, mask_shape: Any = None
    ) -> tuple[int | None, ...]:
        """Returns the shape of the output: three times the features."""
        return (*features_shape[:-1], 3 * features_shape[-1])


def _mean(values: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.reduce_sum(values, axis=1, keepdims=True), size)


def _centred_ranks(x: tf.Tensor, is_item: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The number of items below less the number above, as a share of the other items."""
    # padding sorts above every item, so that it can be subtracted again
    x = tf.stop_gradient(tf.where(is_item, x, x.dtype.max))
    count = tf.shape(x)[1]
    longest = COUNTED_BY_XLA if stack.is_compiled_by_xla() else COUNTED
    total = tf.cond(count <= longest, lambda: _counted(x, count), lambda: _sorted(x, count))
    total += tf.cast(count, x.dtype) - size
    return tf.where(is_item, tf.math.divide_no_nan(total, size - 1.0), 0.0)


def _counted(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The number of items below less the number above, counted item by item."""

    def add(j: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return j + 1, total + tf.sign(x - x[:, j, tf.newaxis])

    return tf.while_loop(lambda j, total: j < count, add, (0, tf.zeros_like(x)))[1]


def _sorted(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The same numbers by sorting, from the first and last place of each group of equal values."""
    rows = tf.transpose(x, [0, 2, 1])
    order = tf.argsort(rows, axis=-1)
    ordered = tf.gather(rows, order, batch_dims=2)
    begins = tf.concat(
        [tf.ones_like(ordered[..., :1], tf.bool), ordered[..., 1:] > ordered[..., :-1]], axis=-1
    )
    place = tf.broadcast_to(tf.range(count), tf.shape(order))
    group = tf.cumsum(tf.cast(tf.reshape(begins, [-1]), tf.int32)) - 1
    first, last = (
        tf.gather(segment(tf.reshape(place, [-1]), group, tf.size(group)), group)
        for segment in (tf.math.unsorted_segment_min, tf.math.unsorted_segment_max)
    )
    row = tf.range(tf.size(group)) // tf.maximum(count, 1) * count
    origin = row + tf.reshape(order, [-1])
    total = tf.scatter_nd(origin[:, tf.newaxis], first + last + 1 - count, [tf.size(group)])
    return tf.transpose(tf.cast(tf.reshape(total, tf.shape(rows)), x.dtype), [0, 2, 1])
