"""Measures of the items at their ranks: gains, precision, first relevant item, user models."""

from collections.abc import Callable, Sequence
from typing import Any

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Cutoff, OpenShare, Positive
from tfrank_sel.metrics.base import BinaryMetric, RankedMetric
from tfrank_sel.metrics.ties import Ranks, retrieved_mask
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


class _GainMetric(RankedMetric):
    """A measure of the gains of the items."""

    k: Cutoff = None
    gain: Callable[[Tensor], Tensor] = ranking.exponential_gain
    discount: Callable[[Tensor], Tensor] = ranking.log2_discount


@register
class DCG(_GainMetric):
    """Discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s) = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    ```

    With the gain `2**y - 1`, labels must be at most 100, or 996 in float64.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `ties`, `above`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> dcg = metrics.DCG(k=2)
        >>> y_true = tf.constant([[0.0, 2.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(dcg(y_true, y_pred)), 4)  # 3 + 1 / log2(3)
        3.6309

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418).
    """

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the gain of each item."""
        return xp.where(mask, self.gain(labels), 0.0)

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Adds up the discounted gains."""
        gains = ranks.at(weights * self.worth(labels, mask))
        return xp.reduce_sum(gains * self.discount(ranking.positions(gains)), axis=-1)


@register
class NDCG(_GainMetric):
    """Normalized discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s)  = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    NDCG@k(y, s) = DCG@k(y, s) / DCG@k(y, w * gain(y))
    ```

    The value lies in [0, 1]. A list without a relevant item has NDCG 0, as in TREC evaluation.
    The value is finite for all finite labels, such as counts or seconds: gains are scaled by
    the largest of the list. But `2**y - 1` gives all the weight to the largest labels: pass
    `ranking.linear_gain` for labels that are amounts.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `ties`, `above`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> ndcg = metrics.NDCG(k=2)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> round(float(ndcg(y_true, y_pred)), 4)  # (1 / log2(3)) / (1 + 1 / log2(3))
        0.3869

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418).
    """

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the gain of each item, relative to those of its list."""
        return ranking.relative_gains(self.gain, labels, mask)

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the DCG of the scores by that of the gains."""
        discounted = self._discounted_gains(labels, mask, weights, ranks)
        dcg, ideal = (xp.reduce_sum(x, axis=-1) for x in discounted)
        return xp.divide_no_nan(dcg, ideal)

    def curve(self, y_true: Any, y_pred: Any, cutoffs: Sequence[int]) -> Tensor:
        """Computes NDCG of each list at several cut-offs in place of `k`, with one sort.

        Returns:
            The values, `[batch_size, cut-offs]`.
        """
        batch = self.batch_of(y_true, y_pred, None, self.dtype)
        mask = self.counted_items(batch)
        order = self.ties.order(batch.scores, retrieved_mask(batch.scores, mask), None)
        ranks = Ranks(self.ties, batch.scores, mask, order, None, None)
        ends = xp.minimum(cutoffs, xp.shape(batch.scores)[1])
        dcg, ideal = (
            xp.gather(xp.pad(xp.cumsum(x, axis=-1), [[0, 0], [1, 0]]), ends, axis=1)
            for x in self._discounted_gains(batch.labels, mask, batch.weights, ranks)
        )
        return xp.divide_no_nan(dcg, ideal)

    def _discounted_gains(
        self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks
    ) -> tuple[Tensor, Tensor]:
        """The discounted gain at each rank by the scores, and by the gains."""
        gains = weights * self.worth(labels, mask)
        by_score, best = ranks.at(gains), ranks.best(gains)
        discounts = self.discount(ranking.positions(by_score))
        return by_score * discounts, best * discounts


