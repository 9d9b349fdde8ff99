"""Measures of items that cover subtopics: coverage, and gains that shrink for what is covered."""

import math
from collections.abc import Callable
from typing import Any

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Cutoff, Share
from tfrank_sel.errors import refusal
from tfrank_sel.listwise import ListBatch, check_row_lengths
from tfrank_sel.metrics.base import BinaryMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


class DiversityMetric(BinaryMetric):
    """A measure of items that cover subtopics; a subclass implements `at_ranks`.

    Args:
        **kwargs: As in `BinaryMetric`.

    Inputs: as in `ListwiseMetric`, but `y_true` is `[batch_size, list_size, subtopics]`: the
    relevance of each item to each subtopic. A label below 0 (with `above`, of any sign) or NaN is
    padding; an item is padding if all its labels are.
    """

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, with labels of three axes."""
        if isinstance(y_true, xp.RaggedTensor):
            if isinstance(y_pred, xp.RaggedTensor):
                check_row_lengths(y_true, y_pred)
            y_true = xp.cast(y_true, dtype).to_tensor(float("nan"))
        labels = xp.cast(xp.convert_to_tensor(y_true), dtype)
        if not xp.static_shape(labels).is_compatible_with([None, None, None]):
            raise refusal(
                "`y_true` must have shape [batch_size, list_size, subtopics]",
                f"y_true.shape={labels.shape}",
            )
        labels = xp.ensure_shape(labels, [None, None, None])
        valid = labels >= self.min_label
        items = xp.where(xp.reduce_any(valid, axis=-1), xp.ones([], dtype), math.nan)
        items = xp.where(xp.reduce_any(valid & xp.is_inf(labels), axis=-1), math.inf, items)
        batch = super().batch_of(items, y_pred, sample_weight, dtype)
        valid = valid & batch.mask[:, :, xp.newaxis]
        return batch._replace(labels=self.labels_above(labels, valid))

    def counted_items(self, batch: ListBatch) -> Tensor:
        """Returns the valid items; also an item of weight 0 covers its subtopics."""
        return batch.mask

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns 1 for an item that is relevant to a subtopic and 0 for another."""
        return xp.reduce_max(self.covered_subtopics(labels, mask), axis=-1)

    def covered_subtopics(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns 1 for each subtopic that an item covers, `[batch_size, list_size, subtopics]`."""
        # an item covers none if there is no subtopic
        labels = xp.pad(labels, [[0, 0], [0, 0], [0, 1]])
        return super().worth(labels, mask[:, :, xp.newaxis])


@register
class PrecisionIA(DiversityMetric):
    """Intent-aware precision at `k`: the precision for a subtopic, averaged over subtopics.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `T` subtopics that any
    item of the list is relevant to:

    ```
    P-IA@k(y, s) = sum_t sum_i [y_it > 0] * [rank_i(s) <= k] * w_i / (T * k)
    ```

    It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count; if `None`, the number of items of each list.
        clip_k: Whether to divide a list of fewer than `k` items by their number.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> precision = metrics.PrecisionIA(k=1)
        >>> y_true = tf.constant([[[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> float(precision(y_true, y_pred))  # one of two subtopics
        0.5

    Reference:
        [Clarke et al., Overview of the TREC 2009 Web Track, 2009](
        https://trec.nist.gov/pubs/trec18/papers/WEB09.OVERVIEW.pdf).
    """

    k: Cutoff = None
    clip_k: bool = False

    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the number of subtopics that the top items cover by the maximum."""
        covered = self.covered_subtopics(labels, mask)
        hits = xp.reduce_sum(ranks.at(weights * xp.reduce_sum(covered, axis=-1)), axis=-1)
        return xp.divide_no_nan(hits, ranks.depths(self.clip_k) * _subtopics(covered))


@register
class SubtopicRecall(DiversityMetric):
    """Share of the subtopics that any of the top `k` items covers.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `T` subtopics that any
    item of the list is relevant to:

    ```
    S-recall@k(y, s) = sum_t max_i [y_it > 0] * [rank_i(s) <= k] * w_i / T
    ```

    It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, or ties are to be averaged.

    Example:
        >>> recall = metrics.SubtopicRecall(k=1)
        >>> y_true = tf.constant([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> float(recall(y_true, y_pred))
        0.5

    Reference:
        [Zhai et al., Beyond independent relevance, 2003](https://doi.org/10.1145/860435.860440).
    """

    k: Cutoff = None

    averages_ties = False
    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the number of subtopics covered by the top items by that of the whole list."""
        covered = weights[:, :, xp.newaxis] * self.covered_subtopics(labels, mask)
        # a row of zeros in front: no item covers no subtopic
        on_top = xp.pad(ranks.gather_rows(covered), [[0, 0], [1, 0], [0, 0]])
        hits = xp.reduce_sum(xp.reduce_max(on_top, axis=1), axis=-1)
        return xp.divide_no_nan(hits, _subtopics(self.covered_subtopics(labels, mask)))


def _subtopics(covered: Tensor) -> Tensor:
    """Counts the subtopics that at least one item of each list covers."""
    return xp.reduce_sum(xp.cast(xp.reduce_any(covered > 0.0, axis=1), covered.dtype), axis=-1)


class _AlphaMetric(DiversityMetric):
    """A measure whose gains shrink for subtopics that are already covered."""

    k: Cutoff = None
    alpha: Share = 0.5
    discount: Callable[[Tensor], Tensor] = ranking.log2_discount

    averages_ties = False

    def alpha_dcg(self, labels: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Adds up the discounted gains."""
        covered = ranks.gather_rows(labels)
        before = xp.cumsum(covered, axis=1, exclusive=True)
        left = xp.pow(xp.constant(1.0 - self.alpha, before.dtype), before)
        gains = ranks.at(weights) * xp.reduce_sum(covered * left, axis=-1)
        return xp.reduce_sum(gains * self.discount(ranking.positions(gains)), axis=-1)


@register
class AlphaDCG(_AlphaMetric):
    """Alpha-DCG at `k`: each further item on the same subtopic has a smaller gain.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    gain_i           = sum_t y_it * (1 - alpha)**(sum_j [rank_j(s) < rank_i(s)] * y_jt)
    alpha-DCG@k(y, s) = sum_i [rank_i(s) <= k] * w_i * gain_i * discount(rank_i(s))
    ```

    Args:
        k: Number of top ranks that count; all of them if `None`.
        alpha: Share of a subtopic's gain that is lost with each item that covers it, in [0, 1].
        discount: Maps 1-based ranks to discounts.
        **kwargs: `relevance_level`, the minimum label that `averaging` treats as relevant; `ties`,
            `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, `alpha` not in [0, 1], or ties are to be averaged.

    Example:
        >>> alpha_dcg = metrics.AlphaDCG()
        >>> y_true = tf.constant([[[1.0, 0.0], [1.0, 0.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> round(float(alpha_dcg(y_true, y_pred)), 4)  # 1 + 1/2 / log2(3)
        1.3155

    Reference:
        [Clarke et al., Novelty and Diversity in Information Retrieval Evaluation, 2008](
        https://doi.org/10.1145/1390334.1390446).
    """

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Adds up the discounted gains."""
        return self.alpha_dcg(labels, weights, ranks)


@register
class AlphaNDCG(_AlphaMetric):
    """Alpha-DCG at `k`, divided by that of a greedy ranking.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    alpha-nDCG@k(y, s) = alpha-DCG@k(y, s) / alpha-DCG@k(y, g)
    ```

    where `g` ranks greedily: the next item is the one with the largest gain given those before.
    (Finding the best ranking of all is NP-hard.) It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        alpha: Share of a subtopic's gain that is lost with each item that covers it, in [0, 1].
        discount: Maps 1-based ranks to discounts.
        **kwargs: As in `AlphaDCG`.

    Raises:
        ValueError: If `k` is not positive, `alpha` not in [0, 1], or ties are to be averaged.

    Example:
        >>> alpha_ndcg = metrics.AlphaNDCG(k=1)
        >>> y_true = tf.constant([[[1.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> float(alpha_ndcg(y_true, y_pred))
        0.5

    Reference:
        [Clarke et al., Novelty and Diversity in Information Retrieval Evaluation, 2008](
        https://doi.org/10.1145/1390334.1390446).
    """

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Divides the alpha-DCG of the scores by that of the greedy ranking."""
        weights = xp.where(mask, weights, 0.0)
        best = _greedy_gains(labels, weights, self.k, self.alpha)
        ideal = xp.reduce_sum(best * self.discount(ranking.positions(best)), axis=-1)
        dcg = self.alpha_dcg(labels, weights, ranks)
        return xp.divide_no_nan(dcg, ideal)


def _greedy_gains(labels: Tensor, weights: Tensor, k: int | None, alpha: float) -> Tensor:
    """Returns the gain at each rank of the greedy ranking."""
    size = xp.shape(labels)[1]
    steps = size if k is None else xp.minimum(k, size)
    positions = xp.cumsum(xp.ones_like(weights, xp.int32), axis=-1, exclusive=True)
    keep = xp.constant(1.0 - alpha, labels.dtype)

    def add(step: Tensor, gains: Tensor, left: Tensor, free: Tensor) -> tuple[Tensor, ...]:
        gain = weights * xp.reduce_sum(labels * left[:, xp.newaxis, :], axis=-1)
        of_free = xp.where(free, gain, xp.constant(-1.0, gain.dtype))
        most = xp.reduce_max(of_free, axis=-1, keepdims=True)
        first = xp.where(of_free == most, positions, xp.limits(xp.int32).max)
        chosen = positions == xp.reduce_min(first, axis=-1, keepdims=True)
        gains = xp.where(positions == step, most, gains)
        covered = xp.where(chosen[:, :, xp.newaxis], labels, xp.zeros_like(labels))
        left = left * xp.pow(keep, xp.reduce_sum(covered, axis=1))
        return step + 1, gains, left, free & ~chosen

    start = (
        xp.constant(0),
        xp.zeros_like(weights),
        xp.ones_like(xp.reduce_sum(labels, axis=1)),
        xp.ones_like(weights, xp.bool_),
    )
    return xp.while_loop(lambda step, *_: step < steps, add, start)[1]
