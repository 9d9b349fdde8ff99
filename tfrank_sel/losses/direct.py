"""Direct loss minimisation: the gradient of a metric by loss-augmented inference."""

import math
from typing import NamedTuple

from tfrank_sel import numerics as xp
from tfrank_sel.errors import refusal
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class DirectAPLoss(ListwiseLoss):
    """Direct loss minimisation for the average precision.

    For each list of labels `y` in `y_true`, whose relevant items `P` have labels above 0 and whose
    other items are `N`, and of scores `s` in `y_pred`:

    ```
    F(r)  = sum_{i in P, j in N} w_i * (s_i - s_j) * (1 if r has i ahead of j else -1) / (|P| * |N|)
    AP(r) = sum_{i in P} w_i * (precision of r at i) / |P|
    loss  = (max_r (F(r) + epsilon * (AP* - AP(r))) - max_r F(r)) / epsilon
    ```

    where `AP*` is the best average precision. The gradient is the difference of the gradients of
    `F` at both rankings, divided by `epsilon`. As `epsilon` goes to 0, its mean over lists goes to
    the gradient of the mean `1 - AP`. With `epsilon > 0` (the positive update, away from a worse
    ranking) the loss is at least `1 - AP`, with `epsilon < 0` (the negative update, towards a
    better ranking) at most. It is 0 for a list that has only relevant items or no relevant item.

    A dynamic programme finds the exact rankings, in time and memory quadratic in the list size.

    Args:
        epsilon: Weight of the metric against the scores; not 0.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `epsilon` is 0.

    Inputs: as in `ListwiseLoss`. The weight of a relevant item multiplies its terms; other weights
    are ignored.

    Example:
        >>> loss = losses.DirectAPLoss(epsilon=2.0)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 2.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # both rankings are wrong: 1 - AP
        0.5

    Reference:
        [Song et al., Training Deep Neural Networks via Direct Loss Minimization, 2016](
        https://arxiv.org/abs/1511.06411).
    """

    ignores_level = True

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        if not self.epsilon:
            raise refusal("`epsilon` must not be 0", epsilon=self.epsilon)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Compares the best ranking for `F + epsilon * (AP* - AP)` with the best for `F`."""
        lists = split(labels, scores, mask, weights)
        w, ahead = lists.weights, negatives_ahead(lists, self.epsilon)
        i, j = ranking.positions(w), xp.cast(ahead, w.dtype)
        metric = xp.reduce_sum(w * j / (i + j), axis=-1)
        difference = _differences(lists)
        # a pair with the same order in both rankings cancels before it is added to others
        direct = xp.where(i <= j[:, :, xp.newaxis], -xp.ones_like(difference), 1.0)
        change = xp.reduce_sum((direct - xp.sign(difference)) * difference, axis=-1)
        change = xp.divide_no_nan(xp.reduce_sum(w * change, axis=-1), lists.num_negatives)
        return xp.divide_no_nan(metric + change / self.epsilon, lists.num_positives)


class SplitLists(NamedTuple):
    """The relevant items of lists and the others, each in descending order of their scores.

    Attributes:
        positives: Scores of the relevant items, `[batch_size, list_size]`; 0 behind the last.
        weights: Their weights; 0 behind the last.
        num_positives: How many there are, `[batch_size]`.
        negatives: Scores of the other items, `[batch_size, list_size]`; 0 behind the last.
        num_negatives: How many there are, `[batch_size]`.
    """

    positives: Tensor
    weights: Tensor
    num_positives: Tensor
    negatives: Tensor
    num_negatives: Tensor


def split(labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> SplitLists:
    """Splits the valid items of each list into relevant items (label above 0) and the others."""
    relevant = mask & (labels > 0.0)
    other = mask & ~relevant
    positives, weights = ranking.sort_by(
        scores, xp.where(relevant, scores, 0.0), xp.where(relevant, weights, 0.0), mask=relevant
    )
    [negatives] = ranking.sort_by(scores, xp.where(other, scores, 0.0), mask=other)
    counts = (xp.reduce_sum(xp.cast(x, scores.dtype), axis=-1) for x in (relevant, other))
    return SplitLists(positives, weights, next(counts), negatives, next(counts))


def negatives_ahead(lists: SplitLists, epsilon: float) -> Tensor:
    """Ranks each list to maximise `F - epsilon * AP`.

    Args:
        lists: The items.
        epsilon: Weight of the average precision: 0 gives the ranking by scores.

    Returns:
        The number of negatives ahead of each positive, `[batch_size, list_size]`, int32.
    """
    size = xp.shape(lists.weights)[1]
    i, j = ranking.positions(lists.weights)[:, xp.newaxis], xp.range(size + 1)
    j = xp.cast(j, i.dtype)
    # F of a positive with j negatives ahead of it, less F with none
    lost = xp.pad(xp.cumsum(_differences(lists), axis=-1), [[0, 0], [0, 0], [1, 0]])
    num_positives, num_negatives = (
        x[:, xp.newaxis, xp.newaxis] for x in (lists.num_positives, lists.num_negatives)
    )
    scale = xp.maximum(num_negatives, 1.0)  # without negatives nothing is lost
    values = lists.weights[:, :, xp.newaxis] * (epsilon * j / (i + j) - 2.0 * lost / scale)
    allowed = (i <= num_positives) & (j <= num_negatives)
    values = xp.where(allowed, xp.stop_gradient(values), -math.inf)
    return best_interleaving(values, xp.cast(lists.num_positives, xp.int32))


def _differences(lists: SplitLists) -> Tensor:
    """Computes the score of each positive less that of each negative, 0 beyond the last."""
    positions = ranking.positions(lists.negatives)
    difference = lists.positives[:, :, xp.newaxis] - lists.negatives[:, xp.newaxis, :]
    is_pair = positions[:, xp.newaxis] <= lists.num_positives[:, xp.newaxis, xp.newaxis]
    is_pair = is_pair & (positions <= lists.num_negatives[:, xp.newaxis, xp.newaxis])
    return xp.where(is_pair, difference, 0.0)


def best_interleaving(values: Tensor, num_rows: Tensor) -> Tensor:
    """Finds the non-decreasing `j_1 <= j_2 <= ...` that maximises `sum_i values[i, j_i]`.

    Row `i` is the `i`-th item of one sequence, and `j_i` is the number of items of the other
    sequence ahead of it. The merged sequence is built one item at a time, in parallel for all
    numbers of rows placed so far: time and memory are the product of both lengths. Among equal
    values, `j_i` is the smallest.

    Args:
        values: `[batch_size, n, n + 1]`; `-inf` for forbidden positions.
        num_rows: Number of rows that count, `[batch_size]`, int32: the first rows of each entry.

    Returns:
        The `j_i`, `[batch_size, n]`, int32; 0 for rows that do not count.
    """
    size = xp.shape(values)[1]
    counts = xp.range(size + 1)
    at_position = _by_position(values)

    def place(t: Tensor, best: Tensor, placed: xp.TensorArray) -> tuple[object, ...]:
        with_row = xp.pad(
            best[:, :-1] + at_position[:, :, t], [[0, 0], [1, 0]], constant_values=-math.inf
        )
        return t + 1, xp.maximum(best, with_row), placed.write(t, with_row > best)

    def trace(t: Tensor, left: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        is_row = choices[t] & (counts == left[:, xp.newaxis])  # at most one: the last one left
        j = j + xp.where(is_row[:, 1:], t - counts[:-1], 0)
        return t - 1, left - xp.cast(xp.reduce_any(is_row, axis=-1), xp.int32), j

    none_placed = xp.zeros([xp.shape(values)[0], size + 1], values.dtype)
    none_placed = xp.where(counts == 0, none_placed, -math.inf)
    placed = xp.TensorArray(xp.bool_, size=xp.maximum(size, 1), element_shape=none_placed.shape)
    # so that there is one of known shape, also for lists of size 0
    state = (xp.constant(0), none_placed, placed.write(0, none_placed > 0.0))
    choices = xp.while_loop(lambda t, *_: t < size, place, state)[2].stack()
    state = (size - 1, num_rows, xp.zeros_like(values[:, :, 0], xp.int32))
    return xp.while_loop(lambda t, *_: t >= 0, trace, state)[2]


def _by_position(values: Tensor) -> Tensor:
    """Returns `values[i, t - i]`, the value of row `i` at position `t`, `[batch_size, n, n]`."""
    shape = xp.shape(values[:, :, 1:])
    rows = xp.range(shape[1])
    j = rows - rows[:, xp.newaxis]
    here = xp.gather(values, xp.broadcast_to(xp.maximum(j, 0), shape), axis=2, batch_dims=2)
    return xp.where(j >= 0, here, -math.inf)
