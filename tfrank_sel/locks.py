"""Files and folders that one process at a time writes, and that are whole when they are there."""

import contextlib
import errno
import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tfrank_sel.errors import received

try:
    import fcntl
except ModuleNotFoundError:  # a system without such locks: the import must not fail
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"
_OFTEN = 0.05  # seconds between two tries to lock
_TRIES = 10  # to open or lock a file that others remove, before there is a wait


@contextlib.contextmanager
def atomic_path(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """Writes a file or folder, which is there only if all of it is.

    Args:
        path: The file or folder.
        replaces: Whether a file may exist, and is replaced: the one that a link names, by one with
            its rights.

    Yields:
        A path in the same file system to write; renamed at the end, once all of it is on disk.

    Raises:
        FileExistsError: If `path` exists, or a running process is writing it.
        ImportError: If the system has no such locks as Linux and macOS have.
        OSError: If it cannot be written; the error names `path` if it would name no file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_path(Path(folder, "out")) as written:
        ...         _ = written.write_text("whole")
        ...     os.listdir(folder)
        ['out']
    """
    if replaces and path.is_symlink():
        path = Path(os.path.realpath(path))
    with claim(path.with_name(f".{path.name}.partial")) as written:
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
        if path.exists():
            shutil.copymode(path, written)
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
def claim(folder: Path) -> Iterator[Path]:
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
    try:
        with hold(folder, _LOCK):
            _clear(folder)
            try:
                yield folder / "written"
            finally:
                with contextlib.suppress(OSError):
                    _clear(folder)
    finally:
        remove_empty(folder)


@contextlib.contextmanager
def hold(folder: Path, name: str = ".lock", patience: float = 0.0) -> Iterator[None]:
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
        with _lock(folder / name, time.monotonic() + patience) as lock:
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    # The file must still be locked under its name: see `_lock`.
                    if _is_there(lock, folder / name):
                        os.unlink(folder / name)
    finally:
        for path in made:
            remove_empty(path)


def remove_empty(folder: Path) -> None:
    """Removes a folder, unless it has contents, such as a lock of another process."""
    with contextlib.suppress(OSError):
        folder.rmdir()


@contextlib.contextmanager
def _lock(path: Path, until: float) -> Iterator[int]:
    """Locks a file, and checks that it is still the file of this name.

    Only the process that has locked the file of this name removes it, and nothing else does: its
    folder is removed only if it is empty.
    """
    for tries in itertools.count():
        with contextlib.ExitStack() as stack:
            lock = _open_lock(path)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                if _is_there(lock, path):
                    yield lock
                    return
                if tries < _TRIES:
                    continue
        if time.monotonic() >= until:
            raise FileExistsError(f"{path.parent} is being written by another process")
        time.sleep(_OFTEN)


def _open_lock(path: Path, tries: int = _TRIES) -> int:
    """Opens a file, no link, in a folder that others remove whenever it is empty."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except (FileExistsError, FileNotFoundError):
        if not tries:
            raise
    return _open_lock(path, tries - 1)


def _is_there(lock: int, path: Path) -> bool:
    """Whether an open file still has its name: its last holder may have unlinked it."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != _LOCK:
            child.unlink()