@register
class PWA(RankedMetric):
    """Position-weighted average of the labels of the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    PWA@k(y, s) = sum_i [rank_i(s) <= k] * w_i * y_i / rank_i(s) / sum_{r <= min(k, n)} 1 / r
    ```

    where `n` is the number of items of the list.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `ties`, `above`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> pwa = metrics.PWA(k=2)
        >>> y_true = tf.constant([[0.0, 3.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(pwa(y_true, y_pred)), 4)  # (3 / 1 + 1 / 2) / (1 / 1 + 1 / 2)
        2.3333

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418), with the discount `1 / r`, over its sum.
    """

    k: Cutoff = 5

    weighs_items = False

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the label of each item."""
        return xp.where(mask, labels, 0.0)

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Averages the labels, weighted by the reciprocals of their ranks."""
        at_rank = ranks.at(weights * self.worth(labels, mask))
        positions = ranking.positions(at_rank)
        held = positions <= ranks.counts()[:, xp.newaxis]
        total = xp.reduce_sum(xp.where(held, 1.0 / positions, 0.0), axis=-1)
        return xp.divide_no_nan(xp.reduce_sum(at_rank / positions, axis=-1), total)


@register
class Precision(BinaryMetric):
    """Share of relevant items among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    P@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / k
    ```

    A list of fewer than `k` items is also divided by `k`, as in TREC evaluation, unless `clip_k`.

    Args:
        k: Number of top ranks that count; if `None`, the number of items of each list.
        clip_k: Whether to divide a list of fewer than `k` items by their number, as
            tensorflow-ranking does.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> precision = metrics.Precision(k=2)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(precision(y_true, y_pred))
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None
    clip_k: bool = False

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the weight of the relevant items in the top ranks by the number of ranks."""
        hits = xp.reduce_sum(ranks.at(weights * self.worth(labels, mask)), axis=-1)
        return xp.divide_no_nan(hits, ranks.depths(self.clip_k))


@register
class Recall(BinaryMetric):
    """Share of the relevant items that are among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    R@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / sum_i [y_i > 0] * w_i
    ```

    It is 0 for a list without a relevant item, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> recall = metrics.Recall(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> float(recall(y_true, y_pred))
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the weight of the relevant items in the top ranks by that of all."""
        relevant = weights * self.worth(labels, mask)
        hits, total = (xp.reduce_sum(x, axis=-1) for x in (ranks.at(relevant), relevant))
        return xp.divide_no_nan(hits, total)


@register
class MAP(BinaryMetric):
    """Mean average precision: the mean of the precision at the ranks of the relevant items.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    P_i        = sum_j [y_j > 0] * [rank_j(s) <= rank_i(s)] / rank_i(s)
    AP@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i * P_i / sum_i [y_i > 0] * w_i
    ```

    All relevant items count in the denominator, also those below rank `k`; items of weight 0 are
    not relevant. A list without a relevant item is 0, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> average_precision = metrics.MAP()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 3.0, 1.0, 9.0]])
        >>> round(float(average_precision(y_true, y_pred)), 4)  # (1 / 1 + 2 / 3) / 2
        0.8333

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Averages the precisions at the ranks of the relevant items."""
        relevant = weights * self.worth(labels, mask)
        hits = ranks.so_far(relevant > 0.0)
        precisions = ranks.at(relevant) * hits / ranking.positions(hits)
        total = xp.reduce_sum(precisions, axis=-1)
        return xp.divide_no_nan(total, xp.reduce_sum(relevant, axis=-1))


@register
class RPrecision(BinaryMetric):
    """R-precision: the precision at `R`, the number of relevant items.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    R           = sum_i [y_i > 0]
    Rprec(y, s) = sum_i [y_i > 0] * [rank_i(s) <= R] * w_i / R
    ```

    It is 0 for a list without a relevant item, as in TREC evaluation.

    Args:
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Example:
        >>> r_precision = metrics.RPrecision()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 3.0, 1.0, 9.0]])
        >>> float(r_precision(y_true, y_pred))  # of the first two, one is relevant
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the weight of the relevant items in the top ranks by their number in the list."""
        relevant = self.worth(labels, mask)
        count = xp.reduce_sum(relevant, axis=-1)
        hits = ranks.at(weights * relevant)
        on_top = ranking.positions(hits) <= count[:, xp.newaxis]
        return xp.divide_no_nan(xp.reduce_sum(xp.where(on_top, hits, 0.0), axis=-1), count)


