"""Memory and time of a training step of pairwise losses, by list size.

    python -m benchmarks.speed.pair_memory [--sizes 200 4000 60000]

Prints a Markdown table: the peak memory of a process of its own for each cell, which imports
TensorFlow, compiles and takes two steps on one list, and the seconds of the second step.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

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
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {seconds:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[200, 4000, 60000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        name, size = arguments.measure
        measure(name, int(size))
        return
    print("| items |" + "".join(f" {size} |" for size in arguments.sizes))
    print("|---|" + "---|" * len(arguments.sizes))
    for name in LOSSES:
        print(f"| {name} |", end="", flush=True)
        for size in arguments.sizes:
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--measure",
                name,
                str(size),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f" {done.stdout.strip()} |", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
