"""Segmented rows: one list for each segment of a row."""

from typing import Any

import tensorflow as tf


def split_segments(segments: Any, *tensors: Any) -> list[tf.RaggedTensor]:
    """Splits rows that contain several lists into one list per segment.

    Every loss and metric takes the result, so that one row of a batch can contain the items of
    several queries. It is differentiable, and runs in eager mode and in graphs. XLA cannot compile
    it, because the number of lists is not static.

    Args:
        segments: The segment of each item, integers `[batch_size, row_size]`: items of one row and
            one segment make a list, in any positions of the row. Below 0 is padding.
        *tensors: Tensors to split, such as labels, scores and weights of items: each
            `[batch_size, row_size]` or `[batch_size, row_size, ...]`.

    Returns:
        The tensors, `[num_lists, (list_size)]` or `[num_lists, (list_size), ...]`; lists are
        ordered by row and segment, and their items as in the row.

    Example:
        >>> from tfrank_sel import data
        >>> segments = tf.constant([[0, 0, 1, 1, 1, -1]])  # the last item is padding
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]])
        >>> y_pred = tf.constant([[0.5, 0.1, 0.3, 0.2, 0.9, 0.0]])
        >>> y_true, y_pred = data.split_segments(segments, y_true, y_pred)
        >>> y_pred.to_list()[0]
        [0.5, 0.10000000149011612]
        >>> round(float(metrics.MRR()(y_true, y_pred)), 4)  # 1 and 1/3
        0.6667
    """
    segments = tf.convert_to_tensor(segments)
    order = tf.argsort(segments, axis=-1, stable=True)
    ids = tf.gather(segments, order, batch_dims=1)
    starts = tf.pad(ids[:, 1:] != ids[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    valid = ids >= 0
    lists = tf.cumsum(tf.cast(tf.boolean_mask(starts, valid), tf.int64)) - 1
    return [
        tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(tf.gather(x, order, batch_dims=1), valid), lists
        )
        for x in tensors
    ]
