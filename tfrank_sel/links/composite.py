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
        log_share = at_s.exact_log_p + tf.math.log(tf.where(mask, weights, 1.0))
        spread = q * (-tf.math.expm1(log_share) * q / self.gamma)
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

            log_p = self._softmax(z, mask, weights).exact_log_p
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
        p, direct = at_s.p, at_z.log_p - at_s.log_p
        far_kl = -_total(p * direct)
        is_far = far_kl > 0.5
        v = self._log_ratio(self.scaling.rise(z, s, z - s), direct, at_s)
        growth = tf.where(~is_far, _total(p * bregman.expm1_remainder(v)), 0.0)
        # KL = log sum p * exp(v), as sum p * v = 0; far away it is large, and a plain sum exact
        kl = tf.where(is_far, far_kl, tf.math.log1p(growth))
        near = p * (bregman.expm1(v) - growth) / (1.0 + growth)
        change = tf.where(is_far | (v > 1.0), at_z.p - p, near)
        return _Pair(at_s, at_z, area, kl[:, 0], change)

    def _log_ratio(self, change: tf.Tensor, direct: tf.Tensor, at_s: "_Softmax") -> tf.Tensor:
        """Computes `log(p(z) / p(s))` but for a constant that makes its mean under `p(s)` 0.

        It comes from the changes of `Q`, relative to that at the top of `p(s)`, so that nothing is
        lost where that has nearly all the probability; where they are large, from the softmaxes.
        """
        change = change / self.gamma
        at_top = _total(change * at_s.top_share)
        u = tf.where(tf.abs(at_top) < 8.0, change - at_top, direct)
        u = tf.where(at_s.p > 0.0, tf.minimum(u, 60.0), 0.0)
        return u - _total(at_s.p * u)

    def _softmax(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> "_Softmax":
        """Computes the weighted softmax of `Q(s) / gamma`, relative to the item of the largest."""
        s_top = tf.stop_gradient(self._top(s, mask))
        # a rises above 0 by the rounding of Q alone; clipped, it cannot overflow either way
        a = tf.clip_by_value(self._rise(s, s_top) / self.gamma, 0.1 * s.dtype.min, 60.0)
        mass = tf.where(mask, weights * tf.exp(a), 0.0)
        total = _total(mass)
        total = tf.where(total > 0.0, total, 1.0)  # a list without a valid item
        log_p = tf.where(mask, a - tf.math.log(total), 0.0)
        top_mass = tf.where(mask & (s == s_top), weights, 0.0)
        at_top = _total(top_mass)
        at_top = tf.where(at_top > 0.0, at_top, 1.0)
        log_sum = tf.math.log(at_top) + tf.math.log1p(_total(mass - top_mass) / at_top)
        exact_log_p = tf.where(mask, a - log_sum, 0.0)
        return _Softmax(log_p, exact_log_p, mass / total, top_mass / at_top)

    def _top(self, s: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the score of the largest `Q` of each list, `[batch_size, 1]`.

        `Q` is convex, or else monotone: it is largest at one end of the scores.
        """
        highest = tf.reduce_max(tf.where(mask, s, s.dtype.min), axis=-1, keepdims=True)
        highest = tf.where(highest > s.dtype.min, highest, self.scaling.origin)
        if self.scaling.image[0] >= 0.0:  # Q rises everywhere
            return highest
        lowest = tf.reduce_min(tf.where(mask, s, s.dtype.max), axis=-1, keepdims=True)
        lowest = tf.where(lowest < s.dtype.max, lowest, self.scaling.origin)
        falls = self.scaling.potential(lowest) > self.scaling.potential(highest)
        return tf.where(falls, lowest, highest)

    def _rise(self, s: tf.Tensor, s_top: tf.Tensor) -> tf.Tensor:
        """Computes `Q(s) - Q(s_top)` without subtracting two huge numbers."""
        return bregman.with_derivative(
            lambda s: self.scaling.rise(s, s_top, s - s_top), self.scaling, s
        )

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
    """All 0 where masked; what is not used costs nothing once compiled."""

    log_p: tf.Tensor  # of one of the copies that an item's weight stands for
    exact_log_p: tf.Tensor  # the same, with all digits where p is nearly 1
    p: tf.Tensor  # of all copies together
    top_share: tf.Tensor  # weights of the items of the largest potential, of sum 1; 0 elsewhere


class _Pair(NamedTuple):
    at_s: _Softmax
    at_z: _Softmax
    area: tf.Tensor  # the divergence of the scaling, of each item
    kl: tf.Tensor  # the divergence of p(z) from p(s), of each list
    change: tf.Tensor  # p(z) - p(s)


def _total(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x, axis=-1, keepdims=True)
