"""Files and folders that one process at a time writes, and that are whole when they are there."""

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tfrank_sel.refusals import received

try:
    import fcntl
except ModuleNotFoundError:  # a system without such locks: the import must not fail
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"
_OFTEN = 0.05  # seconds between two tries to lock


@contextlib.contextmanager
def created(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Writes a file or folder, which is there only if all of it is.

    Args:
        path: The file or folder.
        replaces: Whether a file may exist, and is replaced.

    Yields:
        A path in the same file system to write; renamed at the end, once all of it is on disk.

    Raises:
        FileExistsError: If `path` exists, or a running process is writing it.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If it cannot be written; the error names `path` if it would name no file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with created(Path(folder, "out")) as written:
        ...         _ = written.write_text("whole")
        ...     os.listdir(folder)
        ['out']
    """
    with claimed(path.with_name(f".{path.name}.partial")) as written:
        if path.exists() and not replaces:
            raise FileExistsError(received("`path` must not exist", path))
        try:
            yield written
            # before the name is on disk: a crash must not leave it with half of the contents
            flush(written)
            for folder, _, files in os.walk(written):
                for name in (*files, "."):
                    flush(os.path.join(folder, name))
        except OSError as error:  # of a full disk, for example
            if error.filename is not None:
                raise
            number = error.errno or errno.EIO
            raise OSError(number, error.strerror or f"{error}", f"{path}") from error
        written.replace(path)
        flush(path.parent)


def flush(path: str | os.PathLike[str]) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Locks a folder for this process; at the end, removes the folder with its contents.

    A killed process leaves its folder, but not its lock: the next process that claims the folder
    removes the contents.

    Args:
        folder: The folder; created with its parents. Empty parents are removed, too.

    Yields:
        A path in the folder that does not exist yet.

    Raises:
        FileExistsError: If a running process has claimed the folder.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If the folder cannot be created.
    """
    with held(folder, _LOCK):
        try:
            _clear(folder)
            yield folder / "written"
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def held(folder: Path, name: str = ".lock", patience: float = 0.0) -> Iterator[None]:
    """Locks a folder for this process until the context ends.

    Args:
        folder: The folder; created with its parents. Empty folders are removed at the end.
        name: Name of the file in it that is locked.
        patience: Seconds to wait for another process.

    Raises:
        FileExistsError: If a running process holds the folder.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If the folder cannot be created.
    """
    if fcntl is None:
        expected = "writing a folder atomically requires the file locks of Linux or macOS"
        raise ImportError(received(expected, sys.platform))
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with _locked(folder, name, time.monotonic() + patience) as lock:
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # still locked: see `_locked`
                    os.unlink(lock.name)
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # it is not empty
                path.rmdir()


def _locked(folder: Path, name: str, until: float) -> IO[str]:
    """Locks a file until it is closed, and checks that it is still the file in the folder."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(open(folder / name, "w", encoding="utf-8"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # its last holder may have unlinked it after it was opened: a lock that excludes
                # nobody
                if os.path.samestat(os.fstat(lock.fileno()), os.stat(lock.name)):
                    stack.pop_all()
                    return lock
            except (BlockingIOError, FileNotFoundError):
                pass
        if time.monotonic() >= until:
            raise FileExistsError(f"{folder} is being written by another process")
        time.sleep(_OFTEN)


def _clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != _LOCK:
            child.unlink()
