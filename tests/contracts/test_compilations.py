"""XLA compiles what the caller compiles, once per shape, as counted in the compiler's dump."""

import os
import pathlib
import subprocess
import sys

import pytest

TRAIN = """
import pathlib
import sys
import keras
import tensorflow as tf
from tfrank_sel import links, losses, metrics

models = []
rows = tf.data.Dataset.range(8).map(  # two shapes, unknown to the trace
    lambda i: (tf.random.normal([4, 3 + i % 2, 2]), tf.ones([4, 3 + i % 2]))
)
for loss, jit_compile in (
    (losses.SelectiveSoftmaxLoss(links.Exp()), False),
    (losses.SoftmaxLoss(), True),
):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss=loss, metrics=[metrics.NDCG(k=2)], jit_compile=jit_compile)
    models.append(model)
plain, compiled = models
for model, steps in ((plain, 8), (compiled, 2), (compiled, 8)):
    model.fit(rows.take(steps), epochs=1, verbose=0)
    print(len(list(pathlib.Path(sys.argv[1]).glob("*before_optimizations.txt"))))
"""


@pytest.mark.long
def test_only_the_caller_compiles_and_once_per_shape(tmp_path: pathlib.Path) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={tmp_path}"
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [sys.executable, "-c", TRAIN, str(tmp_path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    plain, few, many = map(int, done.stdout.split()[-3:])
    assert plain == 0
    assert few == many
    assert few > 0
