"""Folder of a run: locked for one process, with atomic steps, and errors of a full disk."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.data.stores import write_text as write_text
from tfrank_sel.locks import hold

CONFIGURATION = "config.toml"
# The step `export` writes this example of a request.
REQUEST = "one_query.rest.json"
MANIFEST = "manifest.json"
KEY = ".key"  # the key of an unfinished step
# folders of steps, all files of which are read; if the run is in a store, they are there alone
RECORDS = {"ingest": ("records", "earlier")}


@contextlib.contextmanager
def only_here(output: Path) -> Iterator[None]:
    """Locks the folder of a run for this process; removes the folder if it stays empty.

    Args:
        output: The folder: new, empty, or of a run.

    Raises:
        tfrank_sel.data.InputError: If it is a file, has other contents or is not writable, or
            another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        try:
            if output.exists() and not output.is_dir():
                raise rejection(str(output), "the output must be a folder", "a file")
            if output.is_dir() and any(output.iterdir()) and not _is_run(output):
                reason = "the output folder must be new, empty, or contain a run"
                raise rejection(str(output), reason, "a folder with other contents")
            stack.enter_context(hold(output))
        except FileExistsError as error:
            raise rejection(
                str(output), "one process at a time can work on a run", error
            ) from error
        except OSError as error:
            raise rejection(str(output), "the output folder must be writable", error) from error
        yield


def _is_run(output: Path) -> bool:
    left = {".lock", f".{CONFIGURATION}.partial"}  # by a process that was killed at its start
    return (output / CONFIGURATION).is_file() or {x.name for x in output.iterdir()} <= left


def partial(output: Path, name: str) -> Path:
    """Returns the temporary folder of an unfinished step."""
    return output / f".{name}.partial"


@contextlib.contextmanager
def step(output: Path, name: str, key: str, *, resumes: bool = False) -> Iterator[Path]:
    """Provides a folder that becomes the folder of a step if the block succeeds.

    Args:
        output: Folder of the run.
        name: Name of the step.
        key: Text that identifies the inputs of the step.
        resumes: Whether to keep the contents if the block fails or the process is killed, to resume
            in a later call with the same `key`.

    Yields:
        The temporary folder to write to.
    """
    folder = partial(output, name)
    key_file = folder / KEY
    if not (resumes and key_file.is_file() and key_file.read_text(encoding="utf-8") == key):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        key_file.write_text(key, encoding="utf-8")
    try:
        yield folder
        key_file.unlink()
        _replace_folder(folder, output / name)
    except BaseException:
        if not resumes:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def recover(output: Path, name: str) -> None:
    """Completes the final rename of a step that a killed process had left."""
    folder = partial(output, name)
    if (folder / MANIFEST).is_file() and not (folder / KEY).exists():
        _replace_folder(folder, output / name)
    shutil.rmtree(output / f".{name}.old", ignore_errors=True)


def _replace_folder(folder: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: str | Path, value: Any) -> None:
    """Writes a value as JSON, to a path or URL."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file from the folder of a step.

    Raises:
        tfrank_sel.data.InputError: If it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise changed_file_error(path, path.parent.name, str(error)) from error


def changed_file_error(path: Path, step: str, content: str) -> InputError:
    """The error for a file that is not the one that a step wrote."""
    reason = f"differs from what {step} wrote: `run --from {step}` writes it again"
    return rejection(str(path), reason, content)


def link(folder: str | Path, target_folder: str | Path) -> None:
    """Links the files of a folder or URL into another; copies them if links are not possible."""
    for path in stores.find(folder):
        target = stores.join(target_folder, path.removeprefix(f"{folder}/"))
        if not stores.is_remote(target_folder):
            os.makedirs(os.path.dirname(target), exist_ok=True)
        stores.copy(path, target)


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
        raise rejection(
            str(output), "the disk of the output folder must have free space", reason
        ) from error


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
