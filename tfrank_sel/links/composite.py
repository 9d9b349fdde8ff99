"""The link of a list: composite Softmax, the gradient of a log-sum-exp of scaled scores."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.links import convexity
from tfrank_sel.links.base import Link, freeze
from tfrank_sel.links.composite_sigmoid import check_gamma
from tfrank_sel.ops import bregman
from tfrank_sel.ops.masking import masked_sum
from tfrank_sel.serialization import Configurable, register


@register
@dataclasses.dataclass(frozen=True)
class CompositeSoftmax(Configurable):
    """The link `h_k(s) = q(s_k) * p_k(s)` of a list, with potential `gamma * log sum exp(Q/gamma)`.

    `q` is the scaling, `Q` its potential, and `p` the softmax of `Q(s) / gamma`. As a `Link`, it is
    a value, but its functions act on lists: `[batch_size, list_size]`, with the mask of the valid
    items and the weight of each, a factor of `exp(Q/gamma)`, so that an item of weight 2 counts
    like two equal items.

    Args:
        scaling: The increasing function `q`.
        gamma: Temperature of the softmax; positive.
        log_rho: What to add to the `Q` of each place of the list, where places are classes.
        allow_nonconvex: Whether to accept a `q` that is not increasing.

    Raises:
        ValueError: If `gamma` is not positive, `log_rho` not finite, or `scaling` not increasing
            and that not allowed.
    """

    scaling: Link
    gamma: float = 1.0
    log_rho: Sequence[float] | None = None
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        if self.log_rho is not None:
            freeze(self, log_rho=self.log_rho)
        convexity.check_increasing(
            "scaling",
            self.scaling,
            self.allow_nonconvex,
            "the loss of a composite Softmax is convex only if the potential of its scaling is "
            "(theorem 4, whose condition is also necessary)",
        )

    def __call__(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        s, mask, weights = self._neutral(s, mask, weights)
        return self.scaling(s) * self._softmax(s, mask, weights).p

    def probabilities(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes `p(s)`, of the shape of `s`: 0 where masked, else of sum 1 in each list."""
        return self._softmax(*self._neutral(s, mask, weights)).p

    def sensitivity(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes the slope of `h_k` in `s_k`, `p_k * (q'_k + (1 - p_k) * q_k**2 / gamma)`."""
        s, mask, weights = self._neutral(s, mask, weights)
        at_s, q = self._softmax(s, mask, weights), self.scaling(s)
        spread = q * (-tf.math.expm1(at_s.log_share) * q / self.gamma)
        return tf.where(mask, at_s.p * (self.scaling.slope(s) + spread), 0.0)

    def hessian(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes all slopes of `h`, `[batch_size, list_size, list_size]`, symmetric."""
        h = self(s, mask, weights)
        beside = -h[:, :, tf.newaxis] * h[:, tf.newaxis, :] / self.gamma
        return tf.linalg.set_diag(beside, self.sensitivity(s, mask, weights))

    def divergence(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
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
        z, _, _ = self._neutral(z, mask, weights)
        s, mask, weights = self._neutral(s, mask, weights)

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                u = upstream[:, tf.newaxis]
                in_s = self._slope_times(s, z - s, mask, weights)
                return u * self._difference(z, s, mask, weights), -u * in_s

            pair = self._compare(z, s, mask, weights)
            value = self.gamma * pair.kl + masked_sum(pair.at_s.p * pair.area, mask)
            return value, gradient

        return f(z, s)

    def cross_entropy(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes `gamma * log sum exp(Q(z) / gamma) - sum_k p_k(s) * Q(z_k)` of each list.

        Args and returns are those of `divergence`. Its gradient in `z_k` is
        `q(z_k) * (p_k(z) - p_k(s))`, in closed form, to any order.
        """
        z, _, _ = self._neutral(z, mask, weights)
        s, mask, weights = self._neutral(s, mask, weights)

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                u = upstream[:, tf.newaxis]
                in_s = self._share_slope_times(s, self.scaling.potential(z), mask, weights)
                return u * self.scaling(z) * self._change(z, s, mask, weights), -u * in_s

            log_p = self._softmax(z, mask, weights).log_p
            p = self._softmax(s, mask, weights).p
            return -self.gamma * masked_sum(p * log_p, mask), gradient

        return f(z, s)

    def _difference(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes `h(z) - h(s)`, of the shape of `z`."""

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                in_z = self._slope_times(z, upstream, mask, weights)
                return in_z, -self._slope_times(s, upstream, mask, weights)

            pair = self._compare(z, s, mask, weights)
            in_q = self.scaling.stable_difference(z, s, z - s) * pair.at_z.p
            return tf.where(mask, in_q + self.scaling(s) * pair.change, 0.0), gradient

        return f(z, s)

    def _change(self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes `p(z) - p(s)`, of the shape of `z`."""

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                in_z = self._share_slope_times(z, upstream, mask, weights)
                return in_z, -self._share_slope_times(s, upstream, mask, weights)

            return tf.where(mask, self._compare(z, s, mask, weights).change, 0.0), gradient

        return f(z, s)

    def _compare(self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> "_Pair":
        """Computes what the divergence and its gradient are made of, with all their digits.

            divergence = gamma * KL(p(s) || p(z)) + sum_k p_k(s) * D_Q(z_k, s_k)

        Every term is at least 0. The logarithm `w` of `p(z) / p(s)` comes from the changes of `Q`
        where they are small, else from the two softmaxes: whichever subtracts smaller numbers.
        """
        area = self.scaling.stable_divergence(z, s, z - s)
        at_s, at_z = self._softmax(s, mask, weights), self._softmax(z, mask, weights)
        w = self._log_ratio(self.scaling.rise(z, s, z - s), at_s, at_z, mask)
        # sum p * (exp(w) - 1 - w) = KL, since both p sum to 1
        near = at_s.p * bregman.expm1_remainder(tf.minimum(w, 1.0))
        kl = masked_sum(tf.where(w > 1.0, at_z.p - at_s.p * (1.0 + w), near), mask)
        change = at_s.p * tf.math.expm1(tf.clip_by_value(w, -1.0, 1.0))
        return _Pair(at_s, at_z, area, kl, tf.where(tf.abs(w) < 1.0, change, at_z.p - at_s.p))

    def _log_ratio(
        self, change: tf.Tensor, at_s: "_Softmax", at_z: "_Softmax", mask: tf.Tensor
    ) -> tf.Tensor:
        direct = at_z.log_p - at_s.log_p
        change = change / self.gamma
        change_at_top = masked_sum(change, at_s.top)[:, tf.newaxis]
        direct_at_top = masked_sum(direct, at_s.top)[:, tf.newaxis]
        by_change = tf.abs(change) + tf.abs(change_at_top) <= tf.abs(at_s.log_p) + tf.abs(
            at_z.log_p
        )
        u = tf.where(by_change, change - change_at_top, direct - direct_at_top)
        u = tf.where(mask & ~at_s.top, u, 0.0)
        # the top of p(s) has u = 0: for near lists the logarithm is of 1 plus something small
        growth = masked_sum(at_s.p * tf.math.expm1(tf.minimum(u, 60.0)), mask)[:, tf.newaxis]
        largest = tf.reduce_max(u, axis=-1, keepdims=True)
        w = tf.where(largest < 60.0, u - tf.math.log1p(growth), direct)
        return tf.where(mask, w, 0.0)

    def _softmax(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> "_Softmax":
        """Computes the weighted softmax of `Q(s) / gamma`, relative to the item of the largest."""
        potential = tf.where(mask, self.scaling.potential(s), s.dtype.min)
        largest = tf.reduce_max(potential, axis=-1, keepdims=True)
        column = tf.range(tf.shape(s)[-1])
        first = tf.reduce_min(
            tf.where(potential == largest, column, tf.shape(s)[-1]), axis=-1, keepdims=True
        )
        top = mask & (column == first)
        s_top = masked_sum(s, top)[:, tf.newaxis]
        s_top = tf.where(mask, s_top + tf.zeros_like(s), s)
        # Q(s) - Q(s_top) without subtracting two huge numbers
        rise = self.scaling.rise(s, s_top, s - s_top)
        # a rises above 0 by the rounding of Q alone; clipped, it cannot overflow either way
        a = tf.where(mask, tf.clip_by_value(rise / self.gamma, 0.1 * s.dtype.min, 60.0), 0.0)
        mass = tf.where(mask, weights * tf.exp(a), 0.0)
        mass_top = masked_sum(mass, top)[:, tf.newaxis]
        mass_top = tf.where(mass_top > 0.0, mass_top, 1.0)  # a list without a valid item
        log_rest = tf.math.log1p(masked_sum(mass, ~top)[:, tf.newaxis] / mass_top)
        log_p = tf.where(mask, a - tf.math.log(mass_top) - log_rest, 0.0)
        log_share = a + tf.math.log(tf.where(mask, weights, mass_top) / mass_top) - log_rest
        return _Softmax(log_p, log_share, tf.where(mask, weights * tf.exp(log_p), 0.0), top)

    def _slope_times(
        self, s: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the product of `h'(s)`, the Hessian of the potential, and `v`."""
        q = self.scaling(s)
        spread = self._share_slope_times(s, tf.where(mask, q * v, 0.0), mask, weights)
        p = self._softmax(s, mask, weights).p
        return tf.where(mask, p * self.scaling.slope(s) * v + spread, 0.0)

    def _share_slope_times(
        self, s: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the product of the transposed derivative of `p(s)` and `v`."""
        p = self._softmax(s, mask, weights).p
        centred = v - masked_sum(p * v, mask)[:, tf.newaxis]
        return tf.where(mask, p * self.scaling(s) * centred / self.gamma, 0.0)

    def _neutral(
        self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Puts a harmless score in masked slots before anything can overflow there.

        An item of weight 0 is masked, too. `rho` joins the weights.
        """
        if self.log_rho is not None:
            if s.shape[-1] not in (None, len(self.log_rho)):
                raise ValueError(
                    "`log_rho` must have a number for each place of a list. Received: "
                    f"{len(self.log_rho)} numbers, scores of shape {s.shape}"
                )
            log_rho = tf.constant(self.log_rho, s.dtype) / self.gamma
            weights = weights * tf.exp(log_rho - tf.reduce_max(log_rho))
        mask = mask & (weights > 0.0)
        return tf.where(mask, s, self.scaling.origin), mask, weights


class _Softmax(NamedTuple):
    log_p: tf.Tensor  # of one of the copies that an item's weight stands for; 0 where masked
    log_share: tf.Tensor  # of all copies together, exact where p is nearly 1
    p: tf.Tensor  # of all copies together; 0 where masked
    top: tf.Tensor  # True at the item of the largest potential, the first of equals


class _Pair(NamedTuple):
    at_s: _Softmax
    at_z: _Softmax
    area: tf.Tensor  # the divergence of the scaling, of each item
    kl: tf.Tensor  # the divergence of p(z) from p(s), of each list
    change: tf.Tensor  # p(z) - p(s)
