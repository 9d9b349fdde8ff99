"""Speed of reading lists: named scalar features beside tensorflow-ranking, and packed ones.

    python -m benchmarks.data

Writes 608 lists of 40 to 200 items with 136 features each (drawn at random) as TFRecords, once with
a feature a number, as users of tensorflow-ranking have them, and once in the packed layout that
`pipelines ingest` writes. Reads them in batches of 32 lists, padded to 200 items. Without
tensorflow-ranking (see the extra `tfr`), its line is left out. Prints a Markdown table: lists per
CPU second on one core of this machine, from passes in turn, and ratios to tensorflow-ranking.
"""

import argparse
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.interleaved import machine, timings, use_one_core
from tfrank_sel.data import FeatureSpec, ListFeatures, elwc, parsing, wire

BATCH, WIDTH, NUM_FEATURES = 32, 200, 136
SPEC = FeatureSpec(num_features=NUM_FEATURES)
NAMES = [f"feature_{i}" for i in range(1, NUM_FEATURES + 1)]
LABEL = {"relevance": tf.io.FixedLenFeature([1], tf.float32, [-1.0])}
ITEMS = LABEL | {name: tf.io.FixedLenFeature([1], tf.float32, [0.0]) for name in NAMES}


def scalar_item(label: float, features: np.ndarray) -> bytes:
    example = tf.train.Example()
    for name, value in zip(["relevance", *NAMES], [label, *features.tolist()], strict=True):
        example.features.feature[name].float_list.value.append(value)
    return wire.field(1, example.SerializeToString())


def write(folder: pathlib.Path, lists: int) -> tuple[str, str]:
    """Writes the same lists as scalars and packed."""
    rng = np.random.default_rng(0)
    paths = str(folder / "scalar.tfrecord"), str(folder / "packed.tfrecord")
    with tf.io.TFRecordWriter(paths[0]) as scalar, tf.io.TFRecordWriter(paths[1]) as packed:
        for size in rng.integers(40, WIDTH + 1, lists):
            features = rng.normal(size=[size, NUM_FEATURES]).astype(np.float32)
            labels = rng.integers(0, 5, size).astype(np.float32)
            scalar.write(b"".join(scalar_item(*x) for x in zip(labels, features, strict=True)))
            packed.write(elwc.serialize(features, SPEC, labels=labels))
    return paths


def passes(path: str, lists: int, read: Callable[[tf.Tensor], Any]) -> Callable[[], None]:
    """Reads as many lists as the file holds, over and over: starting a dataset is not counted."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # work done in another's turn
    dataset = tf.data.TFRecordDataset(path).repeat().batch(BATCH).map(read)
    batches = iter(dataset.with_options(options))

    def call() -> None:
        for _ in range(lists // BATCH):
            next(batches)

    return call


def readers(scalar: str, packed: str, lists: int) -> dict[str, Callable[[], None]]:
    features = ListFeatures(ITEMS)
    found = {
        "ELWC, 136 scalar features": passes(
            scalar, lists, lambda x: parsing.parse_elwc(x, features, list_size=WIDTH)
        ),
        "ELWC, 136 scalar features, read and not parsed": passes(scalar, lists, lambda x: x),
        "ELWC, packed": passes(packed, lists, lambda x: elwc.parse(x, SPEC)),
        "ELWC, packed, read and not parsed": passes(packed, lists, lambda x: x),
    }
    try:
        import tensorflow_ranking as tfr
    except ImportError:
        return found
    theirs = tfr.data.make_parsing_fn(tfr.data.ELWC, WIDTH, None, ITEMS)
    return {"tensorflow-ranking, ELWC, 136 scalar features": passes(scalar, lists, theirs), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=int, default=608)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.lists -= arguments.lists % BATCH
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        functions = readers(*write(pathlib.Path(folder), arguments.lists), arguments.lists)
        found = timings(functions, arguments.rounds)
    baseline = next(iter(found.values())).seconds
    print(machine(), end="\n\n")
    print(f"| reader | lists per CPU second | x {next(iter(found))} |", "|---|---|---|", sep="\n")
    for name, timing in found.items():
        rate = arguments.lists / timing.seconds
        print(f"| {name} | {rate:,.0f} | {baseline / timing.seconds:.2f} |")


if __name__ == "__main__":
    main()
