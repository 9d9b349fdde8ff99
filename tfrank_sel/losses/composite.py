"""Losses of composite links: the selective Softmax."""

import math
from typing import Any

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.losses.base import ListwiseLoss
from tfrank_sel.serialization import register


@register
class SelectiveSoftmaxLoss(ListwiseLoss):
    """Matching loss of a composite Softmax: a softmax that is sensitive where `q` says.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    H(s)   = gamma * log sum_k w_k * exp(Q(s_k) / gamma)
    h_k(s) = q(s_k) * p_k(s), p = softmax(Q(s) / gamma + log w)
    loss   = H(z) - H(s) - sum_k (z_k - s_k) * h_k(s)
           = gamma * KL(p(s) || p(z)) + sum_k p_k(s) * D_Q(z_k, s_k)
    ```

    where `q` is the scaling, `Q` its potential, and `D_Q` its divergence. It is at least 0, zero at
    `z = s`, has gradient `h(z) - h(s)`, and is convex wherever `Q` is. It ranks, as a softmax does,
    and it also matches the scores: the more so the larger `q` and the share `p_k` of an item.

    Args:
        scaling: The increasing function `q`. `Exp` is sensitive to high scores, `Sinh` to scores
            far from its shift, `Sigmoid` to high scores, `Identity` to scores far from its shift.
        gamma: Temperature of the softmax, positive: the smaller, the more the top items count.
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, NaN is padding.
    An item of weight 2 counts like two equal items.

    Example:
        >>> loss = losses.SelectiveSoftmaxLoss(links.Exp())
        >>> y_true = tf.constant([[2.0, 0.0, -1.0]])
        >>> high = loss(y_true, y_true + [[0.1, 0.0, 0.0]])  # an error at the highest score
        >>> low = loss(y_true, y_true + [[0.0, 0.0, 0.1]])  # the same error at the lowest
        >>> bool(high > 1000.0 * low)
        True

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 29, with the regulariser `gamma` of its appendix C.
    """

    min_label = -math.inf

    def __init__(
        self,
        scaling: Link,
        gamma: float = 1.0,
        name: str = "selective_softmax_loss",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.scaling = scaling
        self.gamma = gamma
        self._link = CompositeSoftmax(scaling, gamma)

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the divergence of the composite link."""
        return self._link.divergence(scores, labels, mask, weights)
