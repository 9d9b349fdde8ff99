"""XLA compiles once a shape, however many steps run: a compiler's dump tells."""

import os
import pathlib
import subprocess
import sys

TRAIN = """
import sys
import keras
import tensorflow as tf
from tfrank_sel import links, losses, metrics

steps = int(sys.argv[1])
rows = tf.data.Dataset.range(steps).map(
    lambda i: (tf.random.normal([4, 3 + i % 2, 2]), tf.ones([4, 3 + i % 2]))
)
for jit_compile in (False, True):
    for loss in (losses.SoftmaxLoss(), losses.SelectiveSoftmaxLoss(links.Exp())):
        model = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape([-1])])
        model.compile(loss=loss, metrics=[metrics.NDCG(k=2)], jit_compile=jit_compile)
        model.fit(rows, epochs=1, verbose=0)  # two shapes, unknown to the trace
"""


def compilations(steps: int, folder: pathlib.Path) -> int:
    """Counts what XLA compiles while two losses train for some steps."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={folder}"}
    command = [sys.executable, "-c", TRAIN, str(steps)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return len(list(folder.glob("*before_optimizations.txt")))


def test_steps_of_known_shapes_do_not_compile_again(tmp_path: pathlib.Path) -> None:
    few, many = (compilations(steps, tmp_path / str(steps)) for steps in (2, 8))
    assert few == many
    assert few > 0
