"""Atomic artefacts on disk, and errors of a full disk."""

import contextlib
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
from tfrank_sel.pipelines.files import folders


@contextlib.contextmanager
def room_for(output: str | Path) -> Iterator[None]:
    """Converts errors of a full disk to an error that names the output folder.

    Args:
        output: The output folder.

    Raises:
        tfrank_sel.data.InputError: If the block fails because the disk is full.
    """
    try:
        yield
    except Exception as error:
        reason = _full_disk(error)
        if reason is None:
            raise
        wanted = "the disk of the output folder must have free space"
        raise data.InputError(str(output), f"{wanted}. Received: {reason}") from error


def _full_disk(error: BaseException | None) -> str | None:
    """Returns the text of a full disk that caused an error; Beam and TensorFlow wrap it."""
    while error is not None:
        for reason in map(os.strerror, stores.NO_ROOM):
            if reason in str(error):
                return reason
        error = error.__cause__ or error.__context__
    return None


def shards(prefix: str | Path) -> list[str]:
    """Returns the shards of ingest under a prefix, a path or URL, in order."""
    folder = str(prefix).rpartition("/")[0]
    return [path for path in stores.find(folder) if path.startswith(f"{prefix}-")]


def tell(values: beam.PCollection, prefix: str | Path) -> None:
    """Writes the values of a Beam pipeline as JSON, for `told` to read after the run.

    Each bundle writes its own file. Another file lists those of the successful bundles, so that a
    retried bundle counts once.

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
    """Reads the values written by `tell`, one at a time."""
    if stores.is_file(f"{prefix}.json"):
        for path in json.loads(stores.read_text(f"{prefix}.json")):
            with stores.opened(path) as file:
                yield from map(json.loads, file)


class _Tell(beam.DoFn):
    """Writes values to files of JSON lines, one per bundle: yields the prefix and the path."""

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
