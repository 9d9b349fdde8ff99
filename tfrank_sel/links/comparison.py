"""Accurate comparison of two softmaxes of a scaling, whether they are close or not."""

from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.ops import bregman


class Softmax(NamedTuple):
    """Weighted softmaxes, `[batch_size, list_size]`; compilation removes unused parts.

    Attributes:
        exponent: `Q / gamma`, relative to the largest of the list; 0 where masked.
        size: The size of the terms of which the exponent is the sum.
        log_total: Logarithm of the sum of `w * exp(exponent)` of each list, `[batch_size, 1]`.
        exact_log_total: The same, with all digits where an item has nearly all of the probability.
        root: Square root of the probability; 0 where masked.
    """

    exponent: tf.Tensor
    size: tf.Tensor
    log_total: tf.Tensor
    exact_log_total: tf.Tensor
    root: tf.Tensor

    @classmethod
    def of(
        cls, exponent: tf.Tensor, size: tf.Tensor, root_mass: tf.Tensor, top_mass: tf.Tensor
    ) -> "Softmax":
        """Normalises masses, given by their square roots, and to the last digit at the top."""
        mass = tf.square(root_mass)
        total, at_top = row_sum(mass), row_sum(top_mass)
        # a list without a valid item has none
        total, at_top = (tf.where(x > 0.0, x, 1.0) for x in (total, at_top))
        below = row_sum(tf.where(top_mass > 0.0, tf.zeros_like(mass), mass)) / at_top
        exact_log_total = tf.math.log(at_top) + tf.math.log1p(below)
        root = root_mass * tf.math.rsqrt(total)
        return cls(exponent, size, tf.math.log(total), exact_log_total, root)

    def raised(self, by: tf.Tensor) -> "Softmax":
        """Returns the softmax of masses that are `exp(by)` times as large."""
        log_total, exact = self.log_total + by, self.exact_log_total + by
        return self._replace(log_total=log_total, exact_log_total=exact)

    def times(self, x: tf.Tensor) -> tf.Tensor:
        """Computes `p * x`, even if `p` underflows and the product does not."""
        return self.root * x * self.root


class Comparison(NamedTuple):
    """The softmaxes at predicted scores `z` and observed scores `s`, and their differences.

    Attributes:
        p_z: The softmax at `z`.
        p_s: The softmax at `s`.
        area: Divergence `D_Q(z, s)` of the scaling, of each item.
        kl: `KL(p(s) || p(z))` of each list, `[batch_size]`.
        is_near: Mask of the items for which `excess` is valid.
        excess: `p(z) / p(s) - 1`.
    """

    p_z: Softmax
    p_s: Softmax
    area: tf.Tensor
    kl: tf.Tensor
    is_near: tf.Tensor
    excess: tf.Tensor

    def change_times(self, x: tf.Tensor) -> tf.Tensor:
        """Computes `(p(z) - p(s)) * x`."""
        far = self.p_z.times(x) - self.p_s.times(x)
        return tf.where(self.is_near, self.p_s.times(x * self.excess), far)


def compare(
    q: Link, gamma: float, z: tf.Tensor, s: tf.Tensor, p_z: Softmax, p_s: Softmax
) -> Comparison:
    """Compares two softmaxes of a scaling `q`, of potential `Q`.

    With `u = log(p(z) / p(s))` relative to that of the most likely item `r`,

        p(s) * exp(u) = p(z) * p_r(s) / p_r(z)

    If the left side underflows, the right side does not. If the right side has lost the digits of a
    small change, the left side, a series in `u`, has not.
    """
    area = q.stable_divergence(z, s, z - s)
    u, log_lost = _log_ratio(q, gamma, z, s, p_z, p_s)
    # KL directly; relative to its mean v, it is also log sum p(s) * exp(v), as sum p(s) * v = 0
    far_kl = p_z.log_total - p_s.log_total - row_sum(p_s.times(p_z.exponent - p_s.exponent))
    v = u - row_sum(p_s.times(u))
    is_near, exp_v = _grown(v, far_kl, p_z, p_s)
    series = bregman.expm1_series(v)
    growth = row_sum(tf.where(is_near, p_s.times(series), exp_v - p_s.times(1.0 + v)))
    kl = tf.where(far_kl > 0.5, far_kl, tf.math.log1p(growth))
    # p(z) / p(s) = exp(u) / sum p(s) * exp(u)
    is_near, exp_u = _grown(u, log_lost, p_z, p_s)
    rise = u + bregman.expm1_series(u)
    total = row_sum(tf.where(is_near, p_s.times(rise), exp_u - tf.square(p_s.root)))
    excess = (rise - total) / (1.0 + total)
    return Comparison(p_z, p_s, area, kl[:, 0], is_near & (log_lost < 1.0), excess)


