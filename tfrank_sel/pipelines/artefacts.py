"""Artefacts on disk: whole or not at all."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from tfrank_sel import data
from tfrank_sel.data import stores

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def room_for(output: Path) -> Iterator[None]:
    """Tells a disk that is full by its place.

    Args:
        output: The folder that is written to.

    Raises:
        tfrank_sel.data.InputError: If an error in the block is one of a full disk.
    """
    try:
        yield
    except Exception as error:
        if not _is_for_room(error):
            raise
        wanted = "there must be room for the output folder"
        raise data.InputError(str(output), f"{wanted}. Received: {error}") from error


def _is_for_room(error: BaseException | None) -> bool:
    """Whether a disk that is full is behind an error; Beam and TensorFlow have their own for it."""
    while error is not None:
        if any(os.strerror(code) in str(error) for code in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def shards(prefix: str | Path) -> list[str]:
    """Returns the shards that ingest wrote under a prefix, in order."""
    return stores.glob(f"{prefix}-*")


def tell(values: beam.PCollection, prefix: str | Path) -> None:
    """Writes the values of a Beam pipeline as JSON, for `told` to read when it has run."""
    write = beam.io.WriteToText(str(prefix), num_shards=0)
    name = os.path.basename(prefix)
    values | f"Tell {name}" >> beam.Map(json.dumps) | f"Write {name}" >> write


def told(prefix: str | Path) -> Iterator[Any]:
    """Reads what `tell` wrote, one value at a time, on any file system that Beam knows."""
    [found] = FileSystems.match([f"{prefix}-*"])
    for shard in sorted(one.path for one in found.metadata_list):
        with FileSystems.open(shard) as file:
            yield from map(json.loads, file)
