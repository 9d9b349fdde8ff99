"""Base of the pairwise losses: a sum over the pairs of a list."""

import abc
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.lambdas import LambdaWeight
from tfrank_sel.losses.normalization import Normalized, Normalizer, mean_over_terms
from tfrank_sel.ops import pairs, ranking
from tfrank_sel.ops.pairs import Items


class PairwiseLoss(Normalized, ListwiseLoss):
    """A loss of the pairs of items of each list.

    A subclass implements `surrogate`, the loss of one pair. For each list of labels `y` in `y_true`
    and scores `s` in `y_pred`:

    ```
    loss = normalizer of sum_{y_i > y_j} w_i * lambda_ij * surrogate((s_i - s_j) / temperature)
    ```

    A pair has the weight of its preferred item. Memory does not grow with the number of pairs, so
    the loss is also exact for lists of tens of thousands of items.

    Args:
        lambda_weight: Weighs each pair, such as `lambdas.NDCGLambdaWeight()`; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: Normalisation of the sum: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these. If `None`, the default of the
            lambda weight: the sum for weights that are parts of a DCG, else the mean over pairs.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.
        TypeError: If `lambda_weight` is not a `lambdas.LambdaWeight`.
    """

    lambda_weight: LambdaWeight | None = None
    temperature: Positive = 1.0
    normalizer: Normalizer | None = None

    # only pairs of different labels count, with the larger label first
    ordered: ClassVar[bool] = True

    @property
    def largest_label(self) -> float:
        weight = self.lambda_weight
        return math.inf if weight is None else weight.largest_label(self.dtype)

    @abc.abstractmethod
    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes the loss of pairs.

        Args:
            x: The score of the first item less that of the second, over the temperature.
            y: The label of the first item less that of the second, above 0 if `ordered`.
        """

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Adds up the losses of the pairs, and normalises the sum."""
        items = self._items(labels, scores / self.temperature, mask, weights)
        total, terms = pairs.sums_over_pairs(self._pair, items)
        return self._normalizer(total, terms, tf.shape(scores)[1])

    def curvature(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the second derivative of `per_list` in each score, `[batch_size, list_size]`.

        Lambda weights and ranks count as constants, as in the gradient.
        """
        x = tf.where(mask, scores, tf.zeros_like(scores)) / self.temperature
        items = self._items(labels, x, mask, weights)
        by_rank, terms = pairs.curvatures(self._pair, items)
        if self.lambda_weight is not None:
            ranks = tf.cast(ranking.ranks(x, mask), tf.int32)
            by_rank = tf.gather(by_rank, ranks - 1, batch_dims=1)
        total = tf.ones_like(terms)
        with tf.GradientTape() as tape:
            tape.watch(total)
            value = self._normalizer(total, terms, tf.shape(x)[1])
        factor = tape.gradient(value, total) / self.temperature**2
        return factor[:, tf.newaxis] * by_rank

    @property
    def _normalizer(self) -> Normalizer:
        if self.normalizer is not None:
            return self.normalizer
        return mean_over_terms if self.lambda_weight is None else self.lambda_weight.normalizer

    def _items(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> Items:
        """The items in the order of their scores, so that all lists share the same ranks."""
        scores = tf.where(mask, scores, tf.zeros_like(scores))
        ranks = ranking.positions(scores)[tf.newaxis]
        if self.lambda_weight is None:
            return Items(scores, labels, mask, weights, ranks, labels)
        gains = self.lambda_weight.gains(labels, mask)
        fields = (scores, labels, mask, weights, gains)
        scores, labels, mask, weights, gains = ranking.sort_by(scores, *fields, mask=mask)
        return Items(scores, labels, mask, weights, ranks, gains)

    def _pair(self, first: Items, second: Items, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the loss and the count of a pair, in both directions if both count."""
        y = first.labels - second.labels
        if self.ordered:
            values = tf.where(y > 0.0, first.weights, second.weights)
            values *= self.surrogate(tf.sign(y) * x, tf.abs(y))
        else:
            values = (first.weights + second.weights) * self.surrogate(x, y)
        differ = first.labels != second.labels if self.ordered else first.ranks != second.ranks
        is_pair = first.mask & second.mask & differ
        if self.lambda_weight is not None:
            weights = tf.stop_gradient(self.lambda_weight.pairs(first, second))
            values *= tf.where(is_pair, weights, tf.zeros_like(weights))
        count = tf.cast(is_pair, x.dtype) * (1.0 if self.ordered else 2.0)
        return tf.where(is_pair, values, tf.zeros_like(values)), count
