"""Soft k-th largest score: the logarithm of a ratio of symmetric polynomials."""

import math
from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.ops.symmetric import lanes, series
from tfrank_sel.ops.symmetric.blocks import in_blocks
from tfrank_sel.ops.symmetric.centre import centre
from tfrank_sel.ops.symmetric.logarithms import log_symmetric

EXACT_TERMS = {tf.float32: 14, tf.float64: 27}  # of the light series, at odds up to 1/4


def soft_kth_largest(x: tf.Tensor, k: int, scale: tf.Tensor | float = 1.0) -> tf.Tensor:
    """Computes the soft `k`-th largest score of each list.

    ```
    T = scale * (log sigma_k(exp(x / scale)) - log sigma_{k-1}(exp(x / scale)))
    s_(k) - scale * log(k) <= T <= s_(k) + scale * log(n - k + 1)
    ```

    where `s_(k)` is the `k`-th largest of the `n` scores. With a scale of 1 it is the logarithm of
    the ratio of two elementary symmetric polynomials. Its derivative by `x_j` is the probability
    that item `j` is among `k` items, less that it is among `k - 1`, which are sampled with odds
    `exp(x / scale)`.

    Args:
        x: Scores, `[batch_size, list_size]`, float32 or float64; -inf for an absent item.
        k: The rank; positive.
        scale: Softness, positive: a scalar, which may be a tensor.

    Returns:
        The soft score, `[batch_size]`, in float64 for any dtype of `x`, because it may be compared
        with nearly equal scores; -inf for a list of fewer than `k` items. Gradients take one pass
        over `x`; higher derivatives use `log_symmetric`, at its cost.

    Raises:
        ValueError: If `k` is not positive.
    """
    return soft_kth_largest_beside(x, tf.fill([tf.shape(x)[0]], -1), k, scale)[0]


