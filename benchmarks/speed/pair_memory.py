"""Memory and time of a training step of pairwise losses, by list size.

    python -m benchmarks.speed.pair_memory [--sizes 200 4000 60000]

Prints a Markdown table: the peak memory of a process of its own for each cell, which imports
TensorFlow, compiles and takes two steps on one list, and the seconds of the second step.
"""

import time

import numpy as np
import tensorflow as tf

from benchmarks.speed import memory
from tfrank_sel import losses
from tfrank_sel.losses import lambdas

LOSSES = {
    "MeanSquaredLoss, which has no pairs": losses.MeanSquaredLoss(),
    "PairwiseLogisticLoss": losses.PairwiseLogisticLoss(),
    "PairwiseLogisticLoss, NDCGLambdaWeight": losses.PairwiseLogisticLoss(
        lambdas.NDCGLambdaWeight(smooth_fraction=0.5)
    ),
    "LambdaLoss": losses.LambdaLoss(),
}


def measure(name: str, size: int) -> None:
    """Takes two steps in this process and prints its peak memory and the time of the second."""
    rng = np.random.default_rng(0)
    y_true = tf.constant(rng.integers(0, 5, [1, size]), tf.float32)
    y_pred = tf.constant(rng.normal(size=[1, size]), tf.float32)

    @tf.function(jit_compile=True, autograph=False)
    def step(y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = LOSSES[name](y_true, y_pred)
        return value, tape.gradient(value, y_pred)

    step(y_pred)
    began = time.perf_counter()
    step(y_pred)[1].numpy()
    seconds = time.perf_counter() - began
    print(f"{memory.peak():.0f} MiB, {seconds:.2f} s")


if __name__ == "__main__":
    sizes = [200, 4000, 60000]
    memory.tabulate(__spec__.name, __doc__, LOSSES, sizes, measure)
