"""Matching losses, between the values of a link at scores and at labels, and their baselines."""

import functools
from collections.abc import Sequence

from tfrank_sel import numerics as xp
from tfrank_sel.errors import refusal
from tfrank_sel.links import convexity
from tfrank_sel.links.base import Link, nearest
from tfrank_sel.links.combinators import check_invertible
from tfrank_sel.links.composite import CompositeSigmoid, CompositeSoftmax
from tfrank_sel.losses.bases import ScoreLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking
from tfrank_sel.ops.bregman import in_float64
from tfrank_sel.serialization import register


class _ScalarLoss(ScoreLoss):
    """A matching loss of each item for itself."""

    link: Link
    label_map: Link | None = None
    allow_nonconvex: bool = False

    compares_items = False

    def __post_init__(self) -> None:
        super().__post_init__()
        convexity.check_increasing(
            "link",
            self.link,
            self.allow_nonconvex,
            "a matching loss is convex only if its link increases",
        )


@register
class MatchingLoss(_ScalarLoss):
    """Scalar matching loss of a link, averaged over the items of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = mean_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i))
    ```

    where `h` is the link, `H` its potential, and the mean is over the valid items. Each term is the
    area between the link and its value at `s_i`: at least 0, convex in `z_i`, zero at `z_i = s_i`,
    with gradient `h(z_i) - h(s_i)`. So the loss penalises errors most where the link is steepest.

    Args:
        link: The increasing function `h`. `Identity()` gives half the mean squared error.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        allow_nonconvex: Whether to accept a `link` that is not increasing.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `link` is not increasing and that is not allowed.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, NaN is padding.
    With a `label_map`, labels are relevances, and below 0 they are padding, too. Predictions
    outside the domain of the link make the loss NaN: keep them inside, or cap the link.

    Example:
        >>> loss = losses.MatchingLoss(links.Identity())
        >>> y_true = tf.constant([[1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, -2.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # the mean of (3 - 1)**2 / 2 and 0
        1.0

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 2.
    """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the divergence of each item."""
        return masking.masked_mean(weights * self.link.divergence(scores, labels), mask)


@register
class DecomposedMatchingLoss(_ScalarLoss):
    """Scalar matching loss of a link, summed over the items, or classes, of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = sum_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i))
    ```

    where `h` is the link and `H` its potential. It is `MatchingLoss` times the number of valid
    items: a list of more items counts more, and the gradient of an item does not depend on how many
    others there are. It treats each item independently, so it does not rank.

    Args:
        link: The increasing function `h`.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        allow_nonconvex: Whether to accept a `link` that is not increasing.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `link` is not increasing and that is not allowed.

    Inputs: as in `MatchingLoss`.

    Example:
        >>> loss = losses.DecomposedMatchingLoss(links.Identity())
        >>> y_true = tf.constant([[1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, -2.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # (3 - 1)**2 / 2
        2.0

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 28.
    """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the divergence of each item."""
        return masking.masked_sum(weights * self.link.divergence(scores, labels), mask)


@register
class ContrastiveMatchingLoss(ScoreLoss):
    """Matching loss between differences of scores, averaged over the pairs of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = mean_(i < j) w_i * w_j * D_H(z_i - z_j, s_i - s_j)
    D_H(a, b) = H(a) - H(b) - (a - b) * h(b)
    ```

    where `h` is an odd link, so that the order of a pair is irrelevant, `H` its potential, and the
    mean is over the pairs of valid items. It does not change if a constant is added to all `z`, and
    its gradients add up to 0. A link that is sensitive to high norms penalises errors in wide gaps
    between scores most; a link that is sensitive to low norms, errors in narrow gaps.

    Args:
        link: The increasing odd function `h`: `Capped(Sinh(), -5.0, 5.0)`, `Power(exponent=2.0)`,
            `Tanh()`.
        label_map: The link that makes a score of a label, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `link` is not odd.

    Inputs: as in `MatchingLoss`.

    Example:
        >>> loss = losses.ContrastiveMatchingLoss(links.Identity())
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])
        >>> float(loss(y_true, y_true + 5.0))
        0.0
        >>> float(loss(y_true, tf.constant([[4.0, 0.0, -1.0]])))  # the mean of 9 / 2, 9 / 2 and 0
        3.0

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        whose equation 2 is applied to differences here.
    """

    link: Link
    label_map: Link | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.link.is_odd:
            raise refusal(
                "`link` must be odd, h(-s) = -h(s), so that the order of a pair is irrelevant",
                link=self.link,
            )

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the divergence of each pair."""
        # in float64 the differences of scores are exact
        z, s = (xp.cast(x, xp.float64) for x in (scores, labels))
        size, half = xp.shape(scores)[1], xp.shape(scores)[1] // 2

        def next_ones(x: Tensor) -> Tensor:
            """Returns the `half` items after each item in a circle, `[batch_size, half, size]`."""
            # the list over and over, in rows of one more than its size: each begins one item later
            x = xp.tile(x, [1, half + 1])[:, 1 : 1 + half * (size + 1)]
            return xp.reshape(x, [xp.shape(x)[0], half, size + 1])[:, :, :size]

        z, s = (x[:, xp.newaxis, :] - next_ones(x) for x in (z, s))
        # the last of an even number of items is opposite, and so in two pairs
        step, index = xp.range(1, half + 1)[:, xp.newaxis], xp.range(size)
        valid = mask[:, xp.newaxis, :] & next_ones(mask) & ((2 * step < size) | (index < step))
        # a masked pair may lie outside the domain
        z, s = (xp.where(valid, x, 0.0) for x in (z, s))
        area = xp.cast(self.link.divergence(z, s), scores.dtype)
        area = area * (weights[:, xp.newaxis, :] * next_ones(weights))
        pairs = [xp.shape(scores)[0], half * size]
        return masking.masked_mean(xp.reshape(area, pairs), xp.reshape(valid, pairs))


