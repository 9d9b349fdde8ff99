"""Diagonal of the Hessian of a loss: in closed form, or by probes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel import losses
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.losses.pairwise import PairwiseLoss
from tfrank_sel.ops import masking

STEP = 1 / 32  # of a central difference: float32 keeps four digits of it
SEPARABLE = (  # losses of a diagonal Hessian
    losses.DecomposedMatchingLoss,
    losses.FenchelYoungLoss,
    losses.MatchingLoss,
    losses.MeanSquaredLoss,
    losses.RG2Loss,
    losses.SelectiveSigmoidCrossEntropyLoss,
    losses.SelectiveSigmoidLoss,
    losses.SigmoidCrossEntropyLoss,
)


@functools.singledispatch
def diagonal(
    loss: ListwiseLoss, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor | None:
    """Computes the second derivative of `per_list` in each score, `[batch_size, list_size]`.

    Returns `None` for a loss without a closed form.
    """
    return None


@diagonal.register
def _(
    loss: losses.SoftmaxLoss,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    if loss.lambda_weight is not None:
        labels = loss.lambda_weight.items(labels, scores, mask)
    targets = tf.where(mask, weights * loss.targets(labels, mask), 0.0)
    x = scores / loss.temperature
    spread = masking.softmax(x, mask) * masking.softmax_complement(x, mask)
    return tf.reduce_sum(targets, axis=-1, keepdims=True) * spread / loss.temperature**2


@diagonal.register
def _(
    loss: losses.RGCrossLoss,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    total = tf.reduce_sum(weights, axis=-1, keepdims=True)
    gains = tf.where(mask & (total > 0.0), loss.gain(labels), 0.0)
    shares = tf.math.divide_no_nan(weights, total)
    anchor = loss.alpha * tf.cast(mask & (loss.gain(labels) > 0.0), scores.dtype)
    return tf.reduce_sum(gains, axis=-1, keepdims=True) * shares * (1.0 - shares) + anchor


@diagonal.register
def _(
    loss: losses.SelectiveSoftmaxLoss,
    labels: tf.Tensor,
    scores: tf.Tensor,
    mask: tf.Tensor,
    weights: tf.Tensor,
) -> tf.Tensor:
    link = CompositeSoftmax(loss.scaling, loss.gamma, loss.log_rho, loss.allow_nonconvex)
    return link.sensitivity(scores, mask, weights)


@diagonal.register
def _(
    loss: PairwiseLoss, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    return loss.curvature(labels, scores, mask, weights)


def _of_separable(
    loss: ListwiseLoss, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    """Adds up the rows of a diagonal Hessian."""
    with tf.GradientTape() as outer:
        outer.watch(scores)
        with tf.GradientTape() as inner:
            inner.watch(scores)
            value = loss.per_list(labels, scores, mask, weights)
        slope = inner.gradient(value, scores)
    return outer.gradient(slope, scores, unconnected_gradients="zero")


for kind in SEPARABLE:
    diagonal.register(kind, _of_separable)


def estimate(
    gradient: Callable[[ListBatch], tf.Tensor], batch: ListBatch, signs: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the gradient, and estimates the diagonal of the Hessian `H` from other gradients.

    Args:
        gradient: Computes the gradient of lists in their scores.
        batch: The lists.
        signs: Vectors `z` of signs, of the shape of the scores. The diagonal is the mean of
            `z * (H z)` over them.
    """
    z = tf.stack(signs)
    moves = STEP * tf.concat([tf.zeros_like(z[:1]), z, -z], axis=0)
    copies = [tf.broadcast_to(x, [1 + 2 * len(signs), *x.shape]) for x in batch]
    moved = ListBatch(*copies)._replace(scores=batch.scores + moves)
    # all in one batch, so that the formula is compiled once
    slopes = gradient(ListBatch(*(tf.reshape(x, [-1, *x.shape[2:]]) for x in moved)))
    at, up, down = tf.split(tf.reshape(slopes, moves.shape), [1, len(signs), len(signs)])
    return at[0], tf.reduce_mean(z * (up - down), axis=0) / (2.0 * STEP)


def probes(count: int, shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
    """Returns vectors of random signs, `[lists, width]`, orthogonal in any `count` neighbours.

    The mean over the vectors `z` of `z * (H z)` estimates the diagonal of `H` without bias. It is
    exact for lists of at most `count` items; otherwise only items whose distance is a multiple of
    `count` disturb each other.

    Args:
        count: Number of vectors; a power of two.
        shape: Number of lists, and their width.
        seed: Seed of the signs, two integers.
        dtype: Type of the vectors.
    """
    uniform = tf.random.stateless_uniform(shape, seed, alg="philox")
    signs = tf.where(uniform < 0.5, tf.ones([], dtype), -tf.ones([], dtype))
    hadamard: NDArray[Any] = np.ones([1, 1])
    while len(hadamard) < count:
        hadamard = np.kron(hadamard, [[1, 1], [1, -1]])
    place = tf.range(shape[1]) % count
    return [signs * tf.gather(tf.constant(row, dtype), place) for row in hadamard]
