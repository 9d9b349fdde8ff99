"""Recommendations to all users, in a Parquet file that is written part by part."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import rich.progress
from pyarrow import parquet

from tfrank_sel import artefacts
from tfrank_sel.errors import received, refusal
from tfrank_sel.locks import atomic_path, hold
from tfrank_sel.recommend import storage
from tfrank_sel.terminal import Terminal

if TYPE_CHECKING:
    from tfrank_sel.recommend.recommender import Recommender

PART = 8192  # users
_RECORD = "record.json"
_SCHEMA = pa.schema(
    {"user": pa.string(), "rank": pa.int32(), "item": pa.string(), "score": pa.float32()}
)


def write(model: "Recommender", path: Path, k: int, verbose: bool) -> None:
    """Writes a Parquet file, as `Recommender.write` says."""
    if path.exists():
        raise FileExistsError(received("`path` must not exist", path))
    parts = path.with_name(f"{path.name}.parts")
    with hold(parts):
        _check(parts, {"recommender": _digest(model), "k": k, "users": PART})
        starts = range(0, len(model.taken_.user_ids), PART)
        names = [parts / f"{start:012}.parquet" for start in starts]
        each = zip(starts, names, strict=True)
        console = Terminal(stderr=True)
        shown = rich.progress.track(each, "users", len(names), disable=not verbose, console=console)
        for start, name in shown:
            if not name.exists():
                with atomic_path(name) as written:
                    table = _table(model, start, k)
                    parquet.write_table(table, written, write_page_checksum=True)
        with atomic_path(path) as written, parquet.ParquetWriter(written, _SCHEMA) as file:
            for name in names:
                with artefacts.name_file_in_errors(name, "a part of the recommendations"):
                    part = parquet.read_table(name, schema=_SCHEMA, page_checksum_verification=True)
                    file.write_table(part)
        shutil.rmtree(parts)


def _table(model: "Recommender", start: int, k: int) -> pa.Table:
    """The recommendations to a part of the users."""
    users = np.arange(start, min(start + PART, len(model.taken_.user_ids)))
    taken = model.taken_.take(users)
    ids, scores = model.rank(taken, k)
    rows, ranks = (ids >= 0).nonzero()
    columns = taken.user_ids[rows], ranks + 1, taken.item_ids[ids[rows, ranks]], scores[rows, ranks]
    return pa.table([*map(pa.array, columns)], names=_SCHEMA.names).cast(_SCHEMA)


def _check(parts: Path, expected: dict[str, object]) -> None:
    """Raises an error if the parts that are there are of other recommendations."""
    record = parts / _RECORD
    if not record.exists():
        artefacts.write_json(record, expected)
        return
    with artefacts.name_file_in_errors(record, "the record of recommendations"):
        before = artefacts.read_json(record)
    if before != expected:
        raise refusal(
            f"{parts} must have parts of the same recommender and `k`, or be removed", "others"
        )


def _digest(model: "Recommender") -> str:
    """A digest of all that the recommendations depend on."""
    config = {**model.get_config(), "num_threads": None}
    arrays = model.learned_arrays()
    parts = [config, [*arrays], model.trees_.model_to_string()]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name, values in storage.flatten(arrays.values()):
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
