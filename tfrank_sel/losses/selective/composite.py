"""Matching losses of composite links: the selective Softmax and the selective Sigmoid."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.links.composite_sigmoid import CompositeSigmoid
from tfrank_sel.losses.bases.scores import ScoreLoss
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class SelectiveSoftmaxLoss(ScoreLoss):
    """Matching loss of a composite Softmax, whose sensitivity is set by `q`.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    H(s)   = gamma * log sum_k w_k * exp((Q(s_k) + log_rho_k) / gamma)
    h_k(s) = q(s_k) * p_k(s), p = softmax((Q(s) + log_rho) / gamma + log w)
    loss   = H(z) - H(s) - sum_k (z_k - s_k) * h_k(s)
           = gamma * KL(p(s) || p(z)) + sum_k p_k(s) * D_Q(z_k, s_k)
    ```

    where `q` is the scaling, `Q` its potential, and `D_Q` its divergence. It is at least 0, zero at
    `z = s`, has gradient `h(z) - h(s)`, and is convex. It compares items, as a softmax does, and
    also matches the scores. The match counts more for items with a large `q` and a large share
    `p_k`. With `Constant()` it is the matching loss of the standard softmax, which only compares
    items.

    Args:
        scaling: The increasing function `q`. `Exp` is sensitive to high scores, `Sinh` to scores
            far from its shift, `Sigmoid` to high scores, `Identity` to scores far from its shift.
        gamma: Temperature of the softmax, positive: the smaller, the more the top items count.
        log_rho: Number to add to the `Q` of each place of the list, if places are classes: each
            list then has as many items as `log_rho` has numbers. For other items, use weights.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        allow_nonconvex: Whether to accept a `scaling` that is not increasing.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive, `log_rho` not finite, or `scaling` not increasing
            and that not allowed.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, NaN is padding.
    With a `label_map`, labels are relevances, and below 0 they are padding, too. An item of weight
    2 counts like two equal items.

    Example:
        >>> loss = losses.SelectiveSoftmaxLoss(links.Exp())
        >>> y_true = tf.constant([[2.0, 0.0, -1.0]])
        >>> high = loss(y_true, y_true + [[0.1, 0.0, 0.0]])  # an error at the highest score
        >>> low = loss(y_true, y_true + [[0.0, 0.0, 0.1]])  # the same error at the lowest
        >>> bool(high > 1000.0 * low)
        True

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 29, with the regulariser `gamma` of its appendix C, and E.7 for `Constant()`.
    """

    scaling: Link
    gamma: float = 1.0
    log_rho: Sequence[float] | None = None
    label_map: Link | None = None
    allow_nonconvex: bool = False

    @functools.cached_property
    def link(self) -> CompositeSoftmax:
        """The composite link."""
        return CompositeSoftmax(self.scaling, self.gamma, self.log_rho, self.allow_nonconvex)

    @property
    def padding(self) -> float | None:
        """A score inside the domain; `None` if each place of a list has its `log_rho`."""
        return super().padding if self.log_rho is None else None

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the divergence of the composite link."""
        return self.link.divergence(scores, labels, mask, weights)


@register
class SelectiveSigmoidLoss(ScoreLoss):
    """Matching loss of a composite Sigmoid, averaged over the items of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    H(s) = gamma * log(1 + exp(Q(s) / gamma)), h = q * p, p = sigmoid(Q / gamma)
    loss = mean_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i))
    ```

    where `q` is the scaling, `Q` its potential plus `offset`, and the mean is over the valid items.
    It is the `MatchingLoss` of `links.CompositeSigmoid`, and the `SelectiveSoftmaxLoss` of an item
    beside one whose `Q` stays 0.

    Args:
        scaling: The function `q`; increasing, or such that `h` is.
        gamma: Temperature of the sigmoid; positive.
        offset: Constant of `Q`, which moves the scores at which `p` is 1/2.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        allow_nonconvex: Whether to accept a `scaling` with which the loss is not convex.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive, or the loss not convex and that not allowed.

    Inputs: as in `MatchingLoss`.

    Example:
        >>> loss = losses.SelectiveSigmoidLoss(links.Exp())
        >>> y_true = tf.constant([[2.0, -2.0]])
        >>> high = loss(y_true, y_true + [[0.1, 0.0]])  # an error at the high score
        >>> low = loss(y_true, y_true + [[0.0, 0.1]])  # the same error at the low one
        >>> bool(high > 50.0 * low)
        True

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 24, with the regulariser `gamma` of its appendix C.
    """

    scaling: Link
    gamma: float = 1.0
    offset: float = 0.0
    label_map: Link | None = None
    allow_nonconvex: bool = False

    compares_items = False

    @functools.cached_property
    def link(self) -> CompositeSigmoid:
        """The composite link."""
        return CompositeSigmoid(self.scaling, self.gamma, self.offset, self.allow_nonconvex)

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the divergence of each item."""
        return masking.masked_mean(weights * self.link.divergence(scores, labels), mask)
