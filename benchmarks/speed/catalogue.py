"""Memory and time of a training step over all items of a catalogue, from states and item vectors.

    python -m benchmarks.speed.catalogue [--sizes 10000 41000 100000 1000000]

Prints a Markdown table, in a process of its own for each cell: the peak memory of a step beyond
that of a process that has TensorFlow, states and item vectors, and the CPU seconds of the second
step. A step takes the gradient in the states and in the item vectors. The peer is the usual way:
all logits, and TensorFlow's cross-entropy of an index. "-" would not fit the memory or a minute.
"""

import time

import numpy as np
import tensorflow as tf

from benchmarks.speed import memory
from tfrank_sel import losses

SEQUENCES, LENGTH, FACTORS = 256, 50, 64
LOSSES = {
    "all logits, softmax": None,
    "`CatalogueLoss(SoftmaxLoss())`": losses.SoftmaxLoss(),
    "`CatalogueLoss(RG2Loss())`": losses.RG2Loss(),
    "`CatalogueLoss(RGCrossLoss(0.1))`": losses.RGCrossLoss(0.1),
}
MOST_LOGITS = 1 << 30  # in memory 4 GiB, three times; by blocks they take a minute


def measure(name: str, size: int) -> None:
    """Takes two steps in this process and prints its peak memory and the time of the second."""
    loss, rng = LOSSES[name], np.random.default_rng(0)
    items = tf.Variable(rng.standard_normal((size, FACTORS), np.float32) * np.float32(0.1))
    shape = SEQUENCES, LENGTH, FACTORS
    states = tf.constant(rng.standard_normal(shape, np.float32) * np.float32(0.3))
    y_true = tf.constant(rng.integers(0, size, shape[:2]), tf.int32)
    of_catalogue = None if loss is None else losses.CatalogueLoss(loss, lambda: items)

    @tf.function(autograph=False)
    def step(states: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(states)
            if of_catalogue is not None:
                value = of_catalogue(y_true, states)
            else:
                logits = tf.matmul(tf.reshape(states, [-1, FACTORS]), items, transpose_b=True)
                value = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(tf.reshape(y_true, [-1]), logits)
                )
        return [tf.convert_to_tensor(x) for x in tape.gradient(value, [states, items])]

    before = memory.peak()
    step(states)
    began = time.process_time()
    step(states)
    seconds = time.process_time() - began
    print(f"{memory.peak() - before:.0f} MiB, {seconds:.2g} s")


def fits(name: str, size: int) -> bool:
    needs_none = isinstance(LOSSES[name], losses.RG2Loss | losses.RGCrossLoss)
    return needs_none or SEQUENCES * LENGTH * size <= MOST_LOGITS


if __name__ == "__main__":
    sizes = [10_000, 41_000, 100_000, 1_000_000]
    memory.tabulate(__spec__.name, __doc__, LOSSES, sizes, measure, fits)
