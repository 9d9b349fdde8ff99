"""Speed of reading lists: named scalar features beside tensorflow-ranking, and packed ones.

    python -m benchmarks.data

Writes 600 lists of 40 to 200 items with 136 features each (drawn at random) as TFRecords, once with
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


def passes(path: str, read: Callable[[tf.Tensor], Any] | None) -> Callable[[], None]:
    """One pass over a file."""
    dataset = tf.data.TFRecordDataset(path).batch(BATCH)
    if read is not None:
        dataset = dataset.map(read)

    def call() -> None:
        for _ in dataset:
            pass

    return call


def readers(scalar: str, packed: str) -> dict[str, Callable[[], None]]:
    features = ListFeatures(ITEMS)
    found = {
        "ELWC, 136 scalar features": passes(
            scalar, lambda x: parsing.parse_elwc(x, features, list_size=WIDTH)
        ),
        "ELWC, 136 scalar features, read and not parsed": passes(scalar, None),
        "ELWC, packed": passes(packed, lambda x: elwc.parse(x, SPEC)),
        "ELWC, packed, read and not parsed": passes(packed, None),
    }
    try:
        import tensorflow_ranking as tfr
    except ImportError:
        return found
    theirs = tfr.data.make_parsing_fn(tfr.data.ELWC, WIDTH, None, ITEMS)
    return {"tensorflow-ranking, ELWC, 136 scalar features": passes(scalar, theirs), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        functions = readers(*write(pathlib.Path(folder), arguments.lists))
        found = timings(functions, arguments.rounds)
    baseline = next(iter(found.values())).seconds
    print(machine(), end="\n\n")
    print(f"| reader | lists per CPU second | x {next(iter(found))} |", "|---|---|---|", sep="\n")
    for name, timing in found.items():
        rate = arguments.lists / timing.seconds
        print(f"| {name} | {rate:,.0f} | {baseline / timing.seconds:.2f} |")


if __name__ == "__main__":
    main()
