"""Recommendations to all users, in a Parquet file that is written part by part."""

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import rich.progress
from pyarrow import parquet

from tfrank_sel import artefacts
from tfrank_sel.data import resumption
from tfrank_sel.errors import received
from tfrank_sel.locks import atomic_path
from tfrank_sel.recommend import storage
from tfrank_sel.terminal import Terminal
from tfrank_sel.version import __version__

if TYPE_CHECKING:
    from tfrank_sel.recommend.recommender import Recommender

PART = 8192  # users
_SCHEMA = pa.schema(
    {"user": pa.string(), "rank": pa.int32(), "item": pa.string(), "score": pa.float32()}
)


def write(model: "Recommender", path: Path, k: int, verbose: bool) -> None:
    """Writes a Parquet file, as `Recommender.write` says."""
    if path.exists():
        raise FileExistsError(received("`path` must not exist", path))
    output = os.path.abspath(path)
    state = {"version": __version__, "recommender": _digest(model), "k": k, "users": PART}
    with resumption.resume(output, state) as folder:
        resumption.save(folder, state)
        starts = range(0, len(model.taken_.user_ids), PART)
        names = [Path(folder, f"{start:012}.parquet") for start in starts]
        each = zip(starts, names, strict=True)
        console = Terminal(stderr=True)
        shown = rich.progress.track(each, "users", len(names), disable=not verbose, console=console)
        for start, name in shown:
            if not name.exists():
                with atomic_path(name) as written:
                    table = _table(model, start, k)
                    parquet.write_table(table, written, write_page_checksum=True)
        whole = Path(folder, "all.parquet")
        with (
            atomic_path(whole, replaces=True) as written,
            parquet.ParquetWriter(written, _SCHEMA) as file,
        ):
            for name in names:
                with artefacts.name_file_in_errors(name, "a part of the recommendations"):
                    part = parquet.read_table(name, schema=_SCHEMA, page_checksum_verification=True)
                    file.write_table(part)
        resumption.finish(folder, str(whole), output)


def _table(model: "Recommender", start: int, k: int) -> pa.Table:
    """The recommendations to a part of the users."""
    users = np.arange(start, min(start + PART, len(model.taken_.user_ids)))
    taken = model.taken_.take(users)
    ids, scores = model.rank(taken, k)
    rows, ranks = (ids >= 0).nonzero()
    columns = taken.user_ids[rows], ranks + 1, taken.item_ids[ids[rows, ranks]], scores[rows, ranks]
    return pa.table([*map(pa.array, columns)], names=_SCHEMA.names).cast(_SCHEMA)


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
