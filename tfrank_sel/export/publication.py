"""Publication of model versions for a server: publish, roll back, and remove old versions.

Object stores cannot rename. There, a folder is a version if it has `saved_model.pb`: this file is
uploaded last and removed first.
"""

import contextlib
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from tfrank_sel.claim import claimed
from tfrank_sel.data import leases, stores

GRAPH = "saved_model.pb"
_VERSIONS = 2**63  # servers keep versions in signed integers of 64 bits, and ignore others


def publish(
    saved_model: str | os.PathLike[str],
    base: str | os.PathLike[str],
    version: int | None = None,
) -> Path | str:
    """Publishes a SavedModel atomically as a new version for a server that polls `base`.

    On disk, the copy is written under a temporary name in the same folder, which servers ignore,
    flushed to disk, and renamed. In an object store, `saved_model.pb` is uploaded last; a server
    that reads earlier must retry, as TensorFlow Serving does every minute, five times by default.

    Args:
        saved_model: Folder or URL of the SavedModel, which is not changed.
        base: Base path of the model on the server, a folder or a URL; created if missing.
        version: Version to publish, at least 0 and below 2**63. By default one more than the
            latest, or 1.

    Returns:
        The folder of the version, or its URL.

    Raises:
        FileExistsError: If `base` has the version, in any spelling (`7`, `007`), or another process
            is publishing it.
        FileNotFoundError: If `saved_model` is not a SavedModel.
        ValueError: If `version` is negative, or not below 2**63.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    if version is None:
        version = 1 + max(versions(base), default=0)
    if not 0 <= version < _VERSIONS:
        raise ValueError(
            "`version` must not be negative, and below 2**63: servers ignore others. "
            f"Received: {version}"
        )
    if not stores.is_file(stores.join(saved_model, GRAPH)):
        raise FileNotFoundError(
            f"`saved_model` must contain saved_model.pb. Received: {saved_model}"
        )
    here = Path(stores.near_folder(saved_model))
    if stores.is_remote(base):
        url = stores.join(base, str(version))
        with leases.held(os.fspath(base)):
            _check_new(base, version)
            stores.send(here, url, last=GRAPH)
        return url
    published = Path(base, str(version))
    with claimed(Path(base, f".publish-{version}")) as copy:
        _check_new(base, version)
        _copy(here, copy)
        place(copy, published)
    return published


def _check_new(base: str | os.PathLike[str], version: int) -> None:
    if version in (found := versions(base)):
        wanted = f"`version` must be new in {base}"
        raise FileExistsError(f"{wanted}. Received: {Path(found[version]).name}")


def _copy(folder: Path, copy: Path) -> None:
    """Copies a folder, and stops at the first file that fails, unlike `copytree`."""
    copy.mkdir()
    for child in folder.iterdir():
        if child.is_dir():
            _copy(child, copy / child.name)
        else:
            shutil.copy2(child, copy / child.name)


def place(written: Path, path: Path) -> None:
    """Renames a folder to its final path, after all of it is on disk.

    Args:
        written: The folder.
        path: Final path, in the same file system.
    """
    for folder, _, files in os.walk(written):
        for name in (*files, "."):
            _flush(os.path.join(folder, name))
    written.rename(path)
    _flush(path.parent)


def roll_back(base: str | os.PathLike[str]) -> int:
    """Withdraws the latest version: a server that polls `base` returns to the previous one.

    The version is kept under another name, which servers ignore.

    Args:
        base: Base path of the model on the server, a folder or a URL.

    Returns:
        The version that is now the latest.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `base` has fewer than two versions.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    with _alone(base):
        found = versions(base)
        if len(found) < 2:
            raise ValueError(
                f"{base} must have two versions to roll back. Received: versions {sorted(found)}"
            )
        latest, before = sorted(found, reverse=True)[:2]
        folder = str(found[latest])
        aside = stores.join(base, f"rolled-back-{Path(folder).name}")
        if stores.is_remote(base):
            for file in stores.find(folder):
                stores.copy(file, file.replace(folder, aside, 1))
            stores.drop(folder, first=GRAPH)
        else:
            os.rename(folder, aside)
            _flush(base)
    return before


def remove_old(base: str | os.PathLike[str], keep: int, spare: Collection[int] = ()) -> list[int]:
    """Removes all versions except the latest ones.

    On disk, each version is renamed first, so that no server loads a partly removed version; in a
    store, `saved_model.pb` is removed first.

    Args:
        base: Base path of the model on the server, a folder or a URL.
        keep: Number of latest versions to keep; positive.
        spare: Versions that are kept as well.

    Returns:
        The removed versions, oldest first.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `keep` is not positive.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    if keep < 1:
        raise ValueError(f"`keep` must be positive. Received: {keep}")
    with _alone(base):
        found = versions(base)
        old = [version for version in sorted(found)[:-keep] if version not in spare]
        for version in old:
            folder = str(found[version])
            if stores.is_remote(base):
                stores.drop(folder, first=GRAPH)
            else:
                removed = Path(base, f".removed-{Path(folder).name}")
                Path(folder).rename(removed)
                if removed.is_symlink():
                    removed.unlink()
                else:
                    shutil.rmtree(removed)
    return old


def versions(base: str | os.PathLike[str]) -> Mapping[int, Path | str]:
    """Returns the folders of versions, including spellings such as `007`, by version number.

    Servers ignore names of 2**63 and above.

    Args:
        base: Base path of the model on the server, a folder or a URL; it need not exist.

    Returns:
        The folder of each version, or its URL.

    Raises:
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    if stores.is_remote(base):
        files = set(stores.find(base))
        folders = {name: stores.join(base, name) for name in (Path(x).parent.name for x in files)}
        return {
            int(name): folder
            for name, folder in folders.items()
            if _is_version(name) and stores.join(folder, GRAPH) in files
        }
    base = Path(base)
    return {
        int(child.name): child
        for child in (base.iterdir() if base.is_dir() else ())
        if _is_version(child.name) and child.is_dir()
    }


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdecimal() and int(name) < _VERSIONS


def _alone(base: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Locks a store for this process; on disk, a rename is enough."""
    held = stores.is_remote(base)
    return leases.held(os.fspath(base)) if held else contextlib.nullcontext()


def _flush(path: str | os.PathLike[str]) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
