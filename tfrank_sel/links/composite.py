"""Composite links: a scaling times a probability, by a softmax over a list or a sigmoid."""

import math
from collections.abc import Sequence

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.links import convexity
from tfrank_sel.links.base import Interval, Link, freeze
from tfrank_sel.links.elementary import Sigmoid
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.ops.bregman import in_float64
from tfrank_sel.serialization import Frozen, register


@register
class CompositeSoftmax(Frozen):
    """The link `h_k(s) = q(s_k) * p_k(s)` of a list, with potential `gamma * log sum exp(Q/gamma)`.

    `q` is the scaling, `Q` its potential, and `p` the softmax of `Q(s) / gamma`. As a `Link`, it is
    a value, but its functions act on lists: `[batch_size, list_size]`, with the mask of the valid
    items and the weight of each, a factor of `exp(Q/gamma)`, so that an item of weight 2 counts
    like two equal items.

    Args:
        scaling: The increasing function `q`.
        gamma: Temperature of the softmax; positive.
        log_rho: Number to add to the `Q` of each class, if the positions of a list are classes.
        allow_nonconvex: Whether to accept a `q` that is not increasing.

    Raises:
        ValueError: If `gamma` is not positive, `log_rho` is not finite, or `scaling` is not
            increasing and this is not allowed.

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equations C.1, C.3, C.4 and C.5, and C.12, C.14 and C.17 for `Exp`, `Sigmoid` and `Tanh`.
    """

    scaling: Link
    gamma: Positive = 1.0
    log_rho: Sequence[float] | None = None
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
        if self.log_rho is not None:
            freeze(self, log_rho=self.log_rho)
        convexity.check_increasing(
            "scaling",
            self.scaling,
            self.allow_nonconvex,
            "the loss of a composite Softmax is convex only if the potential of its scaling is "
            "(theorem 4, whose condition is also necessary)",
        )

    @property
    def origin(self) -> float:
        """A score inside the domain of the scaling, used for padding."""
        return self.scaling.origin

    @in_float64
    def __call__(self, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        return self._link(*self._neutral(s, mask, weights))

    @in_float64
    def probabilities(self, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes `p(s)`, in the shape of `s`: 0 for masked items, with sum 1 in each list."""
        return self._softmax(*self._neutral(s, mask, weights))

    @in_float64
    def sensitivity(self, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the slope of `h_k` in `s_k`, `p_k * (q'_k + (1 - p_k) * q_k**2 / gamma)`."""
        s, weights = self._neutral(s, mask, weights)
        log_p = self._shares(s, weights)[1] + xp.log(xp.where(weights > 0.0, weights, 1.0))
        # 1 - p, which would cancel where p nears 1
        spread = -xp.expm1(log_p) * xp.square(self.scaling(s)) / self.gamma
        slope = xp.exp(log_p) * (self.scaling.slope(s) + spread)
        return xp.where(weights > 0.0, slope, 0.0)  # at a kink it may be infinite

    def hessian(self, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes all slopes of `h`, `[batch_size, list_size, list_size]`, symmetric.

        It is the Hessian of the potential, equation B.2 of the paper with `gamma`.
        """
        h = self(s, mask, weights)
        others = -h[:, :, xp.newaxis] * h[:, xp.newaxis, :] / self.gamma
        return xp.set_diag(others, self.sensitivity(s, mask, weights))

    @in_float64
    def divergence(self, z: Tensor, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes `H(z) - H(s) - sum_k (z_k - s_k) * h_k(s)` of each list, at least 0.

        Args:
            z: Predicted scores, `[batch_size, list_size]`.
            s: Observed scores, of the shape of `z`.
            mask: True for the valid items, of the shape of `z`.
            weights: Weight of each item, of the shape of `z`; at least 0.

        Returns:
            The divergence, `[batch_size]`; 0 for a list without a valid item. Its gradient is
            `h(z) - h(s)` in `z` and `-h'(s) (z - s)` in `s`, in closed form, to any order.
        """
        z, _ = self._neutral(z, mask, weights)
        s, weights = self._neutral(s, mask, weights)

        @xp.custom_gradient
        def f(z: Tensor, s: Tensor) -> tuple[Tensor, object]:
            def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
                u = upstream[:, xp.newaxis]
                q, q_s, p_s = self.scaling(z), self.scaling(s), self._softmax(s, weights)
                in_z = self._link(z, weights) - q_s * p_s
                is_most = (p_s > 0.5) & (self._softmax(z, weights) > 0.5)
                rest = q * self._change(z, s, weights) + (q - q_s) * p_s
                in_z = xp.where(is_most, rest, in_z)
                return u * in_z, -u * self._slope_times(s, z - s, weights)

            (at_z, log_z), (at_s, log_s) = self._shares(z, weights), self._shares(s, weights)
            # the shares add up to 1 at z and at s, so their divergence is KL(p(s) || p(z))
            areas = self.gamma * bregman.relative_entropy(at_s, at_z, log_z - log_s)
            areas = areas + at_s * self.scaling.area(z, s)
            return xp.reduce_sum(weights * areas, axis=-1), gradient

        return f(z, s)

    @in_float64
    def cross_entropy(self, z: Tensor, s: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes `gamma * log sum exp(Q(z) / gamma) - sum_k p_k(s) * Q(z_k)` of each list.

        Args and returns are those of `divergence`. Its gradient in `z_k` is
        `q(z_k) * (p_k(z) - p_k(s))`, in closed form, to any order.
        """
        z, _ = self._neutral(z, mask, weights)
        s, weights = self._neutral(s, mask, weights)

        @xp.custom_gradient
        def f(z: Tensor, s: Tensor) -> tuple[Tensor, object]:
            def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
                u = upstream[:, xp.newaxis]
                change = self._change(z, s, weights)
                in_s = self._share_slope_times(s, self.scaling.potential(z), weights)
                return u * self.scaling(z) * change, -u * in_s

            log_rho = xp.constant(self.log_rho or [0.0], z.dtype)
            surprise = log_rho - self.gamma * self._shares(z, weights)[1]
            return row_sum(self._softmax(s, weights) * surprise)[:, 0], gradient

        return f(z, s)

    # From here on, masked items have weight 0.
    def _link(self, s: Tensor, weights: Tensor) -> Tensor:
        return self.scaling(s) * self._softmax(s, weights)

    def _softmax(self, s: Tensor, weights: Tensor) -> Tensor:
        return weights * self._shares(s, weights)[0]

    def _change(self, z: Tensor, s: Tensor, weights: Tensor) -> Tensor:
        """Computes `p(z) - p(s)`; that of an item with most of `p(s)` from the other items."""
        p = self._softmax(s, weights)
        change = self._softmax(z, weights) - p
        is_most = p > 0.5
        return xp.where(is_most, -row_sum(xp.where(is_most, xp.zeros_like(p), change)), change)

    def _shares(self, s: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Computes `p(s) / weights` and its logarithm; both are 0 for items of weight 0."""
        q, valid = self.scaling, weights > 0.0
        # Q relative to the top: a difference of two large Q would lose the digits of near scores
        top = xp.stop_gradient(q.fold(self._top(s, weights)))
        rise = bregman.with_derivative(lambda s: q.rise(q.fold(s), top), q, s)
        x = xp.where(valid, (rise + self._log_rho(s.dtype)) / self.gamma, xp.limits(s.dtype).min)
        x = x - xp.stop_gradient(xp.reduce_max(x, axis=-1, keepdims=True))
        mass, is_top = weights * xp.exp(x), x > -(2.0**-40)
        # the logarithm of a top item with nearly all the probability is `log1p` of the rest
        at_top, rest = row_sum(xp.where(is_top, mass, 0.0)), row_sum(xp.where(~is_top, mass, 0.0))
        at_top = xp.where(at_top > 0.0, at_top, 1.0)
        log_total = xp.log(at_top) + xp.log1p(rest / at_top)
        p = xp.where(valid, xp.exp(x), 0.0) / (at_top + rest)
        return p, xp.where(valid, x - log_total, 0.0)

    def _top(self, s: Tensor, weights: Tensor) -> Tensor:
        """Returns the score of the largest `Q` of each list, which is that at one of its ends."""
        some = xp.reduce_any(weights > 0.0, axis=-1, keepdims=True)
        lowest, highest = (
            xp.where(some, end(xp.where(weights > 0.0, s, empty), -1, True), self.scaling.origin)
            for end, empty in (
                (xp.reduce_min, xp.limits(s.dtype).max),
                (xp.reduce_max, xp.limits(s.dtype).min),
            )
        )
        rises = self.scaling.potential(highest) >= self.scaling.potential(lowest)
        return xp.where(rises, highest, lowest)

    def _log_rho(self, dtype: xp.DType) -> Tensor:
        """Returns `log_rho`, relative to the largest; one number if there is none."""
        log_rho = xp.constant(self.log_rho or [0.0], dtype)
        return log_rho - xp.reduce_max(log_rho)

    def _slope_times(self, s: Tensor, v: Tensor, weights: Tensor) -> Tensor:
        """Computes the product of `h'(s)`, the Hessian of the potential, and `v`."""
        spread = self._share_slope_times(s, self.scaling(s) * v, weights)
        in_q = self._softmax(s, weights) * self.scaling.slope(s) * v
        return xp.where(weights > 0.0, in_q, 0.0) + spread

    def _share_slope_times(self, s: Tensor, v: Tensor, weights: Tensor) -> Tensor:
        """Computes the product of the transposed derivative of `p(s)` and `v`."""
        p = self._softmax(s, weights)
        v = v - row_sum(xp.where(p > 0.5, v, 0.0))  # so that nothing cancels for an item with most
        return p * self.scaling(s) * (v - row_sum(p * v)) / self.gamma

    def _neutral(self, s: Tensor, mask: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Gives items that are masked, or of weight 0, a score inside the domain and weight 0."""
        if self.log_rho is not None and s.shape[-1] not in (None, len(self.log_rho)):
            raise refusal(
                "`log_rho` must have a number for each place of a list",
                f"{len(self.log_rho)} numbers, scores of shape {s.shape}",
            )
        valid = mask & (weights > 0.0)
        return xp.where(valid, s, self.scaling.origin), xp.where(valid, weights, 0.0)


def row_sum(x: Tensor) -> Tensor:
    """Sums each list, `[batch_size, 1]`."""
    return xp.reduce_sum(x, axis=-1, keepdims=True)


@register
class CompositeSigmoid(Link):
    """`h(s) = q(s) * p(s)`, `p = sigmoid(Q(s) / gamma)`: a composite Softmax of two items, one
    fixed.

    `q` is the scaling, and `Q` its potential plus `offset`; the potential of the link is
    `gamma * softplus(Q / gamma)`. Where `q` is large, the link is sensitive to scores.

    Args:
        scaling: The function `q`; increasing, or such that `h` is.
        gamma: Temperature of the sigmoid; positive.
        offset: Constant of `Q`, which moves the scores at which `p` is 1/2.
        allow_nonconvex: Whether to accept a `q` for which `h` is not increasing.

    Raises:
        ValueError: If `gamma` is not positive, or `h` is not increasing and this is not allowed.

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 21 with `offset`, B.1 and G.1 with `gamma`, and C.15 for `Sigmoid`.
    """

    scaling: Link
    gamma: Positive = 1.0
    offset: float = 0.0
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
        convexity.check_sigmoid(self.scaling, self.gamma, self.offset, self.allow_nonconvex)

    @property
    def domain(self) -> Interval:
        return self.scaling.domain

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.scaling.kinks

    @property
    def rises_from(self) -> float:
        margin = convexity.sigmoid_margin(self.scaling, self.gamma, self.offset)
        return -math.inf if margin >= -convexity.TOLERANCE else math.inf

    def __call__(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(
            lambda s: self.scaling(s) * self.probability(s), self.slope, s
        )

    def potential(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(
            lambda s: self.gamma * bregman.softplus(self._log_odds(s)), self.__call__, s
        )

    def slope(self, s: Tensor) -> Tensor:
        log_odds, q = self._log_odds(s), self.scaling(s)
        spread = q * (bregman.sigmoid(-log_odds) * q / self.gamma)
        return bregman.sigmoid(log_odds) * (self.scaling.slope(s) + spread)

    def probability(self, s: Tensor) -> Tensor:
        """Computes `p(s) = sigmoid(Q(s) / gamma)`."""
        return bregman.sigmoid(self._log_odds(s))

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        # the divergence of softplus between the two Q, plus that of Q
        at_z, at_s = self._log_odds(z), self._log_odds(s)
        area = self.gamma * Sigmoid().phi_divergence(at_z, at_s)
        return area + bregman.sigmoid(at_s) * self.scaling.area(z, s)

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        at_z, at_s, q, q_s = self._log_odds(z), self._log_odds(s), self.scaling(z), self.scaling(s)
        change, p_s = bregman.sigmoid_difference(at_z, at_s), bregman.sigmoid(at_s)
        is_most = (at_z > 0.0) & (at_s > 0.0)
        far = q * bregman.sigmoid(at_z) - q_s * p_s
        return xp.where(is_most, q * change + (q - q_s) * p_s, far)

    @in_float64
    def cross_entropy(self, z: Tensor, s: Tensor) -> Tensor:
        """Computes `gamma * softplus(Q(z) / gamma) - p(s) * Q(z)`, at least 0.

        Args:
            z: Predicted scores.
            s: Observed scores, of the shape of `z`.

        Returns:
            The cross-entropy, of the shape of `z`. Its gradient in `z` is
            `q(z) * (p(z) - p(s))`, in closed form, to any order.
        """

        @xp.custom_gradient
        def f(z: Tensor, s: Tensor) -> tuple[Tensor, object]:
            def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
                change = bregman.sigmoid_difference(self._log_odds(z), self._log_odds(s))
                spread = p * bregman.sigmoid(-self._log_odds(s)) * self.scaling(s)
                return upstream * self.scaling(z) * change, -upstream * self._log_odds(z) * spread

            at_z, p = self._log_odds(z), self.probability(s)
            # The complement 1 - p, without cancellation.
            rest = bregman.sigmoid(-self._log_odds(s))
            value = p * bregman.softplus(-at_z) + rest * bregman.softplus(at_z)
            return self.gamma * value, gradient

        return f(z, s)

    def _log_odds(self, s: Tensor) -> Tensor:
        return (self.scaling.potential(s) + self.offset) / self.gamma
