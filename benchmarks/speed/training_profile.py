"""Time profile of a training step of the default network.

    python -m benchmarks.speed.training_profile

Functions that do ever more of a step are timed in turn, on one core: the network's scores, then the
loss, its gradient, Adam, the averaging of the weights, Keras' own step, and at last the same with
batches that are read from disk. A part is the difference of two of them.
"""

import argparse
import pathlib
import tempfile
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from benchmarks.speed.interleaved import Call, machine, timings, use_one_core
from benchmarks.speed.training_step import ONE_LOSS, SETTINGS, SHAPES, at_hand, network, steps
from tfrank_sel.training.networks import STEPS_AT_A_TIME

EXECUTIONS = 8
PARTS = ("scores", "loss", "gradient", "Adam", "averaging", "Keras", "input")


def looped(step: Call) -> Call:
    """A call of as many steps as the others take."""

    @tf.function
    def many() -> None:
        for _ in tf.range(STEPS_AT_A_TIME):
            tf.autograph.experimental.do_not_convert(step)()

    def call() -> None:
        for _ in range(EXECUTIONS):
            many()

    return call


def stages(model: keras.Model, batches: tf.data.Dataset) -> Iterator[Call]:
    """Calls that do ever more of a training step."""
    ready = at_hand(batches)
    inputs, labels = next(iter(ready))
    [loss], variables, kept = ONE_LOSS.losses, model.trainable_variables, tf.Variable(0.0)

    def scored() -> tf.Tensor:
        return model(inputs, training=True)

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss(labels, scored())
        return tape.gradient(value, [x.value for x in variables])

    def keep(*values: tf.Tensor) -> None:  # so that nothing is left out as unused
        kept.assign(tf.add_n([tf.reduce_sum(x) for x in values]))

    def applied(use_ema: bool) -> Call:
        optimizer = keras.optimizers.Adam(
            SETTINGS.learning_rate, use_ema=use_ema, ema_momentum=SETTINGS.averaging
        )
        optimizer.build(variables)
        return lambda: optimizer.apply(gradients(), variables)

    yield looped(lambda: keep(scored()))
    yield looped(lambda: keep(loss(labels, scored())))
    yield looped(lambda: keep(*gradients()))
    yield looped(applied(use_ema=False))
    yield looped(applied(use_ema=True))
    yield steps(model, ready, EXECUTIONS)
    yield steps(model, batches, EXECUTIONS)


def profile(list_size: int, num_features: int, rounds: int) -> dict[str, float]:
    """Microseconds of each part of a step."""
    with tempfile.TemporaryDirectory() as folder:
        model, cache = network(list_size, num_features, 256, pathlib.Path(folder))
        batches = cache.batches(SETTINGS.batch_size, [list_size], seed=0).repeat()
        found = timings(dict(enumerate(stages(model, batches))), rounds)
    ends = [1e6 * found[i].seconds / EXECUTIONS / STEPS_AT_A_TIME for i in range(len(PARTS))]
    return dict(zip(PARTS, np.diff(ends, prepend=0.0), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    use_one_core()
    profiles = {
        f"[{SETTINGS.batch_size}, {size}, {features}]": profile(size, features, arguments.rounds)
        for size, features in SHAPES
    }
    print(f"{machine()}\n\n| µs a step | {' | '.join(PARTS)} | in all |")
    print("|---" * (len(PARTS) + 2) + "|")
    for name, of in profiles.items():
        cells = [f"{x:,.0f}" for x in (*of.values(), sum(of.values()))]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
