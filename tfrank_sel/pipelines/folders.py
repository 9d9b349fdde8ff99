"""The folder of a run: one process at a time, and each step in it whole or absent."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrank_sel.claim import held
from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError

CONFIGURATION = "config.toml"
MANIFEST = "manifest.json"
KEY = ".key"  # what a step that is not done is made of


@contextlib.contextmanager
def only_here(output: Path) -> Iterator[None]:
    """Holds the folder of a run for this process; a folder that stays empty is removed.

    Args:
        output: The folder: new, empty, or of a run.

    Raises:
        tfrank_sel.data.InputError: If it is a file, holds something else, cannot be written to, or
            another process holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            if output.exists() and not output.is_dir():
                raise InputError(str(output), "the output must be a folder. Received: a file")
            if output.is_dir() and any(output.iterdir()) and not _is_run(output):
                reason = "the output folder must be new, empty, or hold a run"
                raise InputError(str(output), f"{reason}. Received: a folder of something else")
            stack.enter_context(held(output))
        except FileExistsError as error:
            reason = "one process at a time can work on a run"
            raise InputError(str(output), f"{reason}. Received: {error}") from error
        except OSError as error:
            wanted = "the output folder must be in a place that can be written to"
            raise InputError(str(output), f"{wanted}. Received: {error}") from error
        yield


def _is_run(output: Path) -> bool:
    return (output / CONFIGURATION).is_file() or {x.name for x in output.iterdir()} <= {".lock"}


def partial(output: Path, name: str) -> Path:
    """Returns the folder that a step writes to until it is done."""
    return output / f".{name}.partial"


@contextlib.contextmanager
def step(output: Path, name: str, key: str, *, resumes: bool = False) -> Iterator[Path]:
    """Gives a folder that becomes the folder of a step if the block succeeds.

    Args:
        output: Folder of the run.
        name: Name of the step.
        key: What the step is made of, as text.
        resumes: Whether to keep what is there if the block fails or the process is killed, for the
            next time with the same `key`.

    Yields:
        The folder to write to meanwhile.
    """
    folder = partial(output, name)
    known = folder / KEY
    if not (resumes and known.is_file() and known.read_text() == key):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        known.write_text(key)
    try:
        yield folder
        known.unlink()
        _put(folder, output / name)
    except BaseException:
        if not resumes:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def drop_partial(output: Path, name: str) -> None:
    """Removes what a step that will not be resumed left."""
    shutil.rmtree(partial(output, name), ignore_errors=True)


def clear(output: Path) -> None:
    """Removes what stands beside the steps, if there is none."""
    (output / CONFIGURATION).unlink(missing_ok=True)


def recover(output: Path, name: str) -> None:
    """Ends what a process that was killed had almost done: to put a step in its place."""
    folder, old = partial(output, name), output / f".{name}.old"
    if (folder / MANIFEST).is_file() and not (folder / KEY).exists():
        _put(folder, output / name)
    shutil.rmtree(old, ignore_errors=True)


def _put(folder: Path, place: Path) -> None:
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    folder.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: str | Path, value: Any) -> None:
    """Writes a value as JSON, to a path or URL."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, to a path or URL, whole or not at all; its folder is made if need be."""
    if stores.is_remote(path):
        with stores.opened(path, "wb") as file:
            file.write(text.encode())
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def link(folder: str | Path, place: str | Path) -> None:
    """Puts the files of a folder or URL in another, without a copy where the disk allows it."""
    for path in stores.find(folder):
        found = stores.join(place, path.removeprefix(f"{folder}/"))
        if not stores.is_remote(place):
            os.makedirs(os.path.dirname(found), exist_ok=True)
        stores.copy(path, found)
