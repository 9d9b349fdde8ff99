"""Accuracy on rare classes of the n-way losses and of cross-entropy with and without weights.

A linear model on overlapping Gaussians: balanced accuracy and worst recall, over six seeds. The
class means are those of one seed, chosen for their difficulty alone: the plain cross-entropy is as
good there as in the table that this one is held against.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel import losses

COUNTS = ((300, 300, 300), (2000, 200, 20), (2000, 20), (3000, 300, 100, 30, 10))
SEEDS = range(6)
TEST_ROWS = 2000
MEANS = 0.9 * np.random.default_rng(11).normal(size=(5, 5))
STEPS = 1000


def class_weights(counts: Sequence[int]) -> list[float]:
    return [1.0 / n for n in counts]


class WeightedRows:
    """Cross-entropy whose rows have the weights of their classes."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.weights = tf.constant(class_weights(counts), tf.float32)
        self.loss = losses.SoftmaxLoss(reduction="sum")

    def __call__(self, labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        return self.loss(labels, scores, tf.linalg.matvec(labels, self.weights))


LOSSES: dict[str, Callable[[Sequence[int]], Any]] = {
    "cross-entropy": lambda counts: losses.SoftmaxLoss(),
    "class-weighted cross-entropy": WeightedRows,
    "NWayJointLoss": lambda counts: losses.NWayJointLoss(),
    "NWayMeanLoss": lambda counts: losses.NWayMeanLoss(),
    "NWayPairwiseLoss": lambda counts: losses.NWayPairwiseLoss(),
    "class-weighted NWayPairwiseLoss": lambda counts: losses.NWayPairwiseLoss(
        class_weights=class_weights(counts)
    ),
}


def rows(counts: Sequence[int], rng: np.random.Generator) -> tuple[Any, Any]:
    """Features, with a constant one, and the class of each row."""
    classes = np.repeat(np.arange(len(counts)), counts)
    features = MEANS[classes] + rng.normal(size=(len(classes), MEANS.shape[1]))
    features = np.column_stack([features, np.ones(len(classes))])
    return features.astype(np.float32), classes


def fit(loss: Any, features: Any, classes: Any, num_classes: int) -> Any:
    """Minimises the loss of all rows over the weights of a linear model, by Adam."""
    x, labels = tf.constant(features), tf.one_hot(classes, num_classes)
    weights = tf.Variable(tf.zeros([features.shape[1], num_classes]))

    @tf.function(autograph=False)
    def step(momentum: tf.Tensor, square: tf.Tensor, t: tf.Tensor) -> tuple[tf.Tensor, ...]:
        with tf.GradientTape() as tape:
            value = loss(labels, x @ weights)
        gradient = tape.gradient(value, weights)
        momentum = 0.9 * momentum + 0.1 * gradient
        square = 0.99 * square + 0.01 * tf.square(gradient)
        rate = 0.1 * (1.0 - t / STEPS) * tf.sqrt(1.0 - 0.99 ** (t + 1.0)) / (1.0 - 0.9 ** (t + 1.0))
        weights.assign_sub(rate * momentum / (tf.sqrt(square) + 1e-12))
        return momentum, square

    state = tf.zeros_like(weights), tf.zeros_like(weights)
    for t in range(STEPS):
        state = step(*state, tf.constant(float(t)))
    return weights.numpy()


def recalls(name: str, counts: tuple[int, ...]) -> Any:
    """The recall of each class on balanced test rows, `[seeds, classes]`."""
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        weights = fit(LOSSES[name](counts), *rows(counts, rng), len(counts))
        features, classes = rows([TEST_ROWS] * len(counts), rng)
        hits = np.argmax(features @ weights, axis=1) == classes
        found.append(hits.reshape(len(counts), TEST_ROWS).mean(axis=1))
    return np.array(found)


def cell(values: Any) -> str:
    """Mean and standard deviation over seeds of balanced accuracy, and of the worst recall."""
    parts = (values.mean(axis=1), values.min(axis=1))
    return " / ".join(f"{part.mean():.3f}±{part.std(ddof=1):.3f}" for part in parts)


def main() -> None:
    print("| loss |" + "".join(f" {':'.join(map(str, counts))} |" for counts in COUNTS))
    print("|---|" + "---|" * len(COUNTS))
    for name in LOSSES:
        cells = (cell(recalls(name, counts)) for counts in COUNTS)
        print(f"| {name} |" + "".join(f" {text} |" for text in cells), flush=True)


if __name__ == "__main__":
    main()
