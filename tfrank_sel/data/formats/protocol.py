"""The protocol of a reader: what the lists of a format hold, its parts, and the lists of a part."""

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from tfrank_sel.data.formats import rows
from tfrank_sel.data.formats.columns import Columns, Layout
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import Found, Rejected
from tfrank_sel.features import Feature


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a file that a worker can read without the others.

    Args:
        path: The file.
        start: First unit of the part, such as a byte or a row group; 0 is the first of the file.
        stop: End of the part, excluded; None for the end of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None


class Reader(abc.ABC):
    """Reads files of one format: a subclass for each, which `tfrank_sel.data.formats` lists.

    Args:
        columns: Names of the parts of a list.

    Attributes:
        name: Name of the format.
        suffixes: Ends of the names of its files.
        is_distinct: Whether a query must not come back in a file.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    is_distinct: ClassVar[bool] = False

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    @abc.abstractmethod
    def layout(self, paths: Sequence[str]) -> Layout:
        """Returns what the lists of files hold.

        Args:
            paths: The files. Most readers look at the beginning of the first alone.

        Raises:
            InputError: If a file cannot be read, or lacks what the columns name.
        """

    def propose(self, path: str) -> tuple[dict[str, Feature], dict[str, str]]:
        """Proposes types for what has no role: by default, those of the layout.

        Args:
            path: The file, of which the beginning is read.

        Returns:
            The types by name; and the columns that are left out, with the reason.

        Raises:
            InputError: If the file cannot be read.
        """
        return dict(self.layout([path]).features), {}

    def parts(self, path: str) -> Sequence[Part]:
        """Returns the parts of a file, in order: by default, the file is the only one."""
        return [Part(path)]

    def numbered(
        self, rejected: Iterable[Rejected], parts: Mapping[str, Sequence[Part]]
    ) -> Iterator[Rejected]:
        """Gives what was rejected in parts its number in the file: by default, it has it.

        Args:
            rejected: What was rejected.
            parts: All parts of each file, in order.
        """
        return iter(rejected)

    @abc.abstractmethod
    def lists(self, part: Part, layout: Layout) -> Iterator[Found | Rejected]:
        """Reads a part, a few lists at a time.

        Args:
            part: The part.
            layout: What the lists are to hold.

        Yields:
            The lists, and what cannot be used.

        Raises:
            InputError: If the file cannot be read.
        """


class RowReader(Reader):
    """Reads files in which a row is one item, with the identifier of its query."""

    @abc.abstractmethod
    def rows(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        """Reads a part, some rows at a time: as in `lists`, but rows."""

    def lists(self, part: Part, layout: Layout) -> Iterator[Found | Rejected]:
        """Reads a part of a file in which the rows of a query stand together.

        A part has the lists that `adjacency.runs` gives it.

        Args:
            part: As in `Reader.lists`, as all else.
            layout: What the lists are to hold.
        """
        rest = () if part.stop is None else self.rows(Part(part.path, part.stop), layout)
        return rows.adjacent(self.rows(part, layout), layout, rest, is_first=not part.start)
