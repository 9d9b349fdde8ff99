"""RG losses: the softmax cross-entropy, expanded to second order around equal logits."""

from collections.abc import Callable
from typing import ClassVar

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class, ranking
from tfrank_sel.serialization import register


class RGLoss(ListwiseLoss):
    """An expansion of the softmax cross-entropy, with an anchor of the logits of relevant items."""

    alpha: AtLeast0 = 0.0
    target: float = 1.0
    gain: Callable[[Tensor], Tensor] = ranking.linear_gain

    of_mean: ClassVar[float]  # weight of the squared mean logit

    has_class_form = True
    weighs_others = True

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of one relevant item in each list."""
        has_class = one_class.are_there(classes, scores)
        gain = xp.where(has_class, self.gain(xp.ones([], scores.dtype)), 0.0)
        mean, half_variance, score = _moments_of_one(classes, scores)
        log_size = xp.log(xp.cast(xp.shape(scores)[1], scores.dtype))
        value = gain * (log_size + half_variance - score)
        value = value + self.of_mean * gain * xp.square(mean) / 2.0
        anchor = xp.where(gain > 0.0, xp.square(score + mean - self.target), 0.0)
        return value + self.alpha / 2.0 * anchor

    def of_states(
        self, states: Tensor, indices: Tensor, vectors: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Computes the loss of the logits `states @ vectors.T`, without these logits.

        Args:
            states: `[count, num_factors]`.
            indices: Items of label 1 of each state, `[count, n]`; outside of the items for none.
            vectors: Of all items, `[num_items, num_factors]`.
            weights: Base weights of the items; 1 if `None`.

        Returns:
            The loss of each state, `[count]`.
        """
        if weights is None:
            total = xp.cast(xp.shape(vectors)[0], vectors.dtype)
            shares = xp.divide_no_nan(xp.ones_like(total), total)
        else:
            total = xp.reduce_sum(weights)
            shares = xp.divide_no_nan(weights, total)[:, xp.newaxis]
        has_class = (indices >= 0) & (indices < xp.shape(vectors)[0]) & (total > 0.0)
        places = xp.where(has_class, indices, 0)
        mean, covariance, own = _moments(vectors, shares, places)
        means = xp.matvec(states, mean)
        variances = xp.reduce_sum(states * xp.matmul(states, covariance), axis=1)
        over = xp.einsum("ck,cnk->cn", states, own - mean)
        gains = xp.where(has_class, self.gain(xp.ones_like(over)), 0.0)
        gain = xp.reduce_sum(gains, axis=1)
        log_total = xp.log(xp.where(total > 0.0, total, 1.0))
        value = gain * (log_total + variances / 2.0) - xp.reduce_sum(gains * over, axis=1)
        value = value + self.of_mean * gain * xp.square(means) / 2.0
        return value + _anchor(gains, over + means[:, xp.newaxis], self.alpha, self.target)


