"""Differentiable ranks and orders: smooth steps and smooth permutations."""

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.links.elementary import Laplace
from tfrank_sel.ops import masking, soft_ranks


def check_link(link: Link) -> None:
    """Raises a `ValueError` unless the values of `link` are between 0 and 1."""
    if not 0.0 <= link.image[0] <= link.image[1] <= 1.0:
        raise ValueError(f"`link` must have its values in [0, 1]. Received: link={link}")


def ranks(x: tf.Tensor, among: tf.Tensor, link: Link) -> tf.Tensor:
    """Computes `1/2 + sum_j link(x_j - x_i)`, the soft rank of each item.

    A link that rises from 0 to 1 counts the items that are ahead. A tie counts 1/2, also that of
    the item with itself.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        among: True for the items `j` to count.
        link: Link that compares two scores, with `link(-d) = 1 - link(d)`. `Laplace` takes
            `O(n log n)` time and memory, any other `O(n**2)`.

    Returns:
        The soft ranks, of the shape of `x`; at least 1 for the counted items.
    """
    if isinstance(link, Laplace) and link.shift == 0.0:
        return soft_ranks.laplace_ranks(link.scale * x, among)

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # the slope is even, so a pair changes both ranks by the same amount
            counts, slope = tf.cast(among, x.dtype), link.slope(_differences(x))
            moved = counts[:, :, tf.newaxis] * upstream[:, tf.newaxis, :]
            moved -= upstream[:, :, tf.newaxis] * counts[:, tf.newaxis, :]
            return tf.reduce_sum(moved * slope, axis=-1)

        ahead = link(_differences(x))
        counted = tf.broadcast_to(among[:, tf.newaxis, :], tf.shape(ahead))
        return 0.5 + masking.masked_sum(ahead, counted), gradient

    return f(x)


def neural_sort(x: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the logits of a soft permutation, `(n + 1 - 2 * r) * x_j - sum_k abs(x_j - x_k)`.

    For each rank `r` up to the number `n` of valid items, the `r`-th largest `x_j` has the largest
    logit: the softmax over the items is the soft one-hot of that item.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        mask: True for the valid items.

    Returns:
        The logits, `[batch_size, list_size, list_size]`, of each rank and item, and a mask of that
        shape: True for the ranks up to `n` and valid items.
    """
    x, ranks = tf.where(mask, x, 0.0), tf.range(1, tf.shape(x)[1] + 1)
    size = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True)
    slope = tf.cast(size + 1 - 2 * ranks, x.dtype)
    logits = slope[:, :, tf.newaxis] * x[:, tf.newaxis, :]
    logits -= _distances(x, mask)[:, tf.newaxis, :]
    return logits, (ranks <= size)[:, :, tf.newaxis] & mask[:, tf.newaxis, :]


def _distances(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes `sum_k abs(x_j - x_k)` for each item; padding is 0."""
    pairs = mask[:, :, tf.newaxis] & mask[:, tf.newaxis, :]

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            moved = upstream[:, :, tf.newaxis] + upstream[:, tf.newaxis, :]
            return -masking.masked_sum(moved * tf.sign(_differences(x)), pairs)

        return masking.masked_sum(tf.abs(_differences(x)), pairs), gradient

    return f(x)


def _differences(x: tf.Tensor) -> tf.Tensor:
    """Computes `x_j - x_i` for each item `i` and item `j`."""
    return x[:, tf.newaxis, :] - x[:, :, tf.newaxis]
