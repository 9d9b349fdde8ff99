"""Speed of input columns of all types, compared with the same number of packed floats.

    python -m benchmarks.speed.types

Makes a click log of 100,000 rows (`data.synthetic.clicks`): 15 numbers and 7 texts an item. Each is
compared with the same lists of 22 floats; times are of one core, from passes in turn.

* Parquet: the file read to lists (`data.read`).
* Records: training records parsed, in batches of 64 lists.
* Preparation: batches that are parsed, prepared for a network, with standing within the list.
"""

import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet

from benchmarks.speed import rows
from benchmarks.speed.interleaved import use_one_core
from benchmarks.speed.rows import Peer
from tfrank_sel import data, features, models
from tfrank_sel.data import packed, synthetic
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import Feature

ROWS, BATCH = 100_000, 64
TYPES = {
    "price": features.Number(),
    "rating": features.Number(missing=3.0),
    "in_stock": features.Bool(),
    "brand": features.Category(),
    "device": features.Category(of="query", encoding="one_hot"),
    "tags": features.Set(max_values=4),
    "seller": features.Hash(buckets=500),
    "embedding": features.Vector(size=8),
    "published_at": features.Timestamp(since="shown_at"),
    "shown_at": features.Timestamp(of="query", parts=True),
}
LAYOUT = Schema(TYPES)
WIDTH = len(LAYOUT.names) + len(LAYOUT.texts)
FLOATS: Mapping[str, Feature] = {f"x{i}": features.Number() for i in range(WIDTH)}


def batches(
    lists: list[data.ItemList], spec: data.FeatureSpec
) -> tuple[list[tf.Tensor], Callable[[tf.Tensor], dict[str, tf.Tensor]]]:
    """Serialized lists by the batch, and what parses them."""
    records = [
        packed.serialize(one.features, spec, labels=one.labels, texts=one.texts) for one in lists
    ]
    parts = [tf.constant(records[i : i + BATCH]) for i in range(0, len(records), BATCH)]
    return parts, tf.function(lambda x: packed.parse(x, spec), autograph=False)


def cases(folder: pathlib.Path) -> dict[str, tuple[rows.Call, rows.Call]]:
    """What is done with columns of all types, and with floats."""
    table = synthetic.clicks(ROWS)
    parquet.write_table(table, folder / "types.parquet")
    kept = table.select(["session", "clicked"])
    numbers = np.random.default_rng(0).normal(size=[WIDTH, table.num_rows]).astype(np.float32)
    for name, column in zip(FLOATS, numbers, strict=True):
        kept = kept.append_column(name, pa.array(column))
    parquet.write_table(kept, folder / "floats.parquet")

    def read(name: str, kinds: Mapping[str, Feature]) -> list[data.ItemList]:
        path = folder / f"{name}.parquet"
        return list(
            data.read(path, query="session", label="clicked", features=kinds, adjacent=True)
        )

    found: dict[str, list[rows.Call]] = {"Parquet": [], "records": [], "preparation": []}
    for name, kinds in (("types", TYPES), ("floats", FLOATS)):
        lists = read(name, kinds)
        layout = Schema(kinds)
        spec = data.FeatureSpec(len(layout.names), num_texts=len(layout.texts))
        serialized, parse = batches(lists, spec)
        inputs = [
            {key: x for key, x in parse(one).items() if key in ("features", "texts", "mask")}
            for one in serialized
        ]
        preparation = models.Preparation.of(((one, None) for one in inputs), kinds)
        prepare = tf.function(preparation, autograph=False, reduce_retracing=True)
        found["Parquet"].append(lambda name=name, kinds=kinds: read(name, kinds))
        found["records"].append(_each(parse, serialized))
        found["preparation"].append(_each(prepare, inputs))
    return {case: (ours, theirs) for case, (ours, theirs) in found.items()}


def _each(function: Callable[[Any], Any], parts: list[Any]) -> rows.Call:
    return lambda: [function(part) for part in parts]


def measured(rounds: int) -> Iterator[rows.Found]:
    """A row for each case."""
    with tempfile.TemporaryDirectory() as folder:
        for case, (ours, theirs) in cases(pathlib.Path(folder)).items():
            peer = {Peer(f"{WIDTH} floats"): theirs}
            yield from rows.compare({case: ours}, peer, rounds, "µs a row", ROWS)


def main() -> None:
    """Prints the table."""
    arguments = rows.parser(__doc__, rounds=5).parse_args()
    use_one_core()
    rows.show(measured(arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