@register
class RG2Loss(RGLoss):
    """Weighted least-squares loss of the logits, an upper bound of `RGCrossLoss`.

    For each list of gains `g = gain(y)` of the labels `y` in `y_true` and logits `o` in `y_pred`:

    ```
    loss = sum_i g_i * (log V + mu + m2 / 2) - sum_i g_i * o_i
           + alpha / 2 * sum_i [g_i > 0] * (o_i - target)**2
    V = sum_i v_i, mu = sum_i v_i * o_i / V, m2 = sum_i v_i * o_i**2 / V
    ```

    where `v` are base weights. It expands the softmax cross-entropy
    `sum_i g_i * log sum_j v_j * exp(o_j) - sum_i g_i * o_i` around `o = 0`, where both have the
    same value and gradient; their difference is of second order in `o`. Its Hessian is diagonal, so
    `models.als` minimises it in closed form. The approximation is accurate for logits well below 1
    in absolute value: monitor them with `metrics.LogitNorm`. The anchor keeps the logits of
    relevant items near `target`.

    Args:
        alpha: Weight of the anchor, not negative.
        target: Value to which the anchor pulls the logits of items with a gain.
        gain: Maps labels to gains, which must not be negative.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `alpha` is negative.

    Inputs: as in `ListwiseLoss`, but the weight of an item is its base weight `v`: `1 / (n * p)`
    for an item drawn with probability `p` among `n`, so that a sampled list stands for the whole
    one. `alpha=1 / n` and `target=0` are the mean expansion of a softmax of one positive and `n`
    uniform negatives, times `(n + 1) / n`. With the weight `1 / IDCG` per list the loss is
    consistent with NDCG, if `alpha` is 0 or labels are binary. If you need both weights,
    multiply the gains by the weight of the list.

    Example:
        >>> loss = losses.RG2Loss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.2, 0.2, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2) + 0.2**2 / 2
        0.7131

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    of_mean = 1.0

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds the square of the mean logit to the shift-invariant expansion."""
        gains = _gains(self.gain, labels, mask)
        value, mean = _expansion(gains, scores, mask, weights)
        offset = xp.reduce_sum(gains, axis=-1) * xp.square(mean) / 2.0
        return value + offset + _anchor(gains, scores, self.alpha, self.target)


@register
class RGCrossLoss(RGLoss):
    """Second-order expansion of the softmax cross-entropy around equal logits: RG^x.

    For each list of gains `g = gain(y)` of the labels `y` in `y_true` and logits `o` in `y_pred`:

    ```
    loss = sum_i g_i * (log V + mu + (m2 - mu**2) / 2) - sum_i g_i * o_i
           + alpha / 2 * sum_i [g_i > 0] * (o_i - target)**2
    V = sum_i v_i, mu = sum_i v_i * o_i / V, m2 = sum_i v_i * o_i**2 / V
    ```

    where `v` are base weights. It differs in third order from the softmax cross-entropy
    `sum_i g_i * log sum_j v_j * exp(o_j) - sum_i g_i * o_i`. Like the cross-entropy, it does not
    change if a constant is added to all logits of a list, unless `alpha` is positive. It is
    accurate if the logits are within about 1 of their mean: monitor them with
    `metrics.LogitNorm(centered=True)`.

    Args:
        alpha: Weight of the anchor, not negative.
        target: Value to which the anchor pulls the logits of items with a gain.
        gain: Maps labels to gains, which must not be negative.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `alpha` is negative.

    Inputs: as in `RG2Loss`.

    Example:
        >>> loss = losses.RGCrossLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[5.2, 5.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2) - 0.2 / 2 + (0.2 / 2)**2 / 2
        0.5981

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    of_mean = 0.0

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the expansion about the mean logit."""
        gains = _gains(self.gain, labels, mask)
        value, _ = _expansion(gains, scores, mask, weights)
        return value + _anchor(gains, scores, self.alpha, self.target)


