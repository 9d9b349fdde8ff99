"""Composite Softmax: the link of a list, the gradient of a log-sum-exp of scaled scores."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfrank_sel.links import convexity
from tfrank_sel.links.base import Link, freeze
from tfrank_sel.links.comparison import Comparison, Softmax, compare, row_sum
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
        log_rho: Number to add to the `Q` of each place of the list, if places are classes.
        allow_nonconvex: Whether to accept a `q` that is not increasing.

    Raises:
        ValueError: If `gamma` is not positive, `log_rho` is not finite, or `scaling` is not
            increasing and this is not allowed.
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
        return self._softmax(s, mask, weights).times(self.scaling(s))

    def probabilities(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes `p(s)`, in the shape of `s`: 0 for masked items, with sum 1 in each list."""
        return tf.square(self._softmax(*self._neutral(s, mask, weights)).root)

    def sensitivity(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes the slope of `h_k` in `s_k`, `p_k * (q'_k + (1 - p_k) * q_k**2 / gamma)`."""
        s, mask, weights = self._neutral(s, mask, weights)
        at_s, q = self._softmax(s, mask, weights), self.scaling(s)
        log_mass = at_s.exponent + self._log_shares(s.dtype)
        log_p = log_mass - at_s.exact_log_total + tf.math.log(tf.where(mask, weights, 1.0))
        spread = q * (-tf.math.expm1(log_p) * q / self.gamma)
        return tf.where(mask, at_s.times(self.scaling.slope(s) + spread), 0.0)

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
                return u * self._difference(z, s, mask, weights, pair), -u * in_s

            pair = self._compare(z, s, mask, weights)
            return self.gamma * pair.kl + masked_sum(pair.p_s.times(pair.area), mask), gradient

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
                return u * (self.scaling(z) * self._change(z, s, mask, weights)), -u * in_s

            at_s, at_z = self._softmax(s, mask, weights), self._softmax(z, mask, weights)
            surprise = at_z.exact_log_total - at_z.exponent
            return self.gamma * masked_sum(at_s.times(surprise), mask), gradient

        return f(z, s)

    def _difference(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, pair: Comparison
    ) -> tf.Tensor:
        """Computes `h(z) - h(s)`, of the shape of `z`, from their comparison."""

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                in_z = self._slope_times(z, upstream, mask, weights)
                return in_z, -self._slope_times(s, upstream, mask, weights)

            in_q = pair.p_z.times(self.scaling.stable_difference(z, s, z - s))
            return tf.where(mask, in_q + pair.change_times(self.scaling(s)), 0.0), gradient

        return f(z, s)

    def _change(self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Computes `p(z) - p(s)`, of the shape of `z`."""

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                in_z = self._share_slope_times(z, upstream, mask, weights)
                return in_z, -self._share_slope_times(s, upstream, mask, weights)

            change = self._compare(z, s, mask, weights).change_times(tf.ones_like(z))
            return tf.where(mask, change, 0.0), gradient

        return f(z, s)

    def _compare(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> Comparison:
        p_z, p_s = self._softmax(z, mask, weights), self._softmax(s, mask, weights)
        return compare(self.scaling, self.gamma, z, s, p_z, p_s)

    def _softmax(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> Softmax:
        """Computes the weighted softmax of `Q(s) / gamma`, relative to the item of the largest."""
        s_top = tf.stop_gradient(self._top(s, mask))
        a, size = (tf.where(mask, x / self.gamma, 0.0) for x in self._rise(s, s_top))
        weights = tf.where(mask, weights, 0.0)
        if self.log_rho is None:
            root, top_mass = tf.sqrt(weights) * tf.exp(0.5 * a), tf.where(s == s_top, weights, 0.0)
            return Softmax.of(a, size, root, top_mass)
        log_mass = tf.where(mask, a + self._log_shares(s.dtype), s.dtype.min)
        top = tf.reduce_max(log_mass, axis=-1, keepdims=True)
        root = tf.sqrt(weights) * tf.exp(0.5 * (log_mass - top))
        return Softmax.of(a, size, root, tf.where(log_mass == top, weights, 0.0)).raised(top)

    def _log_shares(self, dtype: tf.DType) -> tf.Tensor:
        """Returns `log_rho / gamma`, relative to the largest; one number if there is none."""
        log_rho = tf.constant(self.log_rho or [0.0], dtype)
        return (log_rho - tf.reduce_max(log_rho)) / self.gamma

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
        falls = self.scaling.rise(lowest, highest, lowest - highest) > 0.0
        return tf.where(falls, lowest, highest)

    def _rise(self, s: tf.Tensor, s_top: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes `Q(s) - Q(s_top)` without subtracting two huge numbers, and its terms' size."""
        rise = bregman.with_derivative(
            lambda s: self.scaling.rise(s, s_top, s - s_top), self.scaling, s
        )
        if self.scaling.image[0] >= 0.0 or self.scaling.mirror is not None:
            return rise, tf.abs(rise)
        # Q falls and rises, so it may be nearly equal at scores far from each other
        return rise, self.scaling.rise_of_terms(s, s_top, s - s_top)[1]

    def _slope_times(
        self, s: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the product of `h'(s)`, the Hessian of the potential, and `v`."""
        q = self.scaling(s)
        spread = self._share_slope_times(s, tf.where(mask, q * v, 0.0), mask, weights)
        in_q = self._softmax(s, mask, weights).times(self.scaling.slope(s) * v)
        return tf.where(mask, in_q + spread, 0.0)

    def _share_slope_times(
        self, s: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the product of the transposed derivative of `p(s)` and `v`."""
        at_s = self._softmax(s, mask, weights)
        centred = v - row_sum(at_s.times(v))
        return tf.where(mask, at_s.times(self.scaling(s) * centred) / self.gamma, 0.0)

    def _neutral(
        self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Replaces masked scores by a harmless score, to avoid overflow.

        Items of weight 0 are also masked.
        """
        if self.log_rho is not None and s.shape[-1] not in (None, len(self.log_rho)):
            raise ValueError(
                "`log_rho` must have a number for each place of a list. Received: "
                f"{len(self.log_rho)} numbers, scores of shape {s.shape}"
            )
        mask = mask & (weights > 0.0)
        return tf.where(mask, s, self.scaling.origin), mask, weights
