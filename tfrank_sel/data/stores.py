"""Files on this machine and in object stores, by path or URL: `s3://`, `gs://`, all of fsspec.

Credentials, regions and endpoints are those that the store's own client finds, as in
`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` or `GOOGLE_APPLICATION_CREDENTIALS`.
"""

import collections
import contextlib
import errno
import glob as local_glob
import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tfrank_sel import artefacts
from tfrank_sel.arguments import StrPath
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.errors import refusal
from tfrank_sel.locks import atomic_path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a disk that is full
_MARK = b"\xef\xbb\xbf"  # of a text in UTF-8, which some editors write
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of schemes that need one
_AHEAD = 4 << 20  # bytes that are fetched beyond those that are read; by default, 50 MiB of S3
# exceptions of stores' clients, which are imported by a store alone, by their names
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")


def is_remote(path: StrPath) -> bool:
    """Returns whether a path is the URL of an object store.

    Example:
        >>> is_remote("s3://bucket/train.parquet"), is_remote("data/train.parquet")
        (True, False)
    """
    scheme = _SCHEME.match(os.fspath(path))
    return scheme is not None and scheme[1] not in ("file", "local")


def join(folder: StrPath, *names: str) -> str:
    """Returns the path or URL of an entry of a folder.

    Example:
        >>> join("s3://bucket/runs/", "1", "train")
        's3://bucket/runs/1/train'
    """
    return "/".join([os.fspath(folder).rstrip("/"), *names])


def filesystem(url: str) -> tuple[Any, str]:
    """Returns the fsspec file system of a URL, and the path in it.

    Raises:
        InputError: If the scheme is unknown, or the client of the store is not installed.
    """
    scheme = str(_SCHEME.match(url)[1])  # type: ignore[index]
    try:
        import fsspec

        store, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        client = f"pip install 'tfrank_sel[{extra}]'" if extra else str(error)
        raise rejection(
            url, f"{scheme}:// needs a client of the store: {client}", "none"
        ) from error
    except ValueError as error:
        expected = "expected a path on this machine, or a URL such as s3://... or gs://..."
        raise rejection(url, expected, f"the unknown scheme {scheme}://") from error
    store.invalidate_cache()  # another process may have written since
    return store, path


@contextlib.contextmanager
def open_filesystem(url: str) -> Iterator[tuple[Any, str]]:
    """Gives the file system of a URL and the path in it, and names the store in its errors.

    Raises:
        FileNotFoundError: If nothing is there.
        InputError: If the store cannot be reached or refuses, or the scheme is unknown.
    """
    try:
        yield filesystem(url)
    except (InputError, FileExistsError):
        raise
    except FileNotFoundError as error:
        name = artefacts.address(url)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from error
    except PermissionError as error:
        raise rejection(url, "the store must grant access", error) from error
    except NotImplementedError as error:
        expected = "expected a store with all operations of fsspec, such as s3:// or gs://"
        raise rejection(url, expected, f"{_scheme(url)}://") from error
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & set(_NO_CREDENTIALS):
            expected = "expected credentials of the store, as its own client takes them"
            raise rejection(url, expected, error) from error
        # A disk that is full while a file is fetched to it is no fault of the store.
        is_local = getattr(error, "errno", None) in NO_ROOM
        if not is_local and kinds & {"OSError", "BotoCoreError", "ClientError", "HttpError"}:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise rejection(url, "the store must be within reach", reason) from error
        raise


@contextlib.contextmanager
def open_file(path: StrPath, mode: str = "rb") -> Iterator[IO[Any]]:
    """Opens a file; from a store, only the bytes that are read are downloaded.

    Args:
        path: Path or URL.
        mode: As in `open`. What is written to a store is there when the block has ended without an
            error.

    Yields:
        The file; one to read can be sought in.

    Raises:
        InputError: If the store cannot be reached or refuses, or the scheme is unknown.
        OSError: If the file cannot be opened.
    """
    if not is_remote(path):
        with open(path, mode) as file:
            yield file
        return
    url = os.fspath(path)
    with open_filesystem(url) as (store, inside):
        file = store.open(inside, mode, block_size=_AHEAD if "r" in mode else None)
        try:
            yield file
        except BaseException:
            if "r" not in mode:
                with contextlib.suppress(NotImplementedError):
                    file.discard()
                file.closed = True  # which would send what there is
            raise
        finally:
            if not file.closed:
                file.close()


def is_file(path: StrPath) -> bool:
    """Returns whether there is a file."""
    if not is_remote(path):
        return os.path.isfile(path)
    return _kind(path) == "file"