def _moments_of_one(classes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the mean and half of the variance of scores, and what one of them is above the mean.

    About the mean, or the digits of scores far from 0 would be lost.
    """
    size = xp.cast(xp.shape(scores)[1], scores.dtype)

    def centre(scores: Tensor) -> tuple[Tensor, Tensor]:
        mean = xp.reduce_mean(scores, axis=1)
        gaps = scores - mean[:, xp.newaxis]
        return gaps, mean

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], object]:
        gaps, mean = centre(scores)
        rest = xp.reduce_mean(gaps, axis=1)  # which the mean has lost by rounding
        half_variance = (xp.einsum("bi,bi->b", gaps, gaps) / size - xp.square(rest)) / 2.0
        score = xp.where(
            one_class.are_there(classes, scores), one_class.scores_of(classes, gaps) - rest, 0.0
        )

        def gradient(of_mean: Tensor, of_half: Tensor, of_own: Tensor) -> Tensor:
            of_own = xp.where(one_class.are_there(classes, scores), of_own, 0.0)
            # The gradient computes the gaps again, so that it has a derivative itself.
            gaps, _ = centre(scores)
            slopes = (of_half / size)[:, xp.newaxis] * gaps
            slopes = slopes + ((of_mean - of_own - of_half * rest) / size)[:, xp.newaxis]
            return one_class.add(slopes, classes, of_own)

        return (mean + rest, half_variance, score), gradient

    return f(scores)


def _moments(vectors: Tensor, shares: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the mean and the covariance of vectors, `[count, size]`, and those at some places.

    About the mean: of vectors far from 0, the digits of their spread would be lost otherwise. The
    gradient of TensorFlow would keep five arrays of the size of the vectors, and add one more for
    the places; since the shares of the centred vectors sum to 0, that of the covariance does not go
    through the mean.

    Args:
        vectors: The vectors.
        shares: The share of each, `[count, 1]`, of the sum 1, or one number if all are equal.
        places: Indices of vectors, `[..., n]`.
    """
    is_uniform = not xp.rank(shares)

    def weigh(x: Tensor) -> Tensor:
        return x if is_uniform else shares * x

    # a factor of small arrays takes no time
    factor = shares if is_uniform else xp.ones([], vectors.dtype)

    def centre(vectors: Tensor) -> Tensor:
        return factor * xp.reduce_sum(weigh(vectors), axis=0)

    @xp.custom_gradient
    def f(vectors: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], object]:
        mean = centre(vectors)
        centred = vectors - mean
        covariance = factor * xp.matmul(weigh(centred), centred, transpose_a=True)

        def gradient(of_mean: Tensor, of_covariance: Tensor, of_places: Tensor) -> Tensor:
            both = factor * (of_covariance + xp.transpose(of_covariance))
            # The gradient computes the centre again, so that it has a derivative itself.
            slopes = xp.matmul(vectors - centre(vectors), both) + factor * of_mean
            return xp.tensor_scatter_nd_add(weigh(slopes), places[..., xp.newaxis], of_places)

        return (mean, covariance, xp.gather(vectors, places)), gradient

    return f(vectors)


def _gains(gain: Callable[[Tensor], Tensor], labels: Tensor, mask: Tensor) -> Tensor:
    return xp.where(mask, gain(labels), xp.zeros_like(labels))


def _expansion(
    gains: Tensor, scores: Tensor, mask: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns `G * (log V + var / 2) - sum g * (o - mu)` and `mu` of each list.

    It is expanded around the item `r` of the largest weight, then around the mean. This avoids
    cancellation if all logits lie far from zero, or if `r` has nearly all of the weight. A list
    without weight is zero.
    """
    total = xp.reduce_sum(weights, axis=-1, keepdims=True)
    gains = xp.where(total > 0.0, gains, xp.zeros_like(gains))
    shares = xp.divide_no_nan(weights, total)
    r = xp.argmax(xp.pad(shares, [[0, 0], [0, 1]]), axis=-1)  # also of lists without slots
    is_r = xp.one_hot(r, xp.shape(scores)[1], True, False)
    at_r = masking.masked_sum(scores, is_r & (shares > 0.0))[:, xp.newaxis]
    d = xp.where(mask & ~is_r, scores - at_r, xp.zeros_like(scores))
    mean = xp.reduce_sum(shares * d, axis=-1, keepdims=True)
    variance = xp.reduce_sum(shares * xp.square(d - mean), axis=-1)
    log_total = xp.log(xp.where(total > 0.0, total, xp.ones_like(total)))[:, 0]
    gain = xp.reduce_sum(gains, axis=-1, keepdims=True)
    value = gain[:, 0] * (log_total + variance / 2.0)
    return value - xp.reduce_sum((gains - gain * shares) * d, axis=-1), (at_r + mean)[:, 0]


def _anchor(gains: Tensor, scores: Tensor, alpha: float, target: float) -> Tensor:
    return alpha / 2.0 * masking.masked_sum(xp.square(scores - target), gains > 0.0)
