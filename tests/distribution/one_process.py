"""One process of a group: `python -m tests.distribution.one_process answer` or `hang`."""

import json
import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.distribution import CollectiveGroup, Group, MeanLogs

VALUES = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
ROWS = np.array([[0.1, 0.2], [0.3, 0.9]], np.float32)


def totals(group: Group) -> list[list[float]]:
    return [group.total(VALUES[group.rank]).ravel().tolist() for _ in range(2)]


def types(group: Group) -> list[object]:
    """A sum beyond 2^53, and rows of small types, of odd numbers, and without columns."""
    count = group.total(np.array([2**53 + 1, group.rank])).tolist()
    kinds = [np.arange(group.rank + 1).astype(x)[:, None] for x in (bool, "i1", "f2", "u2", "f8")]
    gathered = [group.gather_rows(x).ravel().tolist() for x in kinds]
    return [count, gathered, list(group.gather_rows(np.ones([2, 0])).shape)]


def step(group: Group, *, is_compiled: bool) -> list[list[float]]:
    """The variables after a step by sparse gradients, those of one variable, and none."""
    table, bias, unused = (tf.Variable(x) for x in (tf.zeros([3, 2]), [0.0], [7.0]))
    optimizer = keras.optimizers.SGD(1.0, clipvalue=0.9)
    optimizer.build([table, bias, unused])
    group.in_step(optimizer)

    def apply() -> None:
        sparse = tf.IndexedSlices(ROWS * (group.rank + 1.0), [2, min(group.rank, 1)], [3, 2])
        gradients = [sparse, tf.constant([-0.5 * group.rank]), None]
        optimizer.apply_gradients(zip(gradients, [table, bias, unused], strict=True))

    (tf.function(apply) if is_compiled else apply)()
    assert optimizer.iterations == 1
    return [x.numpy().tolist() for x in (table, bias, unused)]


def means(group: Group) -> list[tuple[str, float]]:
    """The means of gradients of two types."""
    gradients = tf.constant([1.0 + group.rank]), tf.constant([4.0], tf.float64)
    found = group._mean([(gradient, tf.Variable([0.0])) for gradient in gradients], 1000)
    return [(x.dtype.name, x.numpy().item()) for x, _ in found]


def logs(group: Group) -> dict[str, float]:
    found = {"loss": 1.0 + group.rank, "ndcg": np.float32(0.5)}
    MeanLogs(group).on_epoch_end(0, found)
    return found


def fitted(group: Group) -> list[float]:
    """The weights after `fit` of several steps at a time, with shapes that differ by process."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])
    optimizer = group.in_step(keras.optimizers.Adam(0.1))
    model.compile(optimizer, "mse", steps_per_execution=3, jit_compile=False)
    sizes = [4, 4, 2, 3, 4, 2] if group.rank else [2, 2, 2, 2, 2, 2]
    random = np.random.default_rng(group.rank)
    batches = [(random.normal(size=(x, 3)), random.normal(size=(x, 1))) for x in sizes]
    model.fit((x for x in batches), steps_per_epoch=3, epochs=2, verbose=0)
    return [x.tolist() for x in model.get_weights()]


def answer(group: Group) -> dict[str, object]:
    return {
        "totals": totals(group),
        "types": types(group),
        "eager": step(group, is_compiled=False),
        "compiled": step(group, is_compiled=True),
        "means": means(group),
        "logs": logs(group),
        "fitted": fitted(group),
    }


def main(case: str) -> None:
    group = CollectiveGroup()
    if case == "answer":
        print(json.dumps(answer(group)))
        return
    group.wait()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        group.wait()
    except tf.errors.UnavailableError:
        print("lost")


if __name__ == "__main__":
    main(sys.argv[1])