def is_dir(path: StrPath) -> bool:
    """Returns whether a folder exists; in a store, an empty folder does not."""
    if not is_remote(path):
        return os.path.isdir(path)
    return _kind(path) == "directory"


def _kind(url: StrPath) -> str:
    """What a store has at a URL: a file, a directory or nothing; its client hides other errors."""
    try:
        with open_filesystem(os.fspath(url)) as (store, inside):
            return str(store.info(inside)["type"])
    except FileNotFoundError:
        return "nothing"


def size(path: StrPath) -> int:
    """Returns the bytes of a file."""
    if not is_remote(path):
        return os.path.getsize(path)
    with open_filesystem(os.fspath(path)) as (store, inside):
        return int(store.size(inside))


def state(path: StrPath) -> tuple[int, str]:
    """Returns the size of a file, and a mark that changes if the file is written again.

    The latter is the time of its last change or, in a store, its tag.
    """
    if not is_remote(path):
        status = os.stat(path)
        return status.st_size, str(status.st_mtime_ns)
    with open_filesystem(os.fspath(path)) as (store, inside):
        return _state(store, store.info(inside))


def states(folder: StrPath) -> dict[str, tuple[int, str]]:
    """Returns the `state` of each file in a folder and the folders in it, by path or URL."""
    if not is_remote(folder):
        return {path: state(path) for path in find(folder)}
    with open_filesystem(os.fspath(folder)) as (store, inside):
        entries = store.find(inside, detail=True)
        return {_url(folder, store, path): _state(store, x) for path, x in entries.items()}


def _state(store: Any, entry: Mapping[str, Any]) -> tuple[int, str]:
    tag = entry.get("ETag") or entry.get("etag") or entry.get("generation")
    return int(entry["size"]), str(tag or store.modified(entry["name"]).isoformat())


def glob(pattern: StrPath) -> list[str]:
    """Returns the paths or URLs that a pattern with `*`, `?` or `[...]` names, in order."""
    pattern = os.fspath(pattern)
    if not is_remote(pattern):
        return sorted(local_glob.glob(pattern))
    with open_filesystem(pattern) as (store, inside):
        return sorted(_url(pattern, store, path) for path in store.glob(inside))


def expand(patterns: Iterable[str]) -> list[str]:
    """Returns the files and folders of paths, URLs and patterns with `*`, `?` or `[...]`.

    Args:
        patterns: The paths and patterns. The name of what is there is no pattern.

    Returns:
        The paths, in the order of the patterns, and by name within a pattern.

    Raises:
        InputError: If there is no such file, or a file is given twice; if a store cannot be reached
            or denies access, or a scheme is unknown.
    """
    paths: list[str] = []
    for pattern in patterns:
        is_there = is_file(pattern) or is_dir(pattern)
        is_pattern = local_glob.has_magic(pattern) and not is_there
        matches = glob(pattern) if is_pattern else [pattern]
        if not matches:
            raise rejection(pattern, "expected a file", "a pattern that matches no file")
        if not is_pattern and not is_there:
            raise rejection(pattern, "expected a file", "no such file")
        paths += matches
    places = (x if is_remote(x) else os.path.realpath(x) for x in paths)
    for path, count in collections.Counter(places).items():
        if count > 1:
            raise rejection(path, "expected each file once", "the same file again")
    return paths


def find(folder: StrPath, *, marks: bool = False) -> list[str]:
    """Returns the files in a folder and the folders in it, as paths or URLs, in order.

    Args:
        folder: Path or URL.
        marks: Whether the empty files of a store by which consoles mark folders are among them.
    """
    if not is_remote(folder):
        return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())
    with open_filesystem(os.fspath(folder)) as (store, inside):
        found = (path for path in store.find(inside) if marks or not path.endswith("/"))
        return sorted(_url(folder, store, path) for path in found)


def _url(like: StrPath, store: Any, path: str) -> str:
    """The URL of a path in a store, with the scheme of another URL: some have two names."""
    scheme = os.fspath(like).partition("://")[0]
    return f"{scheme}://{store.unstrip_protocol(path).partition('://')[2]}"


def remove(path: StrPath) -> None:
    """Removes a file, if it is there."""
    if not is_remote(path):
        Path(path).unlink(missing_ok=True)
        return
    with (
        open_filesystem(os.fspath(path)) as (store, inside),
        contextlib.suppress(FileNotFoundError),
    ):
        store.rm_file(inside)


