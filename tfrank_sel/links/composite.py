"""The link of a list: composite Softmax, the gradient of a log-sum-exp of scaled scores."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.links.base import Link
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

    Raises:
        ValueError: If `gamma` is not positive.
    """

    scaling: Link
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not self.gamma > 0.0:
            raise ValueError(f"`gamma` must be positive. Received: gamma={self.gamma}")

    def __call__(self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        s, mask = self._neutral(s, mask, weights)
        return self.scaling(s) * self._softmax(s, mask, weights).p

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

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                u = upstream[:, tf.newaxis]
                in_s = self._slope_times(s, z - s, mask, weights)
                return u * self.difference(z, s, mask, weights), -u * in_s

            return self._evaluate(z, s, mask, weights)[0], gradient

        return f(z, s)

    def difference(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes `h(z) - h(s)`, of the shape of `z`, from the arguments of `divergence`."""

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                in_z = self._slope_times(z, upstream, mask, weights)
                return in_z, -self._slope_times(s, upstream, mask, weights)

            return self._evaluate(z, s, mask, weights)[1], gradient

        return f(z, s)

    def _evaluate(
        self, z: tf.Tensor, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the divergence and the difference, by the identity that keeps their digits.

            divergence = gamma * KL(p(s) || p(z)) + sum_k p_k(s) * D_Q(z_k, s_k)

        Every term is at least 0. The logarithm `w` of `p(z) / p(s)` comes from the changes of `Q`
        where they are small, else from the two softmaxes: whichever subtracts smaller numbers.
        """
        z, mask = self._neutral(z, mask, weights)
        s, _ = self._neutral(s, mask, weights)
        q, area = self.scaling(s), self.scaling.divergence(z, s)
        at_s, at_z = self._softmax(s, mask, weights), self._softmax(z, mask, weights)
        p, p_z = at_s.p, at_z.p
        w = self._log_ratio(q * (z - s) + area, at_s, at_z, mask)
        # sum p * (exp(w) - 1 - w) = KL, since both p and p_z sum to 1
        near = p * bregman.expm1_remainder(tf.minimum(w, 1.0))
        kl = masked_sum(tf.where(w > 1.0, p_z - p * (1.0 + w), near), mask)
        value = self.gamma * kl + masked_sum(p * area, mask)
        change = tf.where(
            tf.abs(w) < 1.0, p * tf.math.expm1(tf.clip_by_value(w, -1.0, 1.0)), p_z - p
        )
        return value, tf.where(mask, self.scaling.difference(z, s) * p_z + q * change, 0.0)

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
        rise = self.scaling(s_top) * (s - s_top) + self.scaling.divergence(s, s_top)
        # a rises above 0 by the rounding of Q alone; clipped, it cannot overflow either way
        a = tf.where(mask, tf.clip_by_value(rise / self.gamma, 0.1 * s.dtype.min, 60.0), 0.0)
        mass = tf.where(mask, weights * tf.exp(a), 0.0)
        mass_top = masked_sum(mass, top)[:, tf.newaxis]
        mass_top = tf.where(mass_top > 0.0, mass_top, 1.0)  # a list without a valid item
        rest = masked_sum(mass, ~top)[:, tf.newaxis] / mass_top
        log_p = tf.where(mask, a - tf.math.log(mass_top) - tf.math.log1p(rest), 0.0)
        return _Softmax(log_p, tf.where(mask, weights * tf.exp(log_p), 0.0), top)

    def _slope_times(
        self, s: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the product of `h'(s)`, the Hessian of the potential, and `v`."""
        s, mask = self._neutral(s, mask, weights)
        p, q = self._softmax(s, mask, weights).p, self.scaling(s)
        qv = tf.where(mask, q * v, 0.0)
        centred = qv - tf.reduce_sum(p * qv, axis=-1, keepdims=True)
        return tf.where(mask, p * (self.scaling.slope(s) * v + q * centred / self.gamma), 0.0)

    def _neutral(
        self, s: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts 0 in masked slots before anything can overflow there; weight 0 is masked, too."""
        mask = mask & (weights > 0.0)
        return tf.where(mask, s, 0.0), mask


class _Softmax(NamedTuple):
    log_p: tf.Tensor  # of one of the copies that an item's weight stands for; 0 where masked
    p: tf.Tensor  # of all copies together; 0 where masked
    top: tf.Tensor  # True at the item of the largest potential, the first of equals
