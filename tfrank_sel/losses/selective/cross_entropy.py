"""Cross-entropies of composite links: non-convex baselines for the selective losses."""

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
class SelectiveSoftmaxCrossEntropyLoss(ScoreLoss):
    """Cross-entropy between two composite Softmaxes, which is not convex for most scalings.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    p(s) = softmax((Q(s) + log_rho) / gamma + log w)
    loss = gamma * log sum_k w_k * exp((Q(z_k) + log_rho_k) / gamma) - sum_k p_k(s) * Q(z_k)
    ```

    where `Q` is the potential of the scaling `q`. Its gradient is `q(z_k) * (p_k(z) - p_k(s))`. The
    loss has its minimum, which is not 0, wherever the probabilities agree. `SelectiveSoftmaxLoss`
    is its excess over that minimum plus `sum_k p_k(s) * D_Q(z_k, s_k)`, which makes it convex and
    matches the scores.

    Args:
        scaling: The function `q`, whose potential is `Q`; with `Constant()` the loss is convex.
        gamma: Temperature of the softmax; positive.
        log_rho: Number to add to the `Q` of each place of the list, if places are classes.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive, or `log_rho` not finite.

    Inputs: as in `SelectiveSoftmaxLoss`.

    Example:
        >>> loss = losses.SelectiveSoftmaxCrossEntropyLoss(links.Sinh())
        >>> y_true = tf.constant([[1.0, 1.0]])
        >>> float(loss(y_true, y_true)) == float(loss(y_true, -y_true))  # two minima
        True

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation E.5, and E.11 for `Constant()`.
    """

    scaling: Link
    gamma: float = 1.0
    log_rho: Sequence[float] | None = None
    label_map: Link | None = None

    @functools.cached_property
    def link(self) -> CompositeSoftmax:
        """The composite link."""
        return CompositeSoftmax(self.scaling, self.gamma, self.log_rho, allow_nonconvex=True)

    @property
    def padding(self) -> float | None:
        """A score inside the domain; `None` if each place of a list has its `log_rho`."""
        return super().padding if self.log_rho is None else None

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the cross-entropy of the composite link."""
        return self.link.cross_entropy(scores, labels, mask, weights)


@register
class SelectiveSigmoidCrossEntropyLoss(ScoreLoss):
    """Cross-entropy between two composite Sigmoids, averaged over the items of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = mean_i w_i * (gamma * log(1 + exp(Q(z_i) / gamma)) - p(s_i) * Q(z_i))
    ```

    where `p = sigmoid(Q / gamma)`, `Q` is the potential of the scaling `q` plus `offset`, and the
    mean is over the valid items. Its gradient is `q(z_i) * (p(z_i) - p(s_i))`; it is not convex for
    most scalings. With `Constant(shift=b)` and `gamma=1/a` it is the cross-entropy of a sigmoid of
    scale `a` and shift `b`, divided by `a`, which is convex, and whose excess over its minimum is
    the matching loss of that sigmoid.

    Args:
        scaling: The function `q`, whose potential is `Q`; with `Constant()` the loss is convex.
        gamma: Temperature of the sigmoid; positive.
        offset: Constant of `Q`.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive, or `offset` not finite.

    Inputs: as in `MatchingLoss`.

    Example:
        >>> loss = losses.SelectiveSigmoidCrossEntropyLoss(links.Constant())
        >>> s = tf.constant([[1.0, -1.0]])
        >>> z = tf.constant([[2.0, 0.0]])
        >>> excess = loss(s, z) - loss(s, s)
        >>> matching = losses.MatchingLoss(links.Sigmoid())(s, z)
        >>> round(float(excess), 5) == round(float(matching), 5)
        True

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation E.3, and E.1 for `Constant()`.
    """

    scaling: Link
    gamma: float = 1.0
    offset: float = 0.0
    label_map: Link | None = None

    compares_items = False

    @functools.cached_property
    def link(self) -> CompositeSigmoid:
        """The composite link."""
        return CompositeSigmoid(self.scaling, self.gamma, self.offset, allow_nonconvex=True)

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the cross-entropy of each item."""
        return masking.masked_mean(weights * self.link.cross_entropy(scores, labels), mask)
