"""Artefacts on disk: written whole with a digest of each file, and checked when they are read."""

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.locks import atomic_path
from tfrank_sel.version import __version__

DIGESTS = "digests.json"
# Version of the form of the file of digests.
_FORM = 1
_CONTROL = re.compile("[\x00-\x1f\x7f]")
Digests = Mapping[str, tuple[int, str]]  # size and digest of each file, by its name
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"  # bounded, or else a search takes quadratic time
# servers and databases; paths of stores and folders may have `?`, `#` and users that are no secrets
_SERVER = re.compile(r"(?:https?|ftps?|\w*(?:sql|oracle|maria)[\w+]*)://", re.IGNORECASE)
_PASSWORD = r"^[^/@:\[]*:(?!\d+[/?#])[^@]*@"  # with its user; `/` may be in it, a port is none


def address(value: str) -> str:
    """Returns a path or URL that may be kept and shown: a URL without what may be a secret.

    That is, of a server or a database, the user, the query and the fragment; of other URLs, a user
    with a password. Paths and other texts stay.

    Example:
        >>> address("https://me:secret@host/train.csv?sig=1"), address("hdfs://host/a#b")
        ('https://host/train.csv', 'hdfs://host/a#b')
    """
    if not (scheme := re.match(_SCHEME, value)):
        return value
    rest = re.sub(_PASSWORD, "", value[scheme.end() :])
    if _SERVER.match(value):
        rest = re.sub(r"^[^/]*@", "", re.split(r"[?#]", rest)[0])
    return scheme[0] + rest


def text_with_addresses(text: str) -> str:
    """Returns a text, each URL in it as an `address`."""
    return re.sub(rf"{_SCHEME}[^\s'\"<>]*", lambda x: address(x[0]), text)


@contextlib.contextmanager
def name_file_in_errors(path: StrPath, expected: str) -> Iterator[None]:
    """Names a file in all errors of its reader, which may be those of any library.

    Args:
        path: The file.
        expected: What it must be.

    Raises:
        ValueError: If it is something else.
        OSError: If it cannot be read.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or f"{error}", os.fspath(path)) from error
    except Exception as error:
        # it names the file already
        if isinstance(error, ValueError) and str(error).startswith(os.fspath(path)):
            raise
        # XGBoost appends a stack trace to its messages.
        text, _, _ = str(error).partition("Stack trace:")
        reason = " ".join(text.split()) or type(error).__name__
        raise refusal(f"{os.fspath(path)}: expected {expected}", reason) from error


def inside(folder: StrPath, name: str) -> Path:
    """Returns the path of a file in a folder, by a name that comes from elsewhere.

    Args:
        folder: The folder.
        name: Names of folders in it, if any, and of the file, with `/` between them.

    Raises:
        ValueError: If the name has an empty part, `.`, `..` or a control character.
    """
    if {"", ".", ".."} & {*name.split("/")} or _CONTROL.search(name):
        raise refusal("the name of a file must stay in its folder", repr(name))
    return Path(folder, name)


@contextlib.contextmanager
def folder(path: Path, kind: str) -> Iterator[Path]:
    """Writes a new folder, which is there only if all of it is, with a digest of each file.

    Args:
        path: The folder.
        kind: What it holds, such as the name of a class.

    Yields:
        The folder to write.

    Raises:
        FileExistsError: If `path` exists, or a running process is writing it.
        OSError: If it cannot be written.
    """
    with atomic_path(path) as written:
        written.mkdir()
        yield written
        (written / DIGESTS).write_text(text(digests(written), kind), encoding="utf-8")


def check(path: Path, kind: str) -> None:
    """Checks that the files of a folder are those that were written; others may be there, too.

    A folder without digests, of an earlier version, is not checked.

    Args:
        path: The folder.
        kind: What it must hold.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If a file differs, or the folder holds something else. The error names the file.
    """
    listing = path / DIGESTS
    if not listing.exists() and path.is_dir():
        return
    with name_file_in_errors(listing, f"the digests of a {kind}"):
        record = json.loads(listing.read_text(encoding="utf-8"))
        files = {inside(path, name): entry for name, entry in parse_digests(record).items()}
        kind_of_record = record["kind"]
        form, version = int(record["form"]), record["version"]
    if form > _FORM:
        raise refusal(f"{listing}: needs tfrank_sel {version} or later", __version__)
    if kind_of_record != kind:
        raise refusal(f"{path}: expected a {kind}", f"a {kind_of_record}")
    for listing, (size, hashed) in files.items():
        found = listing.stat()
        if not stat.S_ISREG(found.st_mode):  # whose content may have no end, as of a pipe
            raise refusal(f"{listing}: must be the file that was written", "no regular file")
        if found.st_size != size:
            expected = f"{listing}: must have the {size} bytes that were written"
            raise refusal(expected, f"{found.st_size} bytes")
        with listing.open("rb") as file:
            if digest(file) != hashed:
                expected = f"{listing}: must have the content that was written"
                raise refusal(expected, "another content")


def parse_digests(record: Mapping[str, Any]) -> Digests:
    """Returns the digests of a record, the parsed content of the file of digests."""
    return {str(name): (int(size), str(x)) for name, (size, x) in record["files"].items()}


def write_json(path: StrPath, values: Mapping[str, Any]) -> None:
    """Writes values with their digest as a JSON file, which replaces one that is there."""
    with atomic_path(Path(path), replaces=True) as written:
        content = json.dumps({**values, "digest": _digest(values)}, indent=2) + "\n"
        written.write_text(content, encoding="utf-8")


def read_json(path: StrPath) -> dict[str, Any]:
    """Reads what `write_json` wrote, or a JSON object without a digest.

    Call it in `name_file_in_errors`, which names the file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is something else, or was changed.
    """
    values: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    if values.pop("digest", None) not in (None, _digest(values)):
        raise ValueError("another content than was written (an edited file must have no `digest`)")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def digest(file: Any) -> str:
    """Returns the digest of a file, from its place on."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def digests(path: Path) -> Digests:
    """Returns the size and the digest of each file in a folder and the folders in it."""
    files = {}
    for file_path in sorted(path.rglob("*")):
        if file_path.is_file() and file_path != path / DIGESTS:
            with file_path.open("rb") as file:
                files[file_path.relative_to(path).as_posix()] = (
                    file_path.stat().st_size,
                    digest(file),
                )
    return files


def text(files: Digests, kind: str) -> str:
    """Returns the content of the file of digests."""
    values: dict[str, Any] = {"kind": kind, "form": _FORM, "version": __version__}
    return json.dumps({**values, "files": files}, indent=1) + "\n"
