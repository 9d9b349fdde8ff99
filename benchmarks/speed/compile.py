"""Compilations and time of training on batches of random sizes, compared with keras-rs and tfr.

    python -m benchmarks.speed.compile [--batches 200] [--tensorflow-ranking .venv-tfr/bin/python]

A linear scorer trains by `model.fit` on batches of 1 to 64 lists of 10 to 60 items, each size drawn
anew, with `jit_compile=False`, Keras' default on a CPU. Each loss has a process of its own, on one
core. The table gives how often XLA compiled, as told by a dump of what it compiles, the CPU seconds
of the first pass over the batches, and those of a second pass, in which nothing is compiled. A peer
that is not installed is left out.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

LIBRARIES = {"tfrank_sel": "default", "keras_rs": "default", "tensorflow_ranking": "tfr"}
LOSSES = ("softmax", "pairwise logistic", "LambdaLoss")


def loss_of(library: str, name: str) -> Any:
    """The loss of a library; None if it has none of that name."""
    if library == "tfrank_sel":
        from tfrank_sel import losses

        ours: dict[str, Callable[[], Any]] = {
            "softmax": losses.SoftmaxLoss,
            "pairwise logistic": losses.PairwiseLogisticLoss,
            "LambdaLoss": losses.LambdaLoss,
        }
        return ours[name]()
    if library == "keras_rs":
        import keras_rs

        of_rs = {"pairwise logistic": keras_rs.losses.PairwiseLogisticLoss}
        return of_rs[name]() if name in of_rs else None
    import tensorflow_ranking as tfr

    if name == "softmax":
        return tfr.keras.losses.SoftmaxLoss()
    weight = tfr.keras.losses.NDCGLambdaWeightV2() if name == "LambdaLoss" else None
    return tfr.keras.losses.PairwiseLogisticLoss(lambda_weight=weight)


def train(library: str, name: str, num_batches: int) -> None:
    """Trains for two passes, and prints the CPU seconds of each; `null` without such a loss."""
    import time

    from benchmarks.speed.interleaved import use_one_core

    use_one_core()
    import keras
    import numpy as np
    import tensorflow as tf

    loss = loss_of(library, name)
    if loss is None:
        print(json.dumps(None))
        return
    rng = np.random.default_rng(0)
    sizes = rng.integers([1, 10], [65, 61], size=[num_batches, 2])
    rows = [
        (rng.normal(size=[*size, 8]), rng.integers(0, 3, size).astype(np.float32)) for size in sizes
    ]
    shapes = tf.TensorSpec([None, None, 8], tf.float64), tf.TensorSpec([None, None], tf.float32)
    data = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=shapes)
    model = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape([-1])])
    model.compile("sgd", loss, jit_compile=False)
    passes = []
    for _ in range(2):
        begin = time.process_time()
        model.fit(data, verbose=0)
        passes.append(time.process_time() - begin)
    print(json.dumps(passes))


def rows(num_batches: int, pythons: dict[str, str]) -> Iterator[str]:
    """Runs each loss of each library by itself, and yields the lines of the table."""
    yield "| loss | library | compilations | first pass, CPU s | second pass, CPU s |"
    yield "|---|---|---|---|---|"
    for name in LOSSES:
        for library, stack in LIBRARIES.items():
            with tempfile.TemporaryDirectory() as folder:
                environment = {
                    **os.environ,
                    "XLA_FLAGS": f"--xla_dump_to={folder}",
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                }
                command = [
                    pythons[stack],
                    "-m",
                    __spec__.name,
                    "--train",
                    library,
                    name,
                ]
                found = subprocess.run(
                    [*command, "--batches", str(num_batches)],
                    env=environment,
                    capture_output=True,
                    text=True,
                )
                compiled = len(list(pathlib.Path(folder).glob("*before_optimizations.txt")))
            if found.returncode:
                print(f"{library} is left out: {found.stderr.strip().splitlines()[-1]}")
            elif passes := json.loads(found.stdout.splitlines()[-1]):
                first, second = passes
                yield f"| {name} | {library} | {compiled} | {first:.2f} | {second:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=200, help="number of batches in a pass")
    parser.add_argument(
        "--tensorflow-ranking",
        default=".venv-tfr/bin/python",
        help="Python of an environment with tensorflow-ranking",
    )
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(*options.train, options.batches)
        return
    pythons = {"default": sys.executable, "tfr": options.tensorflow_ranking}
    for line in rows(options.batches, pythons):
        print(line, flush=True)


if __name__ == "__main__":
    main()
