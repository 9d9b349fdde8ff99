"""Bounds of ranking metrics by the softmax cross-entropy."""

import functools
from typing import Any, NamedTuple

from tfrank_sel import losses, metrics, numerics as xp
from tfrank_sel.listwise import Listwise
from tfrank_sel.losses.targets import Shares
from tfrank_sel.metrics.base import relevances
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking


class SoftmaxBounds(NamedTuple):
    """Metrics of each list and their bound by the softmax cross-entropy, all `[batch_size]`.

    Attributes:
        loss: The softmax cross-entropy with the gains `2**y - 1` as targets.
        bound: `exp(-loss)`; at most each metric. It is 1 for a list without a relevant item.
        rr: The reciprocal rank.
        ap: The average precision; `bound` is a bound of it only for binary relevance.
        ndcg: The NDCG.
    """

    loss: Tensor
    bound: Tensor
    rr: Tensor
    ap: Tensor
    ndcg: Tensor


def softmax_bounds(
    y_true: Any, y_pred: Any, temperature: float = 1.0, dtype: str = "float32"
) -> SoftmaxBounds:
    """Computes `exp(-loss)` and the metrics of which it is a lower bound.

    ```
    exp(sum_i t_i * log softmax(s / temperature)_i) <= RR, NDCG, and AP of binary relevances
    ```

    where `t` are the shares of the gains `2**y - 1`. An item of rank `r`, last among its ties, has
    at most the probability `1 / r`, because at least `r` items have a score at least as large. The
    metrics break ties in favour of the less relevant item. By Jensen's inequality,
    `exp(-mean loss)` is a lower bound of the means.

    Args:
        y_true: Relevances, as in `ListwiseLoss`.
        y_pred: Scores.
        temperature: Divides the scores in the loss; the bound holds for any.
        dtype: The dtype of the computation.

    Returns:
        Loss, bound and metrics of each list. For a list without a relevant item, the metrics are 0
        and the bound does not hold.

    Example:
        >>> y_true = tf.constant([[0.0, 1.0, 0.0]])
        >>> values = softmax_bounds(y_true, tf.constant([[2.0, 2.0, -99.0]]))
        >>> round(float(values.bound[0]), 4), round(float(values.rr[0]), 4)  # it can be met
        (0.5, 0.5)

    Reference:
        [Bruch et al., An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with
        Binary Relevance, 2019](https://dl.acm.org/doi/10.1145/3341981.3344221).
    """
    batch = relevances(y_true, y_pred, None, dtype)
    # ties keep the order of the list, so the least relevant items go first
    labels, scores, mask = ranking.sort_by(
        -batch.labels, batch.labels, batch.scores, batch.mask, mask=batch.mask
    )
    args = (labels, scores, mask, xp.cast(mask, dtype))
    loss, *measures = (formula.per_list(*args) for formula in _formulas(temperature, dtype))
    return SoftmaxBounds(loss, xp.exp(-loss), *measures)


@functools.cache
def _formulas(temperature: float, dtype: str) -> tuple[Listwise, ...]:
    loss = losses.SoftmaxLoss(temperature, Shares(ranking.exponential_gain), dtype=dtype)
    return loss, *(make(dtype=dtype) for make in (metrics.MRR, metrics.MAP, metrics.NDCG))
