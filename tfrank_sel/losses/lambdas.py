"""Lambda weights: the importance of each pair of items for a ranking metric."""

import abc
import math
from collections.abc import Callable

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count, Cutoff, Share
from tfrank_sel.losses.bases import Normalizer, mean_over_terms, sum_over_terms
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import pairs, ranking
from tfrank_sel.ops.pairs import Items
from tfrank_sel.serialization import Frozen, register

Function = Callable[[Tensor], Tensor]


class LambdaWeight(Frozen, abc.ABC):
    """The weight of each pair of items, from their labels and their current ranks.

    It is a value: two objects with the same parameters are equal. Its parameters are saved. No
    gradient flows through it. Ranks are by descending score; ties keep the order of the list.
    """

    @property
    def normalizer(self) -> Normalizer:
        """The normalizer of a loss with this weight, if none is passed to the loss."""
        return mean_over_terms

    @property
    def pairing(self) -> pairs.Pairing:
        """The pairs whose weight can differ from 0; no others are computed."""
        return pairs.all_pairs

    def gains(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Computes the gain of each item, `[batch_size, list_size]`: its label by default."""
        return labels

    def largest_label(self, dtype: str) -> float:
        """Returns the largest label with finite gains in a dtype."""
        return math.inf

    @abc.abstractmethod
    def pairs(self, first: Items, second: Items) -> Tensor:
        """Computes the weight of each pair, at least 0 and symmetric.

        Args:
            first: The items on one side, with `labels`, `scores`, `ranks`, `mask` and `gains`.
            second: Those on the other side, in shapes that broadcast with those of `first`.
        """


@register
class LabelDiffLambdaWeight(LambdaWeight):
    """`abs(y_i - y_j)`: the weight of a pair is the difference of its labels."""

    def pairs(self, first: Items, second: Items) -> Tensor:
        return xp.abs(first.labels - second.labels)


@register
class CallbackLambdaWeight(LambdaWeight):
    """A weight that a function computes.

    Args:
        function: Takes the items on both sides of pairs, each with `labels`, `scores`, `ranks` and
            `mask`, and returns the weights of the pairs, at least 0 and symmetric; for example
            `lambda i, j: tf.abs(1.0 / i.ranks - 1.0 / j.ranks)`. To be saved, it must be registered
            with Keras.
    """

    function: Callable[[Items, Items], Tensor]

    def pairs(self, first: Items, second: Items) -> Tensor:
        return self.function(first, second)


@register
class PrecisionLambdaWeight(LambdaWeight):
    """1 if swapping the two items changes the precision at `k`, else 0.

    Args:
        k: Number of top ranks that count; positive.
        threshold: Minimum label of a relevant item.

    Raises:
        ValueError: If `k` is not positive.
    """

    k: Count
    threshold: float = 1.0

    @property
    def pairing(self) -> pairs.Pairing:
        return pairs.with_top(self.k)

    def pairs(self, first: Items, second: Items) -> Tensor:
        relevant = [x.labels >= self.threshold for x in (first, second)]
        on_top = [x.ranks <= float(self.k) for x in (first, second)]
        changes = (relevant[0] ^ relevant[1]) & (on_top[0] ^ on_top[1])
        return xp.cast(changes, first.labels.dtype)


class GainLambdaWeight(LambdaWeight):
    """A weight of the form `abs(G_i - G_j) * d(r_i, r_j)`, of gains `G` and ranks `r`.

    The weights are parts of one metric, so a loss sums its pairs by default.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts `D`.
        normalized: Whether gains are divided by the ideal DCG of the list.

    Raises:
        ValueError: If `k` is not positive.
    """

    k: Cutoff = None
    gain: Function = ranking.exponential_gain
    discount: Function = ranking.log2_discount
    normalized: bool = True

    @property
    def normalizer(self) -> Normalizer:
        return sum_over_terms

    def largest_label(self, dtype: str) -> float:
        return math.inf if self.normalized else ranking.largest_label(self.gain, dtype)

    @abc.abstractmethod
    def discounts(self, first: Tensor, second: Tensor) -> Tensor:
        """Computes `d(r_i, r_j)` from the ranks on both sides."""

    def gains(self, labels: Tensor, mask: Tensor) -> Tensor:
        if not self.normalized:
            return xp.where(mask, self.gain(labels), 0.0)
        gains = ranking.relative_gains(self.gain, labels, mask)
        [best] = ranking.sort_by(gains, gains, mask=mask, k=self.k)
        ideal = xp.reduce_sum(best * self.discount(ranking.positions(best)), axis=-1)
        return xp.divide_no_nan(gains, ideal[:, xp.newaxis])

    def pairs(self, first: Items, second: Items) -> Tensor:
        return xp.abs(first.gains - second.gains) * self.discounts(first.ranks, second.ranks)

    def step(self, first: Tensor, second: Tensor) -> Tensor:
        """Computes `D(t) - D(t + 1)` of ranks that are `t` apart, and 0 for a rank with itself."""
        distance = xp.abs(first - second)
        t = xp.maximum(distance, 1.0)
        step = xp.abs(self.discount(t) - self.discount(t + 1.0))
        return xp.where(distance > 0.0, step, xp.zeros_like(step))

    def truncated_step(self, first: Tensor, second: Tensor) -> Tensor:
        """Computes `step`, divided by `1 - D(max(r_i, r_j))` for a pair not within the `k` best.

        In such a pair, at most one item is within the `k` best: see equation 18 of the reference of
        `NDCGLambdaWeightV2`.
        """
        if self.k is None:
            return self.step(first, second)
        lower = xp.maximum(first, second)
        beyond = lower > float(self.k)
        kept = 1.0 - self.discount(xp.where(beyond, lower, 2.0))
        return self.step(first, second) / xp.where(beyond, kept, xp.ones_like(kept))


class SwapLambdaWeight(GainLambdaWeight):
    """The change of a DCG when two items swap, by LambdaRank, LambdaLoss or a mix of both.

    ```
    d(r_i, r_j) = (1 - f) * (D(t) - D(t + 1)) + f * abs(D(r_i) - D(r_j))
    ```

    where `t = abs(r_i - r_j)` and `f` is the `smooth_fraction`. A pair without an item among the
    `k` best has weight 0, and `D` is 0 beyond `k` in the second term.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts `D`.
        normalized: Whether gains are divided by the ideal DCG of the list.
        smooth_fraction: Weight `f` of LambdaRank's term, from 0 to 1.

    Raises:
        ValueError: If `k` is not positive, or `smooth_fraction` not between 0 and 1.
    """

    smooth_fraction: Share = 0.0

    @property
    def pairing(self) -> pairs.Pairing:
        return pairs.with_top(self.k)

    def discounts(self, first: Tensor, second: Tensor) -> Tensor:
        f = self.smooth_fraction
        swap = xp.abs(
            self._cut_off(first, self.discount(first))
            - self._cut_off(second, self.discount(second))
        )
        return (1.0 - f) * self._cut_off(
            xp.minimum(first, second), self.step(first, second)
        ) + f * swap

    def items(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Computes `G_i * D(r_i)`, the weight of each item, `[batch_size, list_size]`."""
        discounts = self.discount(ranking.ranks(scores, mask))
        return xp.stop_gradient(self.gains(labels, mask) * discounts)

    def _cut_off(self, ranks: Tensor, x: Tensor) -> Tensor:
        return x if self.k is None else xp.where(ranks <= float(self.k), x, xp.zeros_like(x))


@register
class DCGLambdaWeight(SwapLambdaWeight):
    """A `SwapLambdaWeight` of the DCG with linear gains and the discount `1 / r`."""

    gain: Function = ranking.linear_gain
    discount: Function = ranking.inverse_discount
    normalized: bool = False


@register
class NDCGLambdaWeight(SwapLambdaWeight):
    """A `SwapLambdaWeight` of the NDCG.

    With `smooth_fraction=1` it is the weight of LambdaRank and LambdaMART.

    Reference:
        [Burges, From RankNet to LambdaRank to LambdaMART: An Overview, 2010](
        https://www.microsoft.com/en-us/research/publication/from-ranknet-to-lambdarank-to-lambdamart-an-overview/).
    """


@register
class NDCGLambdaWeightV2(GainLambdaWeight):
    """The weight of LambdaLoss: its `d(r_i, r_j)` is `truncated_step`.

    The sum over the pairs is an upper bound of the gap between the NDCG at `k` and its ideal, 1.

    Reference:
        [Wang et al., The LambdaLoss Framework for Ranking Metric Optimization, 2018](
        https://research.google/pubs/pub47258/).
    """

    def discounts(self, first: Tensor, second: Tensor) -> Tensor:
        return self.truncated_step(first, second)


@register
class YetiDCGLambdaWeight(GainLambdaWeight):
    """A weight for neighbours only: `truncated_step` if the ranks differ by 1, else 0.

    Reference:
        [Lyzhin et al., Which Tricks are Important for Learning to Rank?, 2022](
        https://arxiv.org/abs/2204.01500).
    """

    normalized: bool = False

    @property
    def pairing(self) -> pairs.Pairing:
        return pairs.neighbours

    def discounts(self, first: Tensor, second: Tensor) -> Tensor:
        step = self.truncated_step(first, second)
        return xp.where(xp.abs(first - second) == 1.0, step, xp.zeros_like(step))
