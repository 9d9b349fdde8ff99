"""Hard and soft selection of the best `k` items of a list.

Both provide the same functions for a loss: the `k`-th largest score, the sums of the largest
scores, a maximum and a hinge. At temperature zero the soft functions equal the hard ones.
"""

import math
from typing import NamedTuple, Protocol

import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.ops import symmetric


class Selection(Protocol):
    """Selects items by scores, `[batch_size, list_size]`, where -inf is an absent item."""

    @property
    def k(self) -> int:
        """The number of selected items."""

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        """The `k`-th largest score of all items but one, and the score of that item, in float64.

        The index of the item is `[batch_size]`, int32, or -1; or `None`, for no item in any list.
        The score is -inf for a list of fewer than `k` other items.
        """

    def best_means(self, x: Tensor) -> Tensor:
        """The sums of the `m` largest scores divided by `k`, `[batch_size, k + 1]`, in float64."""

    def maximum(self, x: Tensor) -> Tensor:
        """The largest number of each row."""

    def hinge(self, x: Tensor) -> Tensor:
        """`max(0, x)`."""


class HardSelection(NamedTuple):
    """The `k` items with the largest scores; among equal scores, the first items.

    Attributes:
        k: Number of items; positive.
    """

    k: int

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        x = tf.cast(x, tf.float64)
        if item is None:
            return _largest(x, self.k)[:, -1], tf.zeros_like(x[:, 0])
        column = tf.range(tf.shape(x)[1], dtype=item.dtype)
        here = column == item[:, tf.newaxis]
        score = tf.reduce_sum(tf.where(here, x, 0.0), axis=1)
        nothing = tf.constant(-math.inf, x.dtype)
        return _largest(tf.where(here, nothing, x), self.k)[:, -1], score

    def best_means(self, x: Tensor) -> Tensor:
        sums = tf.cumsum(_largest(tf.cast(x, tf.float64), self.k), axis=1)
        return tf.pad(sums, [[0, 0], [1, 0]]) / self.k

    def maximum(self, x: Tensor) -> Tensor:
        return tf.reduce_max(x, axis=-1)

    def hinge(self, x: Tensor) -> Tensor:
        return tf.nn.relu(x)


class SoftSelection(NamedTuple):
    """A sample of `k` items, each set of them with odds `exp(mean score / tau)`.

    Attributes:
        k: Number of items; positive.
        tau: Temperature, a positive scalar in float64.
    """

    k: int
    tau: Tensor

    def kth_largest_beside(self, x: Tensor, item: Tensor | None) -> tuple[Tensor, Tensor]:
        if item is None:
            item = tf.fill([tf.shape(x)[0]], -1)
        return symmetric.soft_kth_largest_beside(x, item, self.k, self.k * self.tau)

    def best_means(self, x: Tensor) -> Tensor:
        logs = symmetric.log_symmetric(tf.cast(x, tf.float64) / (self.k * self.tau), self.k)
        return self.tau * logs

    def maximum(self, x: Tensor) -> Tensor:
        tau = tf.cast(self.tau, x.dtype)
        top = tf.reduce_max(x, axis=-1, keepdims=True)
        top = tf.stop_gradient(tf.where(top > -math.inf, top, 0.0))  # it cancels
        total = tf.reduce_sum(tf.exp((x - top) / tau), axis=-1)
        some = total > 0.0
        logs = top[..., 0] + tau * tf.math.log(tf.where(some, total, 1.0))
        return tf.where(some, logs, -math.inf)

    def hinge(self, x: Tensor) -> Tensor:
        tau = tf.cast(self.tau, x.dtype)
        return tau * tf.math.softplus(x / tau)


def _largest(x: Tensor, k: int) -> Tensor:
    """The `k` largest scores, of which those beyond the list's size are -inf."""
    padded = tf.pad(x, [[0, 0], [0, k]], constant_values=tf.constant(-math.inf, x.dtype))
    return tf.math.top_k(padded, k).values
