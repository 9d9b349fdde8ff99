"""The folder of a run: one process at a time, and each step in it whole or absent."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrank_sel.claim import held
from tfrank_sel.data.lists import InputError

CONFIGURATION = "config.toml"
MANIFEST = "manifest.json"


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
    folder, known = partial(output, name), ".key"
    is_same = resumes and (folder / known).is_file() and (folder / known).read_text() == key
    if not is_same:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / known).write_text(key)
    try:
        yield folder
        (folder / known).unlink()
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
    if (folder / MANIFEST).is_file() and not (folder / ".key").exists():
        _put(folder, output / name)
    shutil.rmtree(old, ignore_errors=True)


def _put(folder: Path, place: Path) -> None:
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    folder.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file aside and renames it, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def link(folder: Path, place: Path) -> None:
    """Puts the files of a folder in another place, without a copy where the disk allows it."""
    for path in folder.rglob("*"):
        if path.is_file():
            found = place / path.relative_to(folder)
            found.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, found)
            except OSError:
                shutil.copy2(path, found)
