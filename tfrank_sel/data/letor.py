"""LETOR and SVMLight text: one line per item, `label qid:ID index:value ... # comment`."""

import codecs
import gzip
import math
import pathlib
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import decimals, lines
from tfrank_sel.data.lists import ItemList, Lists, runs, strict
from tfrank_sel.data.rejections import InputError, Rejected, rejection
from tfrank_sel.data.spec import narrow
from tfrank_sel.errors import received, refusal
from tfrank_sel.locks import atomic_path

# Lists are dense arrays: an index beyond this is a typing error, not a feature.
MAX_FEATURES = 100_000

_LINE = "`label qid:ID index:value ...`"
_NO_LIST = received(f"expected lines of {_LINE}", "no list in the whole file")
_SHOWN = 1000  # maximum characters of a malformed line that are kept
_TOO_LARGE = 2.0**128 - 2.0**103  # from here on, float32 rounds to infinity
_DOC_ID = re.compile(rb"docid\s*=\s*(\S+)")
_WORDS = re.compile(rb"\s*(?:[0-9]+:[^\s:]+(?:\s+|\Z))*+")  # an index, a colon and a number


def read(path: StrPath, num_features: int) -> Iterator[ItemList]:
    """Reads a LETOR or SVMLight file (`.gz` too), one list at a time.

    Each line is `label qid:ID index:value ... # comment`. Indices count from 1 to `num_features`,
    each at most once in a line; an absent feature is 0. The lines of a query must be adjacent. The
    document identifier is `docid = ...` in the comment (LETOR 4.0), otherwise `ID:position`, with
    the position counted from 1. Identifiers are UTF-8. Blank lines and comment lines are skipped.

    Args:
        path: The file.
        num_features: Number of features of an item.

    Yields:
        The lists, in the order of the file. Only one is held in memory, with the identifiers of
        the queries already seen.

    Raises:
        InputError: At the first line that breaks these rules; also if the file is missing,
            unreadable or empty, or has no list.
        ValueError: If `num_features` is not in 1..100000.
    """
    for found in strict(scan(path, num_features)):
        yield from found


def scan(
    path: StrPath, num_features: int, start: int = 0, stop: int | None = None
) -> Iterator[Lists | Rejected]:
    """Reads like `read`, but continues after lines that break the rules.

    A range of bytes has the whole lists that `lists.runs` assigns to a part. Its lines are
    counted from `start`: the first line that begins in it has the number `start + 1`.

    Args:
        path: The file.
        num_features: Number of features of an item.
        start: First byte of the range.
        stop: End of the range, excluded; None for the end of the file.

    Yields:
        The lists without such lines; each such line, before the list of its query; the first line
        of a query that recurs later in the range, whose lines are dropped; and the file if it has
        no list.

    Raises:
        InputError: If the file is missing, unreadable or empty.
        ValueError: If `num_features` is not in 1..100000.
    """
    if not 1 <= num_features <= MAX_FEATURES:
        raise refusal(f"`num_features` must be in 1..{MAX_FEATURES}", num_features)
    seen: set[str] = set()
    for run in _runs(path, start, stop):
        if isinstance(run, Rejected):
            yield run
            continue
        query, items = run
        if query in seen:
            reason = "the lines of a query must be adjacent. Received again: "
            reason += _format_bytes(f"qid:{query}".encode())
            yield _rejection(path, items[0].number, reason, items[0].line)
            continue
        seen.add(query)
        yield from _parse(path, query, items, num_features)
    if not seen and not start:  # a later part may lie within one list, which is not its own
        yield Rejected(str(path), "line", None, _NO_LIST)


def num_features(path: StrPath) -> int:
    """Returns the largest feature index of a LETOR or SVMLight file.

    Lines that `read` would reject are skipped, unless no other line has a feature.

    Raises:
        InputError: If the file is missing, unreadable or empty, has no list or no feature, or has a
            feature index above 100000.
    """
    largest, any_list = 0, False
    rejected: Rejected | None = None
    for run in _runs(path):
        if isinstance(run, Rejected):
            rejected = rejected or run
            continue
        any_list = True
        bodies = [item.body for item in run[1]]
        # Line by line if need be: NaN in one hid the largest index of its whole query.
        whole = _finite_pairs(b" ".join(bodies))
        each = [whole] if whole is not None else map(_finite_pairs, bodies)
        for pairs in each:
            if pairs is not None:
                largest = max(largest, int(pairs[:, 0].max(initial=0)))
            elif not largest and rejected is None:
                parsed = _parse(path, *run, MAX_FEATURES)
                rejected = next((x for x in parsed if isinstance(x, Rejected)), None)
        if largest > MAX_FEATURES:  # the parser reports the line
            parsed = _parse(path, *run, MAX_FEATURES)
            raise next(x.error() for x in parsed if isinstance(x, Rejected))
    if not largest and rejected is not None:
        raise rejected.error()
    if not any_list:
        raise InputError(str(path), _NO_LIST)
    if largest == 0:
        raise rejection(str(path), "expected at least one feature", "lines without any")
    return largest


