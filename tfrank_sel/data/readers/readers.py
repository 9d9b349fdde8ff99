"""The lists of a file, whatever its format."""

import dataclasses
import gzip
import itertools
from collections.abc import Iterator, Sequence

from tfrank_sel import data
from tfrank_sel.data import letor
from tfrank_sel.data.readers import records, tables
from tfrank_sel.data.readers.sources import Columns, Format, Found, Layout, Rejected, Source
from tfrank_sel.data.readers.tables import Rows

_WITH_TEXT = 1000  # malformed lines of a file that are told with their text
_SHOWN = 1000  # characters of such a line


def layout(sources: Sequence[Source], columns: Columns, num_features: int | None = None) -> Layout:
    """Returns what the lists of sources hold, as far as training may know.

    Of LETOR files, all that may be trained on are read for the largest index; of others, the first
    records of the first.

    Args:
        sources: The files.
        columns: Names of the parts, where files name them.
        num_features: The largest index of LETOR files, if it is known and need not be looked for.

    Raises:
        tfrank_sel.data.InputError: If the files are not of one format, or one cannot be read.
    """
    learned = [source for source in sources if source.split in (None, "train")]
    first = learned[0]
    for source in sources:
        if source.format is not first.format:
            wanted = f"expected {first.format.value}, as {first.path} is"
            raise data.InputError(source.path, f"{wanted}. Received: {source.format.value}")
    if first.format is Format.LETOR:
        if num_features is None:
            num_features = max(letor.num_features(source.path) for source in learned)
        return Layout({"features": num_features})
    if first.format in (Format.PARQUET, Format.CSV):
        return tables.layout(first.path, first.format, columns)
    return records.layout(first.path, first.format, columns)


def lists(source: Source, columns: Columns, layout: Layout) -> Iterator[Found | Rejected]:
    """Reads a file whose lists stand as such, or as adjacent rows: one list at a time.

    Args:
        source: The file.
        columns: Names of the parts.
        layout: What its lists hold.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read.
    """
    if source.format is Format.LETOR:
        return _letor(source.path, len(layout.names))
    if source.format.has_rows:
        return tables.adjacent(rows(source, columns, layout))
    return records.read(source.path, source.format, columns, layout)


def rows(source: Source, columns: Columns, layout: Layout) -> Iterator[Rows | Rejected]:
    """Reads the rows of a file of rows that can be used, some at a time.

    Args:
        source: The file.
        columns: Names of the parts.
        layout: What its lists hold.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read.
    """
    if source.format is Format.EXAMPLE:
        return tables.checked(records.rows(source.path, columns, layout), "record")
    return tables.checked(tables.read(source.path, source.format, columns, layout))


def _letor(path: str, num_features: int) -> Iterator[Found | Rejected]:
    errors: list[data.InputError] = []
    for item_list in letor.read(path, num_features, on_error=errors.append):
        yield Found(item_list)
        yield from (_rejected(path, error) for error in errors[_WITH_TEXT:])
        del errors[_WITH_TEXT:]
    yield from _with_text(path, [_rejected(path, error) for error in errors])


def _rejected(path: str, error: data.InputError) -> Rejected:
    line = error.place.removeprefix(f"{path}:")
    return Rejected(path, "line", int(line) if line.isdigit() else None, error.reason)


def _with_text(path: str, found: list[Rejected]) -> Iterator[Rejected]:
    """Adds the lines as they stand in the file, in one more pass over its beginning."""
    numbers = {rejected.number for rejected in found if rejected.number is not None}
    lines: dict[int | None, str] = {}
    if numbers:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            for number, line in enumerate(itertools.islice(file, max(numbers)), start=1):
                if number in numbers:
                    lines[number] = line.decode("utf-8", "replace").rstrip()[:_SHOWN]
    for rejected in sorted(found, key=lambda rejected: rejected.number or 0):
        yield dataclasses.replace(rejected, text=lines.get(rejected.number))
