"""Competitors in `benchmarks.speed.topk`, each a compiled function of scores and labels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.ops import symmetric

Call = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def with_gradient(loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Call:
    @tf.function(jit_compile=True, autograph=False)
    def call(scores: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(scores, labels)
        return value, tape.gradient(value, scores)

    return call


def smooth_topk(k: int, tau: float, dtype: str = "float32") -> Call:
    """The public loss, as a model that is compiled with it calls it."""
    loss = losses.SmoothTopKLoss(k, tau, dtype=dtype)
    return with_gradient(lambda scores, labels: loss(labels, scores))


def softmax() -> Call:
    def loss(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))

    return with_gradient(loss)


def log_space(k: int, tau: float) -> Call:
    """The recurrence over items in logarithms, and its automatic gradient."""
    return plain(k, tau, lambda x: symmetric.log_symmetric(x, k))


def linear_space(k: int, tau: float) -> Call:
    """The recurrence over items as it stands, which overflows for a small tau or a large k."""

    def logs(x: tf.Tensor) -> tf.Tensor:
        start = tf.pad(tf.ones_like(x[:, :1]), [[0, 0], [0, k]])

        def add_item(sums: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
            return sums + item[:, tf.newaxis] * tf.pad(sums[:, :-1], [[0, 0], [1, 0]])

        return tf.math.log(tf.foldl(add_item, tf.transpose(tf.exp(x)), start))

    return plain(k, tau, logs)


def plain(k: int, tau: float, logs_of: Callable[[tf.Tensor], tf.Tensor]) -> Call:
    def loss(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        is_label = tf.one_hot(labels, scores.shape[1], on_value=True, off_value=False)
        x = scores / (k * tau)
        logs = logs_of(tf.where(is_label, -1e4, x))
        label = tf.reduce_sum(tf.where(is_label, x, 0.0), axis=1)
        z = 1.0 / tau + logs[:, k] - logs[:, k - 1] - label
        return tf.reduce_mean(tau * tf.math.softplus(z))

    return with_gradient(loss)


def errors(call: Call, scores: tf.Tensor, labels: tf.Tensor, k: int, tau: float) -> dict[str, Any]:
    """The largest errors over a few lists, against the recurrence in float64.

    That of the loss is relative to it, that of the gradient to its largest entry.
    """
    rows = slice(0, 4)
    scores, labels = scores[rows], labels[rows]
    value, grad = call(scores, labels)
    exact, exact_grad = reference(scores.numpy(), labels.numpy(), k, tau)
    size = np.max(np.abs(exact_grad), axis=1, keepdims=True)
    return {
        "loss_error": abs(float(value) - exact) / exact,
        "gradient_error": float(np.max(np.abs(grad.numpy() - exact_grad) / size)),
    }


def reference(
    scores: np.ndarray, labels: np.ndarray, k: int, tau: float
) -> tuple[float, np.ndarray]:
    """The loss and its gradient by prefixes and suffixes of the recurrence, scaled, in float64."""
    grads, values = np.zeros(scores.shape), []
    for row, (s, y) in enumerate(zip(scores.astype(np.float64), labels, strict=True)):
        competitors = np.delete(s, y)
        x = competitors / (k * tau)
        t = np.sort(x)[-k:].mean()
        prefix, suffix = (recurrence(np.exp(v - t), k) for v in (x, x[::-1]))
        sums = prefix[-1]
        before, after = prefix[:-1], suffix[::-1][1:]
        chance = {
            m: np.exp(x - t) * sum(before[:, i] * after[:, m - 1 - i] for i in range(m)) / sums[m]
            for m in (k - 1, k)
        }
        z = 1.0 / tau + t + np.log(sums[k] / sums[k - 1]) - s[y] / (k * tau)
        values.append(tau * np.logaddexp(0.0, z))
        slope = 1.0 / (1.0 + np.exp(-z)) / k / len(scores)
        grads[row] = np.insert(slope * (chance[k] - chance[k - 1]), y, -slope)
    return float(np.mean(values)), grads


def recurrence(odds: np.ndarray, k: int) -> np.ndarray:
    """The polynomials of degrees 0 to k of the first 0, 1, ... items."""
    sums = np.zeros([len(odds) + 1, k + 1])
    sums[0, 0] = 1.0
    for i, w in enumerate(odds):
        sums[i + 1] = sums[i]
        sums[i + 1, 1:] += w * sums[i, :-1]
    return sums
