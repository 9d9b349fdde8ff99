"""Normalisation of the sum of a list's terms, which are its pairs or items.

Each function takes the sum and the number of the terms of each list, `[batch_size]`, and the list
size with its padding, and returns the loss of each list.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrank_sel.ops import masking
from tfrank_sel.serialization import register

Normalizer = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@register
def mean_over_terms(total: tf.Tensor, terms: tf.Tensor, list_size: tf.Tensor) -> tf.Tensor:
    """Divides by the number of pairs or items, so that lists of any length count equally."""
    return tf.math.divide_no_nan(total, terms)


@register
def sum_over_terms(total: tf.Tensor, terms: tf.Tensor, list_size: tf.Tensor) -> tf.Tensor:
    """Returns the sum: for terms that are parts of one number, such as an NDCG."""
    return total


@register
def mean_over_slots(total: tf.Tensor, terms: tf.Tensor, list_size: tf.Tensor) -> tf.Tensor:
    """Divides by the list size, padding included, as tensorflow-ranking does.

    The mean over a batch then equals that of `tfr.keras.losses`. It depends on the padding.
    """
    return tf.math.divide_no_nan(total, tf.cast(list_size, total.dtype))


class Normalized:
    """Mixin of the losses with a `normalizer`."""

    normalizer: Any

    @property
    def padding(self) -> float | None:
        """As in `Listwise`; a normalizer that divides by the list size counts padding."""
        return 0.0 if self.normalizer in (None, mean_over_terms, sum_over_terms) else None


def of_items(normalizer: Normalizer, values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sums the values of the valid items of each list, and normalises the sums."""
    items = tf.reduce_sum(tf.cast(mask, values.dtype), axis=-1)
    return normalizer(masking.masked_sum(values, mask), items, tf.shape(values)[1])
