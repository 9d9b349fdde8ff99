"""Top-k cross-entropy over several k."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.topk.forms import mean_by_label
from tfrank_sel.ops import soft_topk
from tfrank_sel.serialization import register


@register
class TopKCrossEntropyLoss(ListwiseLoss):
    """Cross-entropy of the membership in the top `k`, for several `k` at once.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = -sum_i w_i * y_i * log(sum_k P_k * p_i(k)) / sum_i y_i
    ```

    where `p_i(k)` is the soft membership of item `i` in the top `k` of the list, with
    `sum_i p_i(k) = k` (`tfrank_sel.ops.soft_topk`), of scores divided by `temperature`. With `k`
    of 1 and 5, an item may be anywhere among the best five, and gains most in the first place. A
    loss of one `k` above 1 has no reason to prefer the first place. The loss is 0 for a list
    without a relevant item, and an item of a list of up to `k` items has `p_i(k)` = 1. An item with
    score `-inf` is excluded.

    Work is linear in the list size, some 10 to 20 passes for each `k`.

    Args:
        k: Numbers of top places, each positive.
        probabilities: Probability `P_k` of each `k`, positive, with sum 1; all equal if `None`.
        temperature: Divides the scores; positive. As it goes to 0, the memberships become 0 or 1.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If an argument is out of range, or `k` and `probabilities` differ in length.

    Example:
        >>> loss = losses.TopKCrossEntropyLoss(k=[1, 2])
        >>> y_true = tf.constant([[1.0, 0.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -log((1/3 + 2/3) / 2)
        0.6931

    Reference:
        [Petersen et al., Differentiable Top-k Classification Learning, 2022](
        https://arxiv.org/abs/2206.07290), with the memberships of [Struski et al., LapSum, 2025](
        https://arxiv.org/abs/2503.06242).
    """

    k: Sequence[int] = (1, 5)
    probabilities: Sequence[float] | None = None
    temperature: Positive = 1.0

    takes_minus_infinity = True

    def __post_init__(self) -> None:
        if not len(self.k) or min(self.k) < 1:
            raise ValueError(f"`k` must be one or several positive integers. Received: k={self.k}")
        if self.probabilities is not None and (
            len(self.probabilities) != len(self.k)
            or not min(self.probabilities) > 0.0
            or not math.isclose(math.fsum(self.probabilities), 1.0, rel_tol=1e-6)
        ):
            raise ValueError(
                f"`probabilities` must be {len(self.k)} positive numbers whose sum is 1, one for "
                f"each `k`. Received: probabilities={self.probabilities}, k={self.k}"
            )

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the losses of the relevant items of each list, weighted by their labels."""
        shares = self.probabilities or [1.0 / len(self.k)] * len(self.k)
        mask &= scores > -math.inf
        scores = tf.where(mask, scores, 0.0) / self.temperature
        logs = [
            math.log(share) + soft_topk.log_memberships(scores, k, mask)
            for k, share in zip(self.k, shares, strict=True)
        ]
        losses = -tf.reduce_logsumexp(tf.stack(logs), axis=0)
        return mean_by_label(weights * losses, labels, mask)
