"""Bases of readers: the schema of lists, the parts of a file, and the lists of a part."""

import abc
import bisect
import contextlib
import dataclasses
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from tfrank_sel.data import lines, lists
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.table import Table
from tfrank_sel.features import Feature

_T = TypeVar("_T")
# Size of the buffer in bytes.
_BUFFER = 1 << 20
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a file that a worker can read independently.

    Args:
        path: The file.
        start: First unit of the part, such as a byte or a row group; 0 is the first of the file.
        stop: End of the part, excluded; None for the end of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None


def evenly_spaced(values: Sequence[_T], count: int = 32) -> list[_T]:
    """Returns at most `count` evenly spaced elements, the first and the last among them.

    Example:
        >>> evenly_spaced(range(10), 4)
        [0, 3, 6, 9]
    """
    if len(values) <= count:
        return list(values)
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]


class Reader(abc.ABC):
    """Reader of files of one format; `tfrank_sel.data.formats` lists the subclasses.

    Args:
        columns: Names of the parts of a list.

    Attributes:
        name: Name of the format.
        suffixes: File name suffixes.
        is_distinct: Whether the rows of a query must be adjacent in a file.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    is_distinct: ClassVar[bool] = False

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @abc.abstractmethod
    def infer(self, paths: Sequence[str]) -> Schema:
        """Returns the schema of the lists of files.

        Args:
            paths: The files. Most readers read only the beginnings of some: see `evenly_spaced`.

        Raises:
            InputError: If a file cannot be read, or a named column is missing.
        """

    def propose(self, paths: Sequence[str]) -> tuple[dict[str, Feature], dict[str, str]]:
        """Proposes types for columns without a role: by default, those of `infer`.

        Args:
            paths: The files, of which a sample is read.

        Returns:
            The types by name; and the columns that are left out, with the reason.

        Raises:
            InputError: If a file cannot be read.
        """
        return dict(self.infer(paths).features), {}

    def parts(self, path: str) -> Sequence[Part]:
        """Returns the parts of a file, in order: by default, the file is the only one."""
        return [Part(path)]

    def with_file_rows(
        self, rejected: Iterable[Rejected], parts: Mapping[str, Sequence[Part]]
    ) -> Iterator[Rejected]:
        """Converts the number of a rejected unit in its part to that in the file; same by default.

        Args:
            rejected: Rejected units.
            parts: All parts of each file, in order.
        """
        return iter(rejected)

    @abc.abstractmethod
    def lists(self, part: Part, schema: Schema) -> Iterator[Lists | Rejected]:
        """Reads a part, a few lists at a time.

        Args:
            part: The part.
            schema: The schema of the lists, from `infer`.

        Yields:
            The lists, and rejected units.

        Raises:
            InputError: If the file cannot be read.
        """


class RowReader(Reader):
    """Reader of files in which each row is one item, with the identifier of its query."""

    @abc.abstractmethod
    def rows(self, part: Part, schema: Schema) -> Iterator[Table | Rejected]:
        """Reads a part, some rows at a time; otherwise as in `lists`."""

    def lists(self, part: Part, schema: Schema) -> Iterator[Lists | Rejected]:
        """Reads a part of a file in which the rows of a query are adjacent.

        `tfrank_sel.data.lists.runs` assigns the lists to parts.

        Args:
            part: As in `Reader.lists`.
            schema: As in `Reader.lists`.
        """
        rest = () if part.stop is None else self.rows(Part(part.path, part.stop), schema)
        return lists.adjacent(self.rows(part, schema), schema, rest, is_first=not part.start)


class LineReader(Reader):
    """Reader of text; the units of a part are bytes, and a compressed file is a single part.

    A part contains the lines that begin in it, counted from its first byte: the first has the
    number `part.start + 1`. Lines of the next part are counted from that part's start.

    Attributes:
        heading: Number of lines at the beginning of a file that are not counted.
    """

    heading: ClassVar[int] = 0

    def parts(self, path: str) -> Sequence[Part]:
        starts = lines.cuts(path)
        return [Part(path, *x) for x in zip(starts, [*starts[1:], None], strict=True)]

    def with_file_rows(
        self, rejected: Iterable[Rejected], parts: Mapping[str, Sequence[Part]]
    ) -> Iterator[Rejected]:
        starts = {path: [part.start for part in of_file] for path, of_file in parts.items()}
        before: dict[str, list[int]] = {}
        for fault in rejected:
            if fault.number is None:
                yield fault
                continue
            of_file = starts[fault.file]
            if index := bisect.bisect_left(of_file, fault.number) - 1:
                if fault.file not in before:
                    before[fault.file] = lines.before(fault.file, of_file, self.counts)
                first = before[fault.file][index] - self.heading
                fault = dataclasses.replace(fault, number=fault.number - of_file[index] + first)
            yield fault

    def counts(self, line: bytes) -> bool:
        """Whether a line is counted; all are by default."""
        return True


@contextlib.contextmanager
def open_part(part: Part, *, headed: bool = False) -> Iterator[Any]:
    """Opens the lines of a part for pyarrow, which decompresses them.

    Args:
        part: The part.
        headed: Whether the first line of the file comes first.
    """
    codec = _CODECS.get(os.path.splitext(part.path)[1])
    with (
        lines.open_lines(part.path, part.start, part.stop, headed=headed) as file,
        arrow().input_stream(file, compression=codec) as stream,
        io.BufferedReader(stream, _BUFFER) as text,
    ):
        lines.check_utf8(part.path, text.peek(2)[:2])
        yield text