@register
class FenchelYoungLoss(ScoreLoss):
    """Matching loss of a link whose targets are values of the link, averaged over each list.

    For each list of targets `y` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = mean_i w_i * (H(z_i) - z_i * y_i + H*(y_i))
    ```

    where `h` is the link, `H` its potential, `H*` the convex conjugate of that, and the mean is
    over the valid items. Each term is the matching loss at the score where `h = y_i`, which may be
    infinite, with gradient `h(z_i) - y_i`: with `Sigmoid()` it is the logistic loss, for hard
    targets 0 and 1 and for soft ones between.

    Args:
        link: The increasing function `h`; it must have an inverse.
        label_map: The link that makes a target of a label, such as `links.labels.affine(0.25)`. If
            `None`, labels are targets.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `link` has no inverse.

    Inputs: as in `ListwiseLoss`, but labels are values of the link, and NaN is padding. A value
    outside the range of the link makes the loss of its list and the gradient of its item NaN; so
    does a prediction outside the domain. Gradients of other items of that list stay finite.

    Example:
        >>> loss = losses.FenchelYoungLoss(links.Sigmoid())
        >>> y_true = tf.constant([[1.0, 0.0]])
        >>> y_pred = tf.constant([[2.0, -2.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(1 + exp(-2))
        0.1269

    Reference:
        [Blondel et al., Learning with Fenchel-Young Losses, 2020](
        https://jmlr.org/papers/v21/19-021.html); [Shamir and Warmuth, Selective Matching Losses,
        2025](https://arxiv.org/abs/2506.04446).
    """

    link: Link
    label_map: Link | None = None

    compares_items = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_invertible("link", self.link)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the divergence of each item from the score of its target."""
        targets = nearest(labels, self.link.image, xp.float64)
        return masking.masked_mean(weights * self._areas(scores, targets), mask)

    @in_float64
    def _areas(self, z: Tensor, y: Tensor) -> Tensor:
        """Computes `H(z) - z * y + H*(y)` of each item."""

        @xp.custom_gradient
        def f(z: Tensor, y: Tensor) -> tuple[Tensor, object]:
            def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
                return upstream * (self.link(z) - y), -upstream * (z - self.link.inverse(y))

            return self.link.excess(z, y), gradient

        return f(z, y)


class _SoftmaxLinkLoss(ScoreLoss):
    """A loss of a composite Softmax."""

    scaling: Link
    gamma: float = 1.0
    log_rho: Sequence[float] | None = None
    label_map: Link | None = None

    @property
    def padding(self) -> float | None:
        """A score inside the domain; `None` if positions are classes, each with its `log_rho`."""
        return super().padding if self.log_rho is None else None


@register
class SelectiveSoftmaxLoss(_SoftmaxLinkLoss):
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
        log_rho: Number to add to the `Q` of each class, if the positions of a list are classes:
            each list then has as many items as `log_rho` has numbers. For other items, use weights.
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
        equation 29, with the regulariser `gamma` of its appendix C, and E.7 and E.9 for
        `Constant()`.
    """

    allow_nonconvex: bool = False

    @functools.cached_property
    def link(self) -> CompositeSoftmax:
        """The composite link."""
        return CompositeSoftmax(self.scaling, self.gamma, self.log_rho, self.allow_nonconvex)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the divergence of the composite link."""
        return self.link.divergence(scores, labels, mask, weights)


class _SigmoidLinkLoss(ScoreLoss):
    """A loss of a composite Sigmoid."""

    scaling: Link
    gamma: float = 1.0
    offset: float = 0.0
    label_map: Link | None = None

    compares_items = False


@register
class SelectiveSigmoidLoss(_SigmoidLinkLoss):
    """Matching loss of a composite Sigmoid, averaged over the items of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    H(s) = gamma * log(1 + exp(Q(s) / gamma)), h = q * p, p = sigmoid(Q / gamma)
    loss = mean_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i))
    ```

    where `q` is the scaling, `Q` its potential plus `offset`, and the mean is over the valid items.
    It is the `MatchingLoss` of `links.CompositeSigmoid`, and the `SelectiveSoftmaxLoss` of an item
    next to one whose `Q` stays 0.

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

    allow_nonconvex: bool = False

    @functools.cached_property
    def link(self) -> CompositeSigmoid:
        """The composite link."""
        return CompositeSigmoid(self.scaling, self.gamma, self.offset, self.allow_nonconvex)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the divergence of each item."""
        return masking.masked_mean(weights * self.link.divergence(scores, labels), mask)


@register
class SelectiveSoftmaxCrossEntropyLoss(_SoftmaxLinkLoss):
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
        log_rho: Number to add to the `Q` of each class, if the positions of a list are classes.
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

    @functools.cached_property
    def link(self) -> CompositeSoftmax:
        """The composite link."""
        return CompositeSoftmax(self.scaling, self.gamma, self.log_rho, allow_nonconvex=True)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the cross-entropy of the composite link."""
        return self.link.cross_entropy(scores, labels, mask, weights)


@register
class SelectiveSigmoidCrossEntropyLoss(_SigmoidLinkLoss):
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

    @functools.cached_property
    def link(self) -> CompositeSigmoid:
        """The composite link."""
        return CompositeSigmoid(self.scaling, self.gamma, self.offset, allow_nonconvex=True)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the cross-entropy of each item."""
        return masking.masked_mean(weights * self.link.cross_entropy(scores, labels), mask)
