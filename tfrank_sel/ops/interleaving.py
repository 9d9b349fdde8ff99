"""Optimal merge of two sorted sequences."""

import math

import tensorflow as tf


def best_interleaving(values: tf.Tensor, num_rows: tf.Tensor) -> tf.Tensor:
    """Finds the non-decreasing `j_1 <= j_2 <= ...` that maximises `sum_i values[i, j_i]`.

    Row `i` is the `i`-th item of one sequence, and `j_i` is the number of items of the other
    sequence ahead of it. The merged sequence is built one item at a time, in parallel for all
    numbers of rows placed so far: time and memory are the product of both lengths. Among equal
    values, `j_i` is the smallest.

    Args:
        values: `[batch_size, n, n + 1]`; `-inf` for forbidden places.
        num_rows: Number of rows that count, `[batch_size]`, int32: the first rows of each entry.

    Returns:
        The `j_i`, `[batch_size, n]`, int32; 0 for rows that do not count.
    """
    size = tf.shape(values)[1]
    counts = tf.range(size + 1)
    at_position = _by_position(values)

    def place(t: tf.Tensor, best: tf.Tensor, placed: tf.TensorArray) -> tuple[object, ...]:
        with_row = tf.pad(
            best[:, :-1] + at_position[:, :, t], [[0, 0], [1, 0]], constant_values=-math.inf
        )
        return t + 1, tf.maximum(best, with_row), placed.write(t, with_row > best)

    def trace(t: tf.Tensor, left: tf.Tensor, j: tf.Tensor) -> tuple[tf.Tensor, ...]:
        is_row = choices[t] & (counts == left[:, tf.newaxis])  # at most one: the last one left
        j += tf.where(is_row[:, 1:], t - counts[:-1], 0)
        return t - 1, left - tf.cast(tf.reduce_any(is_row, axis=-1), tf.int32), j

    none_placed = tf.zeros([tf.shape(values)[0], size + 1], values.dtype)
    none_placed = tf.where(counts == 0, none_placed, -math.inf)
    placed = tf.TensorArray(tf.bool, size=size, element_shape=none_placed.shape)
    state = (tf.constant(0), none_placed, placed)
    choices = tf.while_loop(lambda t, *_: t < size, place, state)[2].stack()
    state = (size - 1, num_rows, tf.zeros_like(values[:, :, 0], tf.int32))
    return tf.while_loop(lambda t, *_: t >= 0, trace, state)[2]


def _by_position(values: tf.Tensor) -> tf.Tensor:
    """Returns `values[i, t - i]`, the value of row `i` at position `t`, `[batch_size, n, n]`."""
    shape = tf.shape(values[:, :, 1:])
    rows = tf.range(shape[1])
    j = rows - rows[:, tf.newaxis]
    here = tf.gather(values, tf.broadcast_to(tf.maximum(j, 0), shape), axis=2, batch_dims=2)
    return tf.where(j >= 0, here, -math.inf)