@register
class MRR(BinaryMetric):
    """Mean reciprocal rank of the first relevant item.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    RR@k(y, s) = w_i / rank_i(s) if rank_i(s) <= k else 0
    ```

    where `i` is the relevant item of the smallest rank: the first with `w_i * y_i > 0`. The value
    of an unweighted list lies in [0, 1], and is 0 if no item is relevant, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> mrr = metrics.MRR()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(mrr(y_true, y_pred))
        0.5

    Reference:
        [Voorhees, The TREC-8 Question Answering Track Report, 1999](
        https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf).
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the weight of the first relevant item by its rank."""
        first = ranks.first(weights * self.worth(labels, mask))
        return xp.reduce_sum(first / ranking.positions(first), axis=-1)


@register
class Hits(BinaryMetric):
    """Success at `k`: whether a relevant item is among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    Hits@k(y, s) = w_i if rank_i(s) <= k else 0
    ```

    where `i` is the relevant item of the smallest rank: the first with `w_i * y_i > 0`.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> hits = metrics.Hits(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, -1.0], [0.0, 1.0, 1.0]])
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0], [1.0, 3.0, 2.0]])
        >>> float(hits(y_true, y_pred))
        0.5

    Reference:
        [Craswell and Hawking, Overview of the TREC-2004 Web Track, 2004](
        https://trec.nist.gov/pubs/trec13/papers/WEB.OVERVIEW.pdf), success at `n`.
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Returns the weight of the first relevant item if it is among the top `k`, else 0."""
        first = ranks.first(weights * self.worth(labels, mask))
        return xp.reduce_sum(first, axis=-1)


@register
class ERR(RankedMetric):
    """Expected reciprocal rank of the item that satisfies a user who reads down the list.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with the items in rank order
    `1, 2, ...`:

    ```
    R_r         = w_r * (2**y_r - 1) / 2**max_label
    ERR@k(y, s) = sum_{r <= k} 1 / r * R_r * prod_{q < r} (1 - R_q)
    ```

    Args:
        k: Number of top ranks that count; all of them if `None`.
        max_label: Greatest possible label; greater labels count as this.
        **kwargs: `ties`, `above`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` or `max_label` is not positive, or if ties are to be averaged.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list. Weights of items
    should be at most 1: `R_r` is a probability, and clipped to 1.

    Example:
        >>> err = metrics.ERR(max_label=1.0)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> round(float(err(y_true, y_pred)), 4)  # 1/2 * 1/2 + 1/3 * 1/2 * 1/2
        0.3333

    Reference:
        [Chapelle et al., Expected Reciprocal Rank for Graded Relevance, 2009](
        https://doi.org/10.1145/1645953.1646033).
    """

    k: Cutoff = None
    max_label: Positive = 4.0

    averages_ties = False

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the probability that each item satisfies the user."""
        largest = xp.constant(self.max_label, labels.dtype)
        base = xp.constant(2.0, labels.dtype)
        gains = xp.pow(base, xp.minimum(labels, largest) - largest) - xp.pow(base, -largest)
        return xp.where(mask, gains, 0.0)

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Sums the reciprocal ranks, weighted by the probability to stop there."""
        stops = xp.clip_by_value(ranks.at(weights * self.worth(labels, mask)), 0.0, 1.0)
        reaches = xp.cumprod(1.0 - stops, axis=-1, exclusive=True)
        return xp.reduce_sum(reaches * stops / ranking.positions(stops), axis=-1)


@register
class RBP(BinaryMetric):
    """Rank-biased precision, for a user who continues to the next rank with a fixed probability.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    RBP@k(y, s) = (1 - p) * sum_i [y_i > 0] * [rank_i(s) <= k] * w_i * p**(rank_i(s) - 1)
    ```

    Args:
        persistence: The probability `p` to continue, in (0, 1).
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, or `persistence` not in (0, 1).

    Example:
        >>> rbp = metrics.RBP(persistence=0.5)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(rbp(y_true, y_pred))  # 0.5 * (0.5 + 0.25)
        0.375

    Reference:
        [Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, 2008](
        https://doi.org/10.1145/1416950.1416952).
    """

    persistence: OpenShare = 0.8
    k: Cutoff = None

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Sums the probabilities to reach the relevant items."""
        hits = ranks.at(weights * self.worth(labels, mask))
        reaches = xp.pow(xp.constant(self.persistence, hits.dtype), ranking.positions(hits) - 1.0)
        return (1.0 - self.persistence) * xp.reduce_sum(hits * reaches, axis=-1)
