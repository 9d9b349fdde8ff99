"""Treatment of items with equal scores in metrics.

Pass one of these values to a metric as `ties`.
"""

import abc
import dataclasses
from collections.abc import Callable

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import Frozen, register


class Ties(Frozen, abc.ABC):
    """An order of items with equal scores, and the quantities at each rank under it.

    It is a value: two objects with the same parameters are equal. Its parameters are saved.
    """

    @abc.abstractmethod
    def arrange(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Returns the indices of all items, `[batch_size, list_size]`, in rank order."""

    def depth(self, k: int | None) -> int | None:
        """Returns the number of ranks to sort for a cut-off `k`; all if `None`."""
        return k

    def order(self, scores: Tensor, mask: Tensor, depth: int | None) -> Tensor:
        """Returns the indices of the items of the first ranks, best first."""
        first = self.arrange(scores, mask)
        scores, mask = (xp.gather(x, first, batch_dims=1) for x in (scores, mask))
        return xp.gather(first, ranking.order(scores, mask, depth), batch_dims=1)

    def at_ranks(self, x: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        """Returns the expected value of `x` at each of the first `k` ranks, or at all if `None`."""
        return xp.gather(x, order[:, :k], batch_dims=1)

    def first_at(self, weights: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        """Returns the expected weight at each rank, where only the first above 0 counts."""
        at_rank = self.at_ranks(weights, scores, order, k)
        ranks = ranking.positions(at_rank)
        first = xp.reduce_min(
            xp.where(at_rank > 0.0, ranks, xp.limits(ranks.dtype).max), -1, keepdims=True
        )
        return xp.where(ranks == first, at_rank, xp.zeros_like(at_rank))

    def so_far(self, relevant: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        """Returns the expected number of relevant items down to each rank that holds one."""
        return xp.cumsum(self.at_ranks(relevant, scores, order, k), axis=-1)


@register
class InOrder(Ties):
    """Items with equal scores keep the order of the list.

    Example:
        >>> mrr = metrics.MRR(ties=metrics.ties.InOrder())
        >>> float(mrr([[0.0, 1.0, 1.0, 0.0]], [[2.0, 2.0, 2.0, 2.0]]))
        0.5
    """

    def arrange(self, scores: Tensor, mask: Tensor) -> Tensor:
        return xp.broadcast_to(xp.range(xp.shape(scores)[1]), xp.shape(scores))

    def order(self, scores: Tensor, mask: Tensor, depth: int | None) -> Tensor:
        return ranking.order(scores, mask, depth)


IN_ORDER = InOrder()


@register
class Reversed(Ties):
    """Items with equal scores rank in reverse order of the list, as in trec_eval.

    trec_eval compares scores in float32 and ranks the greater document identifier first: sort lists
    by ascending identifier.

    Example:
        >>> mrr = metrics.MRR(ties=metrics.ties.Reversed())
        >>> round(float(mrr([[0.0, 1.0, 0.0, 0.0]], [[2.0, 2.0, 2.0, 2.0]])), 4)  # is the third
        0.3333
    """

    def arrange(self, scores: Tensor, mask: Tensor) -> Tensor:
        return xp.broadcast_to(xp.range(xp.shape(scores)[1])[::-1], xp.shape(scores))


REVERSED = Reversed()


@register
class Shuffled(Ties):
    """Items with equal scores rank in a random order, the same at each evaluation.

    The order depends only on the seed and on the scores of the list, not on its padding or on the
    other lists of the batch.

    Args:
        seed: Another seed gives another order.

    Example:
        >>> y_true, y_pred = [[0.0, 1.0, 0.0, 0.0]], [[2.0, 2.0, 2.0, 2.0]]
        >>> shuffles = [metrics.MRR(ties=metrics.ties.Shuffled(seed)) for seed in range(8)]
        >>> len({float(mrr(y_true, y_pred)) for mrr in shuffles}) > 1
        True
    """

    seed: int = 0

    def arrange(self, scores: Tensor, mask: Tensor) -> Tensor:
        bits = xp.bitcast(xp.cast(scores, xp.float32), xp.int32)
        # a sum, whatever the order of the items; padding adds 0, which is what 0 is scrambled to
        of_list = xp.reduce_sum(_scramble(xp.where(mask, bits, 0)), axis=-1, keepdims=True)
        # Positions are counted without padding, so that padding changes no rank.
        index = xp.cumsum(xp.cast(mask, xp.int32), axis=-1)
        drawn = _scramble(_scramble(of_list + self.seed) + index)
        # floats hold 24 bits exactly; items tied in these bits keep the order of the list
        return ranking.order(xp.cast(drawn // 256, xp.float32), mask)


SHUFFLED = Shuffled()


@register
class Averaged(Ties):
    """The expected value over all orders of the items with equal scores, in closed form.

    Example:
        >>> mrr = metrics.MRR(ties=metrics.ties.Averaged())
        >>> float(mrr([[0.0, 1.0]], [[2.0, 2.0]]))  # the mean of 1 and 1 / 2
        0.75

    Reference:
        [McSherry and Najork, Computing Information Retrieval Performance Measures Efficiently in
        the Presence of Tied Scores, 2008](https://doi.org/10.1007/978-3-540-78646-7_38).
    """

    def arrange(self, scores: Tensor, mask: Tensor) -> Tensor:
        return IN_ORDER.arrange(scores, mask)

    def depth(self, k: int | None) -> None:
        """Sorts all, because the items tied at rank `k` count."""

    def order(self, scores: Tensor, mask: Tensor, depth: int | None) -> Tensor:
        return ranking.order(scores, mask, depth)

    def at_ranks(self, x: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        x = xp.gather(x, order, batch_dims=1)
        block = _TieBlock.of(xp.gather(scores, order, batch_dims=1))
        return xp.divide_no_nan(block.total(x), block.total(xp.ones_like(x)))[:, :k]

    def first_at(self, weights: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        block = _TieBlock.of(xp.gather(scores, order, batch_dims=1))
        weights = xp.gather(weights, order, batch_dims=1)
        relevant = block.total(xp.cast(weights > 0.0, weights.dtype))
        left = block.total(xp.ones_like(weights)) - block.offset(weights.dtype)
        # the probability that a rank holds a relevant item if none of its block came before
        # above 1 only at ranks that are not reached, behind all places without a relevant item
        hazard = xp.minimum(xp.divide_no_nan(relevant, left), 1.0)
        reached = xp.cumprod(1.0 - hazard, axis=-1, exclusive=True)
        weight = xp.divide_no_nan(block.total(weights), relevant)
        return (reached * hazard * weight)[:, :k]

    def so_far(self, relevant: Tensor, scores: Tensor, order: Tensor, k: int | None) -> Tensor:
        block = _TieBlock.of(xp.gather(scores, order, batch_dims=1))
        relevant = xp.gather(relevant, order, batch_dims=1)
        hits, size = block.total(relevant), block.total(xp.ones_like(relevant))
        before = xp.cumsum(relevant, axis=-1, exclusive=True)
        before = xp.gather(before, block.start, batch_dims=1)
        # with a relevant item here, each other place of the block holds one with this probability
        share = xp.divide_no_nan(hits - 1.0, size - 1.0)
        return (before + 1.0 + block.offset(relevant.dtype) * share)[:, :k]


AVERAGED = Averaged()


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The items of each list at their ranks, up to a cut-off.

    An item with score -inf is not retrieved: it has no rank, but counts among the relevant items of
    its list.

    Args:
        ties: Order of items with equal scores.
        scores: Score of each item, `[batch_size, list_size]`.
        mask: Which items are valid.
        order: Indices of the items, best first, as `ties` ranks those retrieved.
        k: The cut-off; none if `None`.
        deepest: The greatest cut-off of the sort in this call, if `k` is a cut-off.
    """

    ties: Ties
    scores: Tensor
    mask: Tensor
    order: Tensor
    k: int | None
    deepest: int | None

    def best(self, x: Tensor) -> Tensor:
        """Returns the greatest of `x` of the valid items, `[batch_size, ranks]`, in order."""
        [x] = ranking.sort_by(x, x, mask=self.mask, k=self.k and self.deepest)
        return x[:, : self.k]

    def at(self, x: Tensor) -> Tensor:
        """Returns the expected value of `x` at each rank, `[batch_size, ranks]`; 0 for no item."""
        return self.ties.at_ranks(*self._sort_inputs(x))

    def gather_rows(self, x: Tensor) -> Tensor:
        """Returns the row of `x`, `[batch_size, list_size, n]`, at each rank; 0 for no item."""
        held = retrieved_mask(self.scores, self.mask)[:, :, xp.newaxis]
        x = xp.where(held, x, xp.zeros_like(x))
        return xp.gather(x, self.order[:, : self.k], batch_dims=1)

    def first(self, weights: Tensor) -> Tensor:
        """Returns the expected weight at each rank, where only the first above 0 counts."""
        return self.ties.first_at(*self._sort_inputs(weights))

    def so_far(self, relevant: Tensor) -> Tensor:
        """Returns the expected number of relevant items down to each rank that holds one."""
        return self.ties.so_far(*self._sort_inputs(relevant))

    def counts(self) -> Tensor:
        """Counts the items retrieved for each list, `[batch_size]`."""
        held = retrieved_mask(self.scores, self.mask)
        return xp.reduce_sum(xp.cast(held, self.scores.dtype), axis=-1)

    def depths(self, clip: bool) -> Tensor:
        """Counts the ranks of each list that are used, `[batch_size]`: up to the cut-off, if any.

        Args:
            clip: Whether the ranks of a shorter list end with its items.
        """
        counts = self.counts()
        if self.k is None:
            return counts
        k = xp.constant(self.k, counts.dtype)
        return xp.minimum(counts, k) if clip else xp.broadcast_to(k, xp.shape(counts))

    def _sort_inputs(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int | None]:
        held = retrieved_mask(self.scores, self.mask)
        x = xp.cast(x, self.scores.dtype)
        # NaN is equal to no score.
        nowhere = xp.constant(float("nan"), self.scores.dtype)
        return (
            xp.where(held, x, xp.zeros_like(x)),
            xp.where(held, self.scores, nowhere),
            self.order,
            self.k,
        )


def retrieved_mask(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns a mask of the items with a rank: the valid ones, except those with score -inf."""
    return mask & (scores != float("-inf"))


@dataclasses.dataclass(frozen=True)
class _TieBlock:
    """The blocks of equal scores of sorted lists: for each rank, the number of its block."""

    number: Tensor

    @classmethod
    def of(cls, scores: Tensor) -> "_TieBlock":
        """Finds the blocks; NaN, which ranks last, equals no other score."""
        # cut to the size, since padding gives a list without slots one
        begins = xp.pad(scores[:, 1:] != scores[:, :-1], [[0, 0], [1, 0]])
        return cls(xp.cumsum(xp.cast(begins[:, : xp.shape(scores)[1]], xp.int32), axis=1))

    @property
    def start(self) -> Tensor:
        """The index of the first rank of the block of each rank."""
        return self._of_block(xp.unsorted_segment_min, self._ranks())

    def total(self, x: Tensor) -> Tensor:
        """Sums `x` over the block of each rank."""
        return self._of_block(xp.unsorted_segment_sum, x)

    def offset(self, dtype: xp.DType) -> Tensor:
        """Counts the ranks from the start of its block to each rank."""
        return xp.cast(self._ranks() - self.start, dtype)

    def _ranks(self) -> Tensor:
        return xp.broadcast_to(xp.range(xp.shape(self.number)[1]), xp.shape(self.number))

    def _of_block(self, reduce: Callable[..., Tensor], x: Tensor) -> Tensor:
        rows, columns = xp.unstack(xp.shape(x))
        # one call for all lists: none has more blocks than columns
        ids = self.number + columns * xp.range(rows)[:, xp.newaxis]
        reduced = reduce(x, ids, rows * columns)
        return xp.gather(xp.reshape(reduced, xp.shape(x)), self.number, batch_dims=1)


def _scramble(x: Tensor) -> Tensor:
    """Mixes the bits of integers, so that neighbours draw numbers far apart."""
    for shift, factor in ((16, 0x7FEB352D), (15, -0x7B935975)):
        bits = xp.bitcast(x, xp.uint32)
        x = xp.bitcast(xp.bitwise_xor(bits, xp.right_shift(bits, shift)), xp.int32)
        x = x * factor
    return x