def soft_kth_largest_beside(
    x: tf.Tensor, item: tf.Tensor, k: int, scale: tf.Tensor | float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the soft `k`-th largest score of all items but one, and the score of that item.

    Both are results of one function, so that their gradients take one pass over the scores.

    Args:
        x: As in `soft_kth_largest`.
        item: Index of the item that is left out, `[batch_size]`, int32; -1 for none.
        k: As in `soft_kth_largest`.
        scale: As in `soft_kth_largest`.

    Returns:
        The soft score of the others and the score of the item, both `[batch_size]` and float64.
    """
    if k < 1:
        raise ValueError(f"`k` must be positive. Received: k={k}")
    if not tf.is_tensor(scale):
        scale = tf.constant(scale, tf.float64)  # a cast would make it float32 first
    scale = tf.cast(scale, tf.float64)

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], object]:
        forward = _forward(x, item, k, scale)

        def vjp(*upstream: tf.Tensor) -> tf.Tensor:
            return _differentiable_gradient(x, item, k, scale, forward, *upstream)

        return (forward.kth, _score_of(x, item)), vjp

    return f(x)


class _Forward(NamedTuple):
    """Results of the forward pass for the gradient; all but `inverse_scale` are per list."""

    kth: tf.Tensor  # the soft score; -inf if there are too few items
    t: tf.Tensor  # the centre
    top: tf.Tensor  # the largest score
    series: series.Series
    inverse_scale: tf.Tensor


def _forward(x: tf.Tensor, item: tf.Tensor, k: int, scale: tf.Tensor) -> _Forward:
    inverse_scale = tf.cast(1.0 / scale, x.dtype)
    plan = lanes.plan_of(x.shape[1], k, x.dtype)

    def log_odds(x: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
        return (x - t[:, tf.newaxis]) * inverse_scale

    def grow(x: tf.Tensor, item: tf.Tensor) -> tuple[tf.Tensor, ...]:
        x = _others(x, item)
        t, top = centre(x, k, inverse_scale)
        # One tensor: without a gradient, unused results are dropped, and XLA can merge the loop
        # with # that of the gradient only if both return the same.
        extent = tf.stack([t, top], axis=1)
        return extent, lanes.lanes_of(log_odds(x, t), tf.reduce_any(top > t), k, plan)

    def grow_fully(x: tf.Tensor, item: tf.Tensor, t: tf.Tensor) -> tuple[tf.Tensor]:
        return (lanes.full_lanes_of(log_odds(_others(x, item), t), plan),)

    def full_lanes() -> tf.Tensor:
        return in_blocks(grow_fully, x, item, t, to=[(plan.full_degree + 1, plan.lanes)])[0]

    extent, cut = in_blocks(grow, x, item, to=[(2,), (plan.degree + 1, plan.lanes)])
    t, top = tf.unstack(extent, axis=1)
    product = lanes.coefficients(cut, full_lanes, k, plan)
    exists = (product[:, k] > 0.0) & (product[:, k - 1] > 0.0)
    product = tf.where(exists[:, tf.newaxis], product, 1.0)
    log_ratio = tf.math.log(product[:, k] / product[:, k - 1])
    kth = tf.where(exists, tf.cast(t, tf.float64) + scale * log_ratio, -math.inf)
    return _Forward(kth, t, top, series.series_of(product, k, plan, x.dtype), inverse_scale)


def _gradient(
    x: tf.Tensor, item: tf.Tensor, forward: _Forward, for_kth: tf.Tensor, for_item: tf.Tensor
) -> tf.Tensor:
    """Computes the gradient of the scores from those of both outputs, in one pass."""
    of_list, inverse_scale = forward.series, forward.inverse_scale
    for_kth = tf.where(forward.kth > -math.inf, for_kth, 0.0)
    for_kth, for_item = (tf.cast(y, x.dtype)[:, tf.newaxis] for y in (for_kth, for_item))
    top = (forward.top - forward.t) * inverse_scale + of_list.shift
    most = of_list.light.shape[1]
    terms = min(EXACT_TERMS[x.dtype], most)

    def finish(light: bool) -> tf.Tensor:
        u = (x - forward.t[:, tf.newaxis]) * inverse_scale + of_list.shift[:, tf.newaxis]
        if light:
            slope = series.derivative_of_light(u, of_list, terms)
        else:
            slope = series.derivative(u, of_list)
        return tf.where(_is(item, x), for_item, for_kth * slope)

    return tf.cond(
        tf.reduce_all(top <= (0.0 if terms == most else math.log(0.25))),
        lambda: finish(light=True),
        lambda: finish(light=False),
    )


def _differentiable_gradient(
    x: tf.Tensor,
    item: tf.Tensor,
    k: int,
    scale: tf.Tensor,
    forward: _Forward,
    *upstream: tf.Tensor,
) -> tf.Tensor:
    """Computes the gradient, whose derivatives use the plain form of the function."""

    @tf.custom_gradient
    def f(x: tf.Tensor, *upstream: tf.Tensor) -> tuple[tf.Tensor, object]:
        def vjp(direction: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as outer:
                outer.watch([x, *upstream])
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    outputs = _plain(x, item, k, scale)
                slope = inner.gradient(outputs, x, output_gradients=list(upstream))
                along = tf.reduce_sum(slope * direction)
            zero = tf.UnconnectedGradients.ZERO
            return outer.gradient(along, [x, *upstream], unconnected_gradients=zero)

        return _gradient(x, item, forward, *upstream), vjp

    return f(x, *upstream)


def _plain(x: tf.Tensor, item: tf.Tensor, k: int, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes both outputs with differentiable operations."""
    logs = log_symmetric(_others(tf.cast(x, tf.float64), item) / scale, k)
    exists = logs[:, k] > -math.inf
    at_k, before = (tf.where(exists, y, 0.0) for y in (logs[:, k], logs[:, k - 1]))
    return tf.where(exists, scale * (at_k - before), -math.inf), _score_of(x, item)


def _others(x: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    return tf.where(_is(item, x), tf.constant(-math.inf, x.dtype), x)


def _is(item: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.range(tf.shape(x)[1], dtype=item.dtype) == item[:, tf.newaxis]


def _score_of(x: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    scores = tf.gather(x, tf.maximum(item, 0), batch_dims=1)
    return tf.cast(tf.where(item >= 0, scores, 0.0), tf.float64)