def copy(path: StrPath, target: StrPath) -> None:
    """Copies a file, as a link if the disk supports it.

    Args:
        path: Path or URL of the file.
        target: Where the copy is to be, in a folder that is there, or in a store; a file there is
            replaced.

    Raises:
        ValueError: If both are one file.
        OSError: If there is no such file, or no room for it.
        InputError: If a store cannot be reached or refuses.
    """
    is_local = not is_remote(path) and not is_remote(target)
    folder, name = Path(target).parent, Path(target).name
    if os.fspath(path) == os.fspath(target) or (
        is_local and os.path.realpath(path) == os.path.join(os.path.realpath(folder), name)
    ):
        raise refusal("a copy must have another place", os.fspath(target))
    if not is_remote(target):
        # What is there may be a link, whose file must not change, and stays if the copy fails.
        with scratch(folder) as aside:
            copied = os.path.join(aside, "copy")
            try:
                os.link(os.path.realpath(path), copied)
            except OSError:  # of a URL, or a disk without such links
                with open_file(path) as file, open(copied, "wb") as whole:
                    shutil.copyfileobj(file, whole, 1 << 20)
            os.replace(copied, folder / name)
        return
    if _scheme(path) == _scheme(target):
        with open_filesystem(os.fspath(path)) as (store, inside):
            store.cp_file(inside, filesystem(os.fspath(target))[1])
        return
    with open_file(path) as file, open_file(target, "wb") as sent:
        shutil.copyfileobj(file, sent, 1 << 20)


def _scheme(path: StrPath) -> str:
    match = _SCHEME.match(os.fspath(path))
    return match[1] if match else ""


@contextlib.contextmanager
def scratch(folder: StrPath) -> Iterator[str]:
    """Gives a temporary empty folder in another folder, and removes it with its files at the end.

    Args:
        folder: Path, of a folder that is there, or URL.
    """
    if not is_remote(folder):
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as temporary:
            yield temporary
        return
    url = join(folder, f".scratch-{uuid.uuid4().hex}")
    try:
        yield url
    finally:
        drop(url)


def read_text(path: StrPath) -> str:
    """Returns the text of a file.

    Raises:
        UnicodeDecodeError: If it is not UTF-8, or begins with a byte order mark.
        OSError: If it cannot be read.
        InputError: If the store cannot be reached or refuses.
    """
    with open_file(path) as file:
        content: bytes = file.read()
    if content.startswith(_MARK):
        reason = "expected no byte order mark (BOM)"
        raise UnicodeDecodeError("utf-8", content[:3], 0, 3, reason)
    return str(content, "utf-8")


def digests(folder: StrPath) -> artefacts.Digests:
    """Returns the size and the digest of each file in a folder, which are read for it."""
    if not is_remote(folder):
        return artefacts.digests(Path(folder))
    by_name = {}
    for url in find(folder):
        with open_file(url) as file:
            hashed = artefacts.digest(file)
            by_name[url.removeprefix(join(folder, ""))] = (file.tell(), hashed)
    return by_name


def difference(folder: StrPath, original: StrPath) -> str | None:
    """Returns the first file of a folder that a copy of it lacks or changed; None if there is none.

    If all are equal, the file of digests of the copy, if it has one, must be theirs.

    Args:
        folder: The copy, its path or URL. It may have other files as well.
        original: The folder.

    Returns:
        Path or URL of the file in the copy.
    """
    copied, wanted = digests(folder), digests(original)
    changed = [name for name, entry in wanted.items() if copied.get(name) != entry]
    if not changed and is_file(listing := join(folder, artefacts.DIGESTS)):
        changed = [artefacts.DIGESTS]
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            changed *= artefacts.parse_digests(json.loads(read_text(listing))) != wanted
    return join(folder, changed[0]) if changed else None


