"""Files of TREC: judgements (qrels) and runs."""

import contextlib
import functools
import gzip
import math
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

from tfrank_sel.data import arrays
from tfrank_sel.errors import received, refusal

T = TypeVar("T", int, float)


class FileError(ValueError):
    """A malformed file.

    Args:
        path: The file.
        line: The number of the line, from 1; 0 for an error of the file as a whole.
        problem: The expected and the received content.
    """

    def __init__(self, path: str | pathlib.Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.line = line


def read_qrels(path: str | pathlib.Path) -> dict[str, dict[str, int]]:
    """Reads judgements: lines of `query iteration document relevance`.

    Lines that begin with `#` are comments, and a file `.gz` is decompressed; also of runs.

    Returns:
        The relevance of each judged document, by query and document.

    Raises:
        FileError: At the first line that is not of this form or judges a document again, or if the
            file cannot be read or is empty.
    """
    return _read(path, "query iteration document relevance", 3, _integer, "judges")


def read_run(path: str | pathlib.Path) -> dict[str, dict[str, float]]:
    """Reads a run: lines of `query Q0 document rank score tag`. Ranks and tags are ignored.

    Returns:
        The score of each retrieved document, by query and document.

    Raises:
        FileError: At the first line that is not of this form or retrieves a document again, or if
            the file cannot be read or is empty.
    """
    return _read(path, "query Q0 document rank score tag", 4, _finite, "retrieves")


def _read(
    path: str | pathlib.Path, form: str, at: int, parse: Callable[[str], T], verb: str
) -> dict[str, dict[str, T]]:
    """Reads the field `at` of each line that is neither blank nor a comment, by query and document.

    As trec_eval does, it accepts words behind the tag of a run.
    """
    records: dict[str, dict[str, T]] = {}
    count, line = len(form.split()), 0
    with open_text(path) as file:
        for line, text in enumerate(file, start=1):
            fields = text.split()
            if len(fields) != count or text[0] == "#":
                if not fields or text[0] == "#":
                    continue
                if len(fields) < count or not form.endswith("tag"):
                    raise FileError(path, line, received(f"Expected `{form}`", text.strip()))
            query, document = fields[0], fields[2]
            documents = records.get(query)
            if documents is None:
                documents = records[query] = {}
            elif document in documents:
                raise FileError(path, line, f"Query {query} {verb} document {document} again.")
            try:
                documents[document] = parse(fields[at])
            except ValueError as error:
                raise FileError(path, line, str(error)) from None
    if line == 0:
        raise FileError(path, 0, received(f"Expected lines of `{form}`", "an empty file"))
    return records


@contextlib.contextmanager
def open_text(path: str | pathlib.Path) -> Iterator[IO[str]]:
    """Opens a text file, plain or `.gz`; what cannot be read is a `FileError`."""
    try:
        kind = gzip.open if str(path).endswith(".gz") else open
        with kind(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FileError(path, 0, f"Expected a text file that can be read: {error}") from error


# There are few different grades, so a cache saves their parsing.
@functools.lru_cache
def _integer(text: str) -> int:
    value = arrays.number(text)
    if not value.is_integer():
        raise refusal("Expected an integer", text)
    # A float may have been rounded from a larger integer.
    return int(text) if text.lstrip("+-").isdecimal() else int(value)


def _finite(text: str) -> float:
    value = arrays.number(text)
    if not math.isfinite(value):
        raise refusal("Expected a finite number as score", text)
    return value
