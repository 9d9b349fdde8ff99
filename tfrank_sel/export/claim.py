"""A folder to write to aside, for one process alone, whoever was killed there before."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ModuleNotFoundError:  # not a system with such locks: to import this must not fail
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Gives a folder that no other process writes to; at the end it is removed with what it holds.

    A process that is killed leaves its folder, but not its claim: the next one that claims the
    folder removes what is there.

    Args:
        folder: The folder; made with its parents, and those are removed too if nothing is in them.

    Yields:
        A place in the folder where there is nothing yet.

    Raises:
        FileExistsError: If a process that lives has claimed the folder.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If the folder cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     with claimed(Path(base, ".out.partial")) as written:
        ...         _ = written.write_text("whole")
        ...         _ = written.rename(Path(base, "out"))
        ...     os.listdir(base)
        ['out']
    """
    with held(folder):
        try:
            _clear(folder)
            yield folder / "written"
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds a folder, to which no other process writes meanwhile; what is in it stays.

    Args:
        folder: The folder; made with its parents, and those are removed if nothing is left in them.

    Raises:
        FileExistsError: As `claimed`, as all others.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If the folder cannot be made.
    """
    if fcntl is None:
        wanted = "To write a folder whole or not at all takes the file locks of Linux or macOS"
        raise ImportError(f"{wanted}. Received: {sys.platform}")
    made = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / _LOCK, "w") as lock:
            _hold(lock, folder)
            yield
    finally:
        for parent in made:
            with contextlib.suppress(OSError):  # it is not empty
                parent.rmdir()


def _hold(lock: IO[str], folder: Path) -> None:
    """Locks a file until it is closed; it must still be the one in the folder then."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = os.path.samestat(os.fstat(lock.fileno()), os.stat(lock.name))
    except (BlockingIOError, FileNotFoundError):
        is_held = False
    if not is_held:
        raise FileExistsError(f"{folder} is being written by another process")


def _clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != _LOCK:
            child.unlink()