def drop(folder: StrPath, first: str = "", but: Iterable[str] = ()) -> None:
    """Removes a folder, if it is there: of a store, its files, `first` before all others.

    Args:
        folder: Path or URL.
        first: Name of a file in it.
        but: What the names of files of a store begin with that are kept.
    """
    if not is_remote(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = tuple(join(folder, name) for name in but)
    files = find(folder, marks=True)
    for file in sorted(files, key=lambda file: file != join(folder, first)):
        if not file.startswith(kept):
            remove(file)


def send(folder: StrPath, url: str, last: str, but: Iterable[str] = ()) -> None:
    """Sends a folder to a store, and replaces the folder there.

    Args:
        folder: The folder.
        url: Its URL.
        last: Name of a file in it without which readers take no folder for whole: the first to be
            removed, and the last to be sent.
        but: As in `drop`, of what is there.

    Raises:
        InputError: If the store cannot be reached or refuses.
        OSError: If a file cannot be read.
    """
    drop(url, last, but)
    names = [os.path.relpath(path, folder) for path in find(folder)]
    with open_filesystem(url) as (store, inside):
        for part in ([name for name in names if name != last], [last]):
            from_here = [os.path.join(folder, name) for name in part]
            store.put(from_here, [join(inside, Path(name).as_posix()) for name in part])


def cache() -> Path:
    """Returns the folder of local copies: `$TFRANK_SEL_CACHE`, or one in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "tfrank_sel")
    return Path(os.environ.get("TFRANK_SEL_CACHE", default))


def near(path: StrPath) -> str:
    """Returns the path of a file on this machine: a copy in `cache()` of one in a store.

    A copy is kept as long as the file in the store is the same.

    Args:
        path: Path or URL.

    Raises:
        InputError: If the store cannot be reached or refuses, or the scheme is unknown.
        OSError: If there is no such file, or no room for it.
    """
    if not is_remote(path):
        return os.fspath(path)
    url = os.fspath(path)
    target = _place("files", url, state(url))
    if not target.exists():
        with _aside(target) as copy, open_filesystem(url) as (store, inside):
            # Workers fetch one file at once: each its own copy, of which the last one stays.
            store.get_file(inside, copy)
            os.replace(copy, target)
    return str(target)


def _place(kind: str, url: str, state: object) -> Path:
    """The place of a copy of a file or folder in `cache()`."""
    url_key, key = (hashlib.sha256(repr(x).encode()).hexdigest()[:32] for x in (url, state))
    return cache() / kind / url_key / key / url.rpartition("/")[2]


@contextlib.contextmanager
def _aside(target: Path) -> Iterator[str]:
    """Gives a path to copy to before `target`; at the end, removes copies of earlier states."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as aside:
        yield os.path.join(aside, target.name)
    for earlier in target.parent.parent.iterdir():
        if earlier != target.parent:
            shutil.rmtree(earlier, ignore_errors=True)


def near_folder(path: StrPath) -> str:
    """Returns the path of a folder on this machine: a copy in `cache()` of one in a store.

    A copy is kept as long as the folder in the store is the same.

    Args:
        path: Path or URL.

    Raises:
        InputError: If the folder changes meanwhile, the store cannot be reached or refuses, or the
            scheme is unknown.
        OSError: If there is no such folder, or no room for it.
    """
    if not is_remote(path):
        return os.fspath(path)
    url = os.fspath(path).rstrip("/")
    listing = states(url)
    target = _place("folders", url, sorted(listing.items()))
    if not target.exists():
        with _aside(target) as copy:
            _fetch_whole(url, listing, copy)
            try:
                os.rename(copy, target)
            except OSError:
                if not target.exists():  # nor has another process made it
                    raise
    return str(target)


@contextlib.contextmanager
def local_copy(path: StrPath) -> Iterator[str]:
    """Gives a folder on this machine: for one in a store, a copy that is removed at the end.

    Unlike a copy of `near_folder`, no other process has it.

    Args:
        path: Path or URL.

    Raises:
        InputError, OSError: As `near_folder`.
    """
    if not is_remote(path):
        yield os.fspath(path)
        return
    url = os.fspath(path).rstrip("/")
    cache().mkdir(parents=True, exist_ok=True)
    with scratch(cache()) as aside:
        copy = os.path.join(aside, url.rpartition("/")[2])
        _fetch_whole(url, states(url), copy)
        yield copy


def _fetch_whole(url: str, listing: Mapping[str, tuple[int, str]], folder: str) -> None:
    """Copies the files of a folder of a store, which must stay as they were listed."""
    names = [file.removeprefix(f"{url}/") for file in listing if not file.endswith("/")]
    if not names:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    fetch(url, names, folder)
    if states(url) != listing:
        expected = "the folder must stay as it is while it is copied"
        raise rejection(url, expected, "one that changed")


def fetch(url: str, names: Sequence[str], folder: StrPath) -> None:
    """Copies files of a folder of a store, by their names in it, to a folder on this machine."""
    try:
        places = [artefacts.inside(folder, name) for name in names]
    except ValueError as error:
        raise InputError(url, f"{error}") from error
    for parent in {place.parent for place in places}:
        parent.mkdir(parents=True, exist_ok=True)
    with open_filesystem(url) as (store, inside):
        store.get([join(inside, name) for name in names], [*map(str, places)])


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file atomically to a path or URL; creates its folder if needed."""
    if is_remote(path):
        with open_file(path, "wb") as file:
            file.write(text.encode())
        return
    with atomic_path(Path(path), replaces=True) as written:
        written.write_text(text, encoding="utf-8")
