"""Publication: versions of a model where a server finds them, taken back, and cleared away.

In an object store, which renames nothing, a folder is a version if it holds `saved_model.pb`: the
file that is sent last and removed first.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tfrank_sel.claim import claimed
from tfrank_sel.data import leases, stores

GRAPH = "saved_model.pb"


def publish(
    saved_model: str | os.PathLike[str],
    base: str | os.PathLike[str],
    version: int | None = None,
) -> Path | str:
    """Puts a SavedModel where a server that polls `base` finds it, whole or not at all.

    On disk, the copy is made beside its place under a name that no server takes for a version,
    flushed to disk, and renamed. To an object store, `saved_model.pb` is sent last; a server that
    looks before is to try again, as TensorFlow Serving does every minute, five times by default.

    Args:
        saved_model: Folder or URL of the SavedModel; it stays as it is.
        base: Base path of the model on the server, a folder or a URL; made when absent.
        version: Version to publish; not negative. By default one more than the latest, or 1.

    Returns:
        The folder of the version, or its URL.

    Raises:
        FileExistsError: If `base` holds the version, under whatever spelling (`7`, `007`), or
            another process is publishing it.
        FileNotFoundError: If `saved_model` holds no SavedModel.
        ValueError: If `version` is negative.
        tfrank_sel.data.InputError: If a store cannot be reached or refuses.
    """
    if version is None:
        version = 1 + max(versions(base), default=0)
    if version < 0:
        raise ValueError(f"`version` must not be negative. Received: {version}")
    if not stores.is_file(stores.join(saved_model, GRAPH)):
        raise FileNotFoundError(f"`saved_model` must hold saved_model.pb. Received: {saved_model}")
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
    """Copies a folder up to the first file that fails, where `copytree` would go on."""
    copy.mkdir()
    for child in folder.iterdir():
        if child.is_dir():
            _copy(child, copy / child.name)
        else:
            shutil.copy2(child, copy / child.name)


def place(written: Path, path: Path) -> None:
    """Renames a folder to where it is looked for, once all of it is on disk.

    Args:
        written: The folder.
        path: Its place, in the same file system.
    """
    for folder, _, files in os.walk(written):
        for name in (*files, "."):
            _flush(os.path.join(folder, name))
    written.rename(path)
    _flush(path.parent)


def roll_back(base: str | os.PathLike[str]) -> int:
    """Takes the latest version back: a server that polls `base` goes on with the one before it.

    The version stays beside the others, under a name that no server takes for one.

    Args:
        base: Base path of the model on the server, a folder or a URL.

    Returns:
        The version that is now the latest.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `base` holds fewer than two versions.
        tfrank_sel.data.InputError: If a store cannot be reached or refuses.
    """
    with _alone(base):
        found = versions(base)
        if len(found) < 2:
            raise ValueError(
                f"{base} must hold a version to go back to. Received: versions {sorted(found)}"
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


def remove_old(base: str | os.PathLike[str], keep: int) -> list[int]:
    """Removes all versions but the latest.

    On disk, each is renamed first, so that no server loads one that is half removed; of a store,
    `saved_model.pb` is removed first.

    Args:
        base: Base path of the model on the server, a folder or a URL.
        keep: How many of the latest versions stay; positive.

    Returns:
        The versions removed, oldest first.

    Raises:
        FileExistsError: If another process is changing the versions of a store.
        ValueError: If `keep` is not positive.
        tfrank_sel.data.InputError: If a store cannot be reached or refuses.
    """
    if keep < 1:
        raise ValueError(f"`keep` must be positive. Received: {keep}")
    with _alone(base):
        found = versions(base)
        old = sorted(found)[:-keep]
        for version in old:
            folder = str(found[version])
            if stores.is_remote(base):
                stores.drop(folder, first=GRAPH)
            else:
                removed = Path(base, f".removed-{Path(folder).name}")
                shutil.rmtree(Path(folder).rename(removed))
    return old


def versions(base: str | os.PathLike[str]) -> Mapping[int, Path | str]:
    """Returns the folders that a server takes for versions, `007` too, by their numbers.

    Args:
        base: Base path of the model on the server, a folder or a URL; it need not exist.

    Returns:
        The folder of each version, or its URL.

    Raises:
        tfrank_sel.data.InputError: If a store cannot be reached or refuses.
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
    return name.isascii() and name.isdecimal()


def _alone(base: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Holds a store for this process alone; on disk, a rename is enough."""
    held = stores.is_remote(base)
    return leases.held(os.fspath(base)) if held else contextlib.nullcontext()


def _flush(path: str | os.PathLike[str]) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