def write(path: StrPath, lists: Iterable[ItemList]) -> None:
    """Writes lists as LETOR 4.0 text, from which `read` restores the same values.

    The file is written under a temporary name and renamed, so that `path` is never incomplete.

    Args:
        path: The file; compressed if its name ends in `.gz`.
        lists: The lists. All features are written, including zeros.

    Raises:
        ValueError: If a query occurs twice, lists differ in their number of features, or a list is
            not as `text` requires.
        OSError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    with (
        atomic_path(path, replaces=True) as aside,
        gzip.open(aside, "wb") if path.suffix == ".gz" else aside.open("wb") as file,
    ):
        seen, width = set[str](), 0
        for item_list in lists:
            if item_list.query_id in seen:
                raise refusal("a query must have one list", f"{item_list.query_id!r} again")
            seen.add(item_list.query_id)
            if (got := item_list.features.shape[1]) != (width := width or got):
                raise refusal(f"a list must have {width} features, as the first", got)
            file.write(text(item_list).encode())


def text(item_list: ItemList) -> str:
    """Returns the lines of one list in the form of `write`.

    Raises:
        ValueError: If there is no item, no feature or more than 100000, an identifier is empty or
            contains white space, a query identifier contains `#`, a label is negative, a label or
            feature is not finite or beyond float32, or the list has texts, or weights other than 1.

    Example:
        >>> features = np.array([[0.5, 0.0], [2.0, 1.0]], np.float32)
        >>> print(text(ItemList("7", np.array([1.0, 0.0]), features, ("a", "b"))), end="")
        1 qid:7 1:0.5 2:0 # docid = a
        0 qid:7 1:2 2:1 # docid = b
    """
    for name in (item_list.query_id, *item_list.doc_ids):
        if name.split() != [name] or (name is item_list.query_id and "#" in name):
            expected = "an identifier must be one word, and a query identifier must not contain `#`"
            raise refusal(expected, repr(name))
    features, weights, texts = item_list.features, item_list.weights, item_list.texts
    if not features.size:
        raise refusal("a list must have items with features", features.shape)
    if features.shape[1] > MAX_FEATURES:
        raise refusal(f"a list must have at most {MAX_FEATURES} features", features.shape[1])
    if (texts is not None and texts.size) or (weights is not None and np.any(weights != 1.0)):
        expected = "LETOR holds labels and features alone, no texts and no weights other than 1"
        raise refusal(expected, f"those of {item_list.query_id!r}")
    for name, values in (("labels", item_list.labels), ("features", features)):
        if not np.all(np.isfinite(narrow(name, values))):
            raise refusal(f"{name} must be finite", f"those of {item_list.query_id!r}")
    if np.any(item_list.labels < 0.0):
        raise refusal("labels must not be negative", f"those of {item_list.query_id!r}")
    # 9 significant digits name a float32 exactly.
    template = " ".join(f"{i}:%.9g" for i in range(1, item_list.features.shape[1] + 1))
    rows = zip(item_list.labels, item_list.features.tolist(), item_list.doc_ids, strict=True)
    return "".join(
        f"{label:.9g} qid:{item_list.query_id} {template % tuple(row)} # docid = {doc_id}\n"
        for label, row, doc_id in rows
    )


class _Item(NamedTuple):
    """One line, split but not parsed."""

    number: int
    line: bytes
    label: float
    body: bytes
    doc_id: str | None


def _runs(
    path: StrPath, start: int = 0, stop: int | None = None
) -> Iterator[tuple[str, list[_Item]] | Rejected]:
    """The consecutive lines of each query."""
    rest = () if stop is None else _items(path, stop, None)
    return runs(_items(path, start, stop), rest, is_first=not start)


def _items(path: StrPath, start: int, stop: int | None) -> Iterator[tuple[str, _Item] | Rejected]:
    for number, line in enumerate(_lines(str(path), start, stop), start=start + 1):
        content, _, comment = line.partition(b"#")
        if not content or content.isspace():
            continue
        try:
            yield _split(number, line, content, comment)
        except ValueError as error:
            yield _rejection(path, number, str(error), line)


def _lines(path: str, start: int, stop: int | None) -> Iterator[bytes]:
    try:
        with lines.open_lines(path, start, stop) as file:
            if not start and not file.peek(1):
                raise rejection(path, f"expected lines of {_LINE}", "an empty file")
            text: Iterator[bytes] = iter(file)
            if path.endswith(".gz"):
                text = lines.bounded_lines(path, gzip.GzipFile(fileobj=file))
            if not start:
                first = next(text, b"")
                lines.check_utf8(path, first)
                yield first.removeprefix(codecs.BOM_UTF8)
            yield from text
    except (FileNotFoundError, IsADirectoryError) as error:
        raise rejection(path, "expected a file", "no such file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise rejection(path, "expected a readable file", error) from error


def _split(number: int, line: bytes, content: bytes, comment: bytes) -> tuple[str, _Item]:
    label, query, body = (*content.split(None, 2), b"", b"")[:3]
    if not query.startswith(b"qid:") or query == b"qid:":
        raise refusal(f"expected {_LINE}", _format_bytes(content))
    value = _number(label)
    if not 0.0 <= value < _TOO_LARGE:
        raise refusal("a label must be a finite number of at least 0", _format_bytes(label))
    match = _DOC_ID.search(comment)
    doc_id = _identifier(match[1]) if match else None
    return _identifier(query[4:]), _Item(number, line, value, body, doc_id)


def _parse(
    path: StrPath, query: str, lines_of_query: list[_Item], num_features: int
) -> Iterator[Lists | Rejected]:
    items = lines_of_query
    features = _dense([item.body for item in items], num_features)
    if features is None:  # at least one line is malformed: find out which, and why
        items, rows = [], []
        for item in lines_of_query:
            try:
                rows.append(_row(item.body, num_features))
                items.append(item)
            except ValueError as error:
                yield _rejection(path, item.number, str(error), item.line)
        if not rows:
            return
        features = np.stack(rows)
    doc_ids = np.array([item.doc_id or "" for item in items], object)
    labels = np.array([item.label for item in items], np.float32)
    origin = str(path), np.array([item.number for item in items])
    roles = {"item": doc_ids, "label": labels}
    yield Lists.of(np.array([len(items)]), features, queries=[query], place=origin, **roles)


def _dense(bodies: list[bytes], num_features: int) -> np.ndarray | None:
    """Features of a whole list, `[list_size, num_features]`; None if a line is malformed."""
    text = b" ".join(bodies)
    pairs = _pairs(text)
    if pairs is None:
        return None
    number, value = pairs.T
    if not np.all((number >= 1) & (number <= num_features) & (number == np.floor(number))):
        return None
    index = number.astype(np.int64)
    colons = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(":"))
    upto = np.searchsorted(colons, np.cumsum([len(body) + 1 for body in bodies]))
    rows = np.repeat(np.arange(len(bodies)), np.diff(upto, prepend=0))
    cells = rows * num_features + index - 1
    if np.any(np.diff(cells) <= 0) and np.unique(cells).size < cells.size:
        return None
    features = np.zeros(len(bodies) * num_features, np.float32)
    with np.errstate(over="ignore"):
        features[cells] = value
    return features.reshape(-1, num_features) if np.all(np.isfinite(features)) else None


def _finite_pairs(body: bytes) -> np.ndarray | None:
    """As `_pairs`; None also if any is not finite."""
    pairs = _pairs(body)
    return pairs if pairs is not None and np.all(np.isfinite(pairs)) else None


def _pairs(body: bytes) -> np.ndarray | None:
    """Index and value of each `index:value`, `[n, 2]` float64; None if any is malformed."""
    if (plain := decimals.pairs(body)) is not None:
        return plain
    if not _WORDS.fullmatch(body):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # NumPy 1 stops there and warns
            numbers = np.fromstring(body.replace(b":", b" ").decode("ascii"), sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return numbers.reshape(-1, 2) if numbers.size == 2 * body.count(b":") else None


def _row(body: bytes, num_features: int) -> np.ndarray:
    """Features of one line; raises a `ValueError` with the fault of the line."""
    row = np.zeros(num_features, np.float32)
    seen: set[int] = set()
    for word in body.split():
        name, _, number = word.partition(b":")
        if not name.isdigit() or not 1 <= int(name) <= num_features:
            expected = f"a feature must be `index:value`, its index in 1..{num_features}"
            raise refusal(expected, _format_bytes(word))
        if int(name) in seen:
            raise refusal("a feature index must occur once", f"{int(name)} again")
        seen.add(int(name))
        with np.errstate(over="ignore"):
            row[int(name) - 1] = _number(number)
        if not np.isfinite(row[int(name) - 1]):
            raise refusal("a feature must be a finite number", _format_bytes(word))
    return row


def _number(word: bytes) -> float:
    """The number, or NaN if it is not one."""
    try:  # `float` takes 1_0 for 10
        return math.nan if b"_" in word else float(word)
    except ValueError:
        return math.nan


def _rejection(path: StrPath, number: int, reason: str, line: bytes) -> Rejected:
    text = line.decode("utf-8", "replace").rstrip()[:_SHOWN]
    return Rejected(str(path), "line", number, reason, text)


def _identifier(octets: bytes) -> str:
    """The text; invalid UTF-8 is rejected, because two identifiers could become equal."""
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise refusal("an identifier must be UTF-8", _format_bytes(octets)) from error


def _format_bytes(octets: bytes) -> str:
    words = octets.decode(errors="backslashreplace").strip()
    return repr(words if len(words) <= 60 else words[:57] + "...")