def _grown(
    u: tf.Tensor, log_factor: tf.Tensor, p_z: Softmax, p_s: Softmax
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes `p(s) * exp(u)`: a mask of where it is a series in `u`, else from `p(z)`."""
    is_near = (tf.abs(u) < 1.0) & (p_s.root > 0.0)
    return is_near, p_z.times(tf.exp(tf.minimum(log_factor, 1.0)))


def _log_ratio(
    q: Link, gamma: float, z: tf.Tensor, s: tf.Tensor, p_z: Softmax, p_s: Softmax
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes `log(p(z) / p(s))` relative to that of the most likely item `r`; 0 where `p(s)` is
    0.

    It is the difference of the exponents, or `Q(z_k) - Q(s_k) - (Q(z_r) - Q(s_r))` by changes: from
    `s` to `z`, or from `r` to `k`. The first cancels for small changes, the second for items near
    each other, the third for items far from each other: the form with the smallest terms is used.
    If the potential is even, all scores are mirrored to the side of 0, where floats are more
    precise. The second result is `log(p_r(s) / p_r(z))`.
    """
    lowest, at_z, at_s = s.dtype.min, p_z.exponent, p_s.exponent
    is_r = p_s.root == _largest(p_s.root)
    s_r = _largest(tf.where(is_r, s, lowest))
    is_r &= s == s_r
    z_r = _largest(tf.where(is_r, z, lowest))
    is_r &= z == z_r
    z_top, s_top = (_largest(tf.where(is_r, x, lowest)) for x in (at_z, at_s))
    u, size = (at_z - z_top) - (at_s - s_top), p_z.size + p_s.size
    size += _largest(tf.where(is_r, size, 0.0))
    # in float64 the difference of two errors is exact
    z, s, z_r, s_r = (q.folded(tf.cast(x, tf.float64)) for x in (z, s, z_r, s_r))
    for b, a, b_r, a_r in ((z, s, z_r, s_r), (z, z_r, s, s_r)):
        change = _change_between(q, b, a, b_r, a_r, u.dtype)
        by_change, its_size = (x / gamma for x in change)
        u, size = tf.where(its_size < size, by_change, u), tf.minimum(its_size, size)
    if q.kinks:  # on two sides of a kink, a step and its divergence may cancel
        (rise, size_k), (rise_r, size_r) = (
            q.rise_of_terms(*(tf.cast(x, u.dtype) for x in (b, a, b - a)))
            for b, a in ((z, s), (z_r, s_r))
        )
        u = tf.where((size_k + size_r) / gamma < size, (rise - rise_r) / gamma, u)
    log_lost = (p_z.log_total - p_s.log_total) + (s_top - z_top)
    return tf.where(p_s.root > 0.0, u, 0.0), log_lost


def _change_between(
    q: Link, b: tf.Tensor, a: tf.Tensor, b_r: tf.Tensor, a_r: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes `Q(b) - Q(a) - (Q(b_r) - Q(a_r))`, and the size of its terms.

    With the steps `d = b - a`, it is `D - D_r` and `q(a) * d - q(a_r) * d_r`, or for steps that are
    nearly the same `q(a) * (d - d_r) + (q(a) - q(a_r)) * d_r`.
    """
    d, d_r = b - a, b_r - a_r
    beside, away = d - d_r, a - a_r
    b, a, b_r, a_r, d, d_r, beside, away = (
        tf.cast(x, dtype) for x in (b, a, b_r, a_r, d, d_r, beside, away)
    )
    along, turn = q(a) * beside, q.stable_difference(a, a_r, away) * d_r
    own, other = q(a) * d, -q(a_r) * d_r
    alone = tf.abs(own) + tf.abs(other) < tf.abs(along) + tf.abs(turn)
    along, turn = tf.where(alone, own, along), tf.where(alone, other, turn)
    area, area_r = q.stable_divergence(b, a, d), q.stable_divergence(b_r, a_r, d_r)
    size = tf.abs(along) + tf.abs(turn) + tf.abs(area) + tf.abs(area_r)
    return (along + turn) + (area - area_r), size


def row_sum(x: tf.Tensor) -> tf.Tensor:
    """Sums each list, `[batch_size, 1]`."""
    return tf.reduce_sum(x, axis=-1, keepdims=True)


def _largest(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(x, axis=-1, keepdims=True)
