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
from tfrank_sel.export.claim import claimed

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def aside(output: Path) -> Iterator[Path]:
    """Gives a folder beside `output`, which becomes `output` if the block succeeds.

    If it does not, the folder is removed, and nothing stands at `output`. What a process that was
    killed has left there is removed first.

    Args:
        output: The folder to make. It must be new or empty.

    Yields:
        The folder to write to meanwhile.

    Raises:
        tfrank_sel.data.InputError: If `output` is a file or a folder that is not empty, its place
            cannot be written to or has no room, or another process is making it.
    """
    output = output.absolute()
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(claimed(output.with_name(f".{output.name}.partial")))
            _check_new(output)
            folder.mkdir()
        except FileExistsError as error:
            reason = f"one run at a time can make the output folder. Received: {error}"
            raise data.InputError(str(output), reason) from error
        except OSError as error:
            wanted = "the output folder must be in a place that can be written to"
            raise data.InputError(str(output), f"{wanted}. Received: {error}") from error
        try:
            yield folder
            folder.rename(output)
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


def _check_new(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise data.InputError(str(output), "the output must be a folder. Received: a file")
    if output.is_dir() and any(output.iterdir()):
        kind = "holds a run" if (output / "metrics.json").exists() else "is not empty"
        raise data.InputError(
            str(output), f"the output folder must be new or empty. Received: a folder that {kind}"
        )


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file aside and renames it, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.rename(path)


def shards(prefix: Path) -> list[str]:
    """Returns the files that Beam wrote under a prefix, in order."""
    return sorted(str(path) for path in prefix.parent.glob(f"{prefix.name}-*"))


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
