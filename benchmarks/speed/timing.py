"""Times a step of SoftRank and of direct loss minimisation, per list, by list size."""

import time
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfrank_sel import losses

BATCH_SIZE = 16
SIZES = (50, 100, 200)
LOSSES = (losses.SoftmaxLoss(), losses.SoftRankLoss(), losses.DirectAPLoss())


def seconds(loss: losses.ListwiseLoss, size: int) -> Iterator[float]:
    """The time that loss and gradient of a batch take, again and again."""
    rng = np.random.default_rng(size)
    labels = tf.constant(rng.random((BATCH_SIZE, size)) < 0.1, tf.float32)
    scores = tf.Variable(rng.normal(size=(BATCH_SIZE, size)), dtype=tf.float32)
    while True:
        start = time.perf_counter()
        with tf.GradientTape() as tape:
            value = loss(labels, scores)
        tape.gradient(value, scores).numpy()
        yield time.perf_counter() - start


def main() -> None:
    print("| milliseconds a list |" + "".join(f" {size} items |" for size in SIZES))
    print("|---|" + "---|" * len(SIZES))
    for loss in LOSSES:
        cells = []
        for size in SIZES:
            times = seconds(loss, size)
            next(times), next(times)  # compiles both halves
            best = min(next(times) for _ in range(8))
            cells.append(f" {1e3 * best / BATCH_SIZE:.3f} |")
        print(f"| {type(loss).__name__} |" + "".join(cells))


if __name__ == "__main__":
    main()
