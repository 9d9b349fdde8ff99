"""Handwritten JAX peers, with the arguments of the programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.gpu import xla
from benchmarks.speed.gpu.cases import RATE, TOP_K
from benchmarks.speed.interleaved import Call

Array = jax.Array


def cross_entropy(scores: Array, labels: Array) -> Array:
    """Mean cross-entropy of normalised grades."""
    grades = labels.astype(scores.dtype)
    targets = grades / jnp.maximum(grades.sum(axis=-1, keepdims=True), 1.0)
    return -(targets * jax.nn.log_softmax(scores)).sum(axis=-1).mean()


def class_cross_entropy(scores: Array, labels: Array) -> Array:
    """Mean cross-entropy of the indices of classes."""
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=-1).mean()


def list_mle(scores: Array, labels: Array) -> Array:
    """Negative log-likelihood of the order of the labels, by a sort and one scan."""
    order = jnp.argsort(-labels, axis=-1, stable=True)
    sorted_scores = jnp.take_along_axis(scores, order, axis=-1)
    rest = jax.lax.cumlogsumexp(sorted_scores, axis=1, reverse=True)
    return (rest - sorted_scores).sum(axis=-1).mean()


def pairwise_logistic(scores: Array, labels: Array) -> Array:
    """Mean logistic loss over all pairs, held in memory at once."""
    better = labels[:, :, None] > labels[:, None, :]
    cost = jax.nn.softplus(scores[:, None, :] - scores[:, :, None])
    counts = jnp.maximum(better.sum(axis=(1, 2)), 1)
    return (jnp.where(better, cost, 0.0).sum(axis=(1, 2)) / counts).mean()


def top_k_recurrence(scores: Array, labels: Array) -> Array:
    """The smooth top-k loss by the recurrence over items as it stands, in linear space."""
    is_label = labels[:, None] == jnp.arange(scores.shape[1])
    odds = jnp.where(is_label, 0.0, jnp.exp(scores / TOP_K))

    def add_item(sums: Array, item: Array) -> tuple[Array, None]:
        return sums.at[:, 1:].add(item[:, None] * sums[:, :-1]), None

    start = jnp.zeros((len(scores), TOP_K + 1), scores.dtype).at[:, 0].set(1.0)
    logs = jnp.log(jax.lax.scan(add_item, start, odds.T)[0])
    label = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0] / TOP_K
    return jax.nn.softplus(1.0 + logs[:, TOP_K] - logs[:, TOP_K - 1] - label).mean()


def mlp_step(*arguments: Array) -> tuple[Array, ...]:
    """A step of the network of `ListScorer` alone, over three copies of the features."""
    *weights, x, labels = arguments

    def loss(weights: list[Array]) -> Array:
        values = jnp.concatenate([x, x, x], axis=-1)
        *hidden, (kernel, bias) = zip(weights[::2], weights[1::2], strict=True)
        for w, b in hidden:
            values = jax.nn.relu(values @ w + b)
        return cross_entropy((values @ kernel + bias)[..., 0], labels)

    value, slopes = jax.value_and_grad(loss)(weights)
    return value, *(w - RATE * g for w, g in zip(weights, slopes, strict=True))


PEERS: dict[str, Callable[..., Any]] = {
    "cross-entropy": jax.value_and_grad(cross_entropy),
    "cross-entropy of classes": jax.value_and_grad(class_cross_entropy),
    "ListMLE": jax.value_and_grad(list_mle),
    "pairwise logistic": jax.value_and_grad(pairwise_logistic),
    "top-k recurrence": jax.value_and_grad(top_k_recurrence),
    "MLP step": mlp_step,
}


def calling(
    peers: Mapping[str, Callable[..., Any]],
) -> Callable[[str, Sequence[np.ndarray], int], Call]:
    """Returns a function that makes so many calls of a peer, and waits for them."""

    def queued(name: str, arguments: Sequence[np.ndarray], count: int) -> Call:
        arrays = jax.device_put(arguments)
        return xla.queued(xla.jitted(peers[name], arrays), arrays, count)

    return queued


queued = calling(PEERS)
