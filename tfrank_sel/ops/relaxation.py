"""Ranks made differentiable: the step of a comparison becomes a smooth one."""

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.ops import masking


def ranks(x: tf.Tensor, among: tf.Tensor, link: Link) -> tf.Tensor:
    """Computes `1/2 + sum_j link(x_j - x_i)`, the soft rank of each item.

    A link that rises from 0 to 1 counts the items that are ahead: half of each tie, and the item
    itself as a tie with itself.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        among: True for the items `j` to count.
        link: What compares two scores.

    Returns:
        The soft ranks, of the shape of `x`: from 1 on for the items that are counted themselves.
    """
    ahead = link(x[:, tf.newaxis, :] - x[:, :, tf.newaxis])
    counted = tf.broadcast_to(among[:, tf.newaxis, :], tf.shape(ahead))
    return 0.5 + masking.masked_sum(ahead, counted)
