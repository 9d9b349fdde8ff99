"""Publication: versions of a model where a server finds them, taken back, and cleared away."""

import os
import shutil
from pathlib import Path

from tfrank_sel.claim import claimed


def publish(
    saved_model: str | os.PathLike[str],
    base: str | os.PathLike[str],
    version: int | None = None,
) -> Path:
    """Puts a SavedModel where a server that polls `base` finds it, whole or not at all.

    The copy is made beside its place under a name that no server takes for a version, flushed to
    disk, and renamed.

    Args:
        saved_model: Folder of the SavedModel; it stays as it is.
        base: Base path of the model on the server; made when absent.
        version: Version to publish; not negative. By default one more than the latest, or 1.

    Returns:
        The folder of the version.

    Raises:
        FileExistsError: If `base` holds the version, under whatever spelling (`7`, `007`), or
            another process is publishing it.
        FileNotFoundError: If `saved_model` holds no SavedModel.
        ValueError: If `version` is negative.
    """
    saved_model, base = Path(saved_model), Path(base)
    if version is None:
        version = 1 + max(versions(base), default=0)
    if version < 0:
        raise ValueError(f"`version` must not be negative. Received: {version}")
    if not (saved_model / "saved_model.pb").is_file():
        raise FileNotFoundError(f"`saved_model` must hold saved_model.pb. Received: {saved_model}")
    published = base / str(version)
    with claimed(base / f".publish-{version}") as copy:
        if version in (found := versions(base)):
            wanted = f"`version` must be new in {base}"
            raise FileExistsError(f"{wanted}. Received: {found[version].name}")
        _copy(saved_model, copy)
        place(copy, published)
    return published


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
        base: Base path of the model on the server.

    Returns:
        The version that is now the latest.

    Raises:
        ValueError: If `base` holds fewer than two versions.
    """
    found = versions(base)
    if len(found) < 2:
        raise ValueError(
            f"{base} must hold a version to go back to. Received: versions {sorted(found)}"
        )
    latest, before = sorted(found, reverse=True)[:2]
    found[latest].rename(Path(base) / f"rolled-back-{found[latest].name}")
    _flush(base)
    return before


def remove_old(base: str | os.PathLike[str], keep: int) -> list[int]:
    """Removes all versions but the latest.

    Each is renamed first, so that no server loads one that is half removed.

    Args:
        base: Base path of the model on the server.
        keep: How many of the latest versions stay; positive.

    Returns:
        The versions removed, oldest first.

    Raises:
        ValueError: If `keep` is not positive.
    """
    if keep < 1:
        raise ValueError(f"`keep` must be positive. Received: {keep}")
    found = versions(base)
    old = sorted(found)[:-keep]
    for version in old:
        shutil.rmtree(found[version].rename(Path(base) / f".removed-{found[version].name}"))
    return old


def versions(base: str | os.PathLike[str]) -> dict[int, Path]:
    """Returns the folders that a server takes for versions, `007` too, by their numbers.

    Args:
        base: Base path of the model on the server; it need not exist.
    """
    base = Path(base)
    return {
        int(child.name): child
        for child in (base.iterdir() if base.is_dir() else ())
        if child.name.isascii() and child.name.isdecimal() and child.is_dir()
    }


def _flush(path: str | os.PathLike[str]) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
