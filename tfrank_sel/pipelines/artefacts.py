"""Artefacts on disk: whole or not at all."""

import contextlib
import errno
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from tfrank_sel import data
from tfrank_sel.data import stores
from tfrank_sel.pipelines import folders

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def room_for(output: str | Path) -> Iterator[None]:
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
    """Returns the shards that ingest wrote under a prefix, a path or URL, in order."""
    folder = str(prefix).rpartition("/")[0]
    return [path for path in stores.find(folder) if path.startswith(f"{prefix}-")]


def tell(values: beam.PCollection, prefix: str | Path) -> None:
    """Writes the values of a Beam pipeline as JSON, for `told` to read when it has run.

    A bundle writes a file of its own. The files of those that succeeded are named in another, so
    that a bundle that is done again counts once.

    Args:
        values: The values.
        prefix: Path or URL that the names of the files begin with.
    """
    name = os.path.basename(prefix)
    if not stores.is_remote(prefix):
        os.makedirs(os.path.dirname(prefix), exist_ok=True)
    told = values | f"Tell {name}" >> beam.ParDo(_Tell(str(prefix)))
    told | f"Told {name}" >> beam.GroupByKey() | f"Name {name}" >> beam.MapTuple(_name)


def told(prefix: str | Path) -> Iterator[Any]:
    """Reads what `tell` wrote, one value at a time."""
    if stores.is_file(f"{prefix}.json"):
        for path in json.loads(stores.read_text(f"{prefix}.json")):
            with stores.opened(path) as file:
                yield from map(json.loads, file)


class _Tell(beam.DoFn):
    """Values to files of JSON lines, a file a bundle: the prefix, and its path."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def start_bundle(self) -> None:
        self.file: IO[Any] | None = None

    def process(self, value: Any) -> None:
        if self.file is None:
            self.path = f"{self.prefix}-{uuid.uuid4().hex}"
            self.stack = contextlib.ExitStack()
            self.file = self.stack.enter_context(stores.opened(self.path, "wb"))
        self.file.write(json.dumps(value).encode() + b"\n")

    def finish_bundle(self) -> Iterator[Any]:
        if self.file is not None:
            self.stack.close()
            yield GlobalWindows.windowed_value((self.prefix, self.path))


def _name(prefix: str, paths: Iterable[str]) -> None:
    folders.write_json(f"{prefix}.json", list(paths))
