"""Sorting, ranks, gains and discounts of masked lists.

Scores, labels and masks are `[batch_size, list_size]`. Ranks are 1-based. Masked items always sort
last, and ties keep the order of the list, in eager mode, in a graph and under XLA alike. A score
of NaN ranks like -inf, so that the order is the same everywhere.
"""

import tensorflow as tf

from tfrank_sel.serialization import register


def sort_by(
    scores: tf.Tensor, *tensors: tf.Tensor, mask: tf.Tensor, k: int | tf.Tensor | None = None
) -> list[tf.Tensor]:
    """Sorts `tensors` by descending `scores` and keeps the first `k` items, or all if `None`."""
    order = _order(scores, mask, k)
    return [tf.gather(x, order, batch_dims=1, axis=1) for x in tensors]


def ranks(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes the rank of each item in its list, in the dtype of `scores`."""
    return tf.cast(tf.argsort(_order(scores, mask, None), axis=-1) + 1, scores.dtype)


def positions(x: tf.Tensor) -> tf.Tensor:
    """Returns the ranks 1, 2, ... of the columns of `x`, `[list_size]`, in its dtype."""
    return tf.cast(tf.range(1, tf.shape(x)[-1] + 1), x.dtype)


def relevant_weights(labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the weight of each relevant item, one of positive label, and 0 for any other."""
    return tf.where(mask & (labels > 0.0), weights, 0.0)


def mean_weight(labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Averages the weights of each list, an item counting by its label; 0 if all labels are 0."""
    labels = tf.where(mask, labels, 0.0)
    weighted = tf.reduce_sum(tf.where(mask, weights * labels, 0.0), axis=-1)
    return tf.math.divide_no_nan(weighted, tf.reduce_sum(labels, axis=-1))


def check_cutoff(k: int | None) -> None:
    """Raises a `ValueError` unless `k` is `None` or a positive number of ranks."""
    if k is not None and k < 1:
        raise ValueError(f"`k` must be positive or None. Received: k={k}")


@register
def exponential_gain(labels: tf.Tensor) -> tf.Tensor:
    """Computes `2**y - 1`."""
    return tf.pow(tf.constant(2.0, labels.dtype), labels) - 1.0


@register
def linear_gain(labels: tf.Tensor) -> tf.Tensor:
    """Computes `y`."""
    return labels


@register
def inverse_discount(ranks: tf.Tensor) -> tf.Tensor:
    """Computes `1 / r`."""
    return 1.0 / ranks


@register
def log2_discount(ranks: tf.Tensor) -> tf.Tensor:
    """Computes `1 / log2(1 + r)`."""
    return tf.math.log(tf.constant(2.0, ranks.dtype)) / tf.math.log1p(ranks)


def _order(scores: tf.Tensor, mask: tf.Tensor, k: int | tf.Tensor | None) -> tf.Tensor:
    lowest = tf.constant(scores.dtype.min, scores.dtype)
    # NaN fails the comparison and -inf is lifted to the lowest number: only padding is below it.
    key = tf.where(scores > lowest, scores, lowest)
    key = tf.where(mask, key, tf.constant(float("-inf"), scores.dtype))
    list_size = tf.shape(scores)[1]
    # top_k is stable, and takes time for k items only
    return tf.math.top_k(key, k=list_size if k is None else tf.minimum(k, list_size)).indices
