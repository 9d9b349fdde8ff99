"""Input files of a run, with their columns and splits."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tfrank_sel.arguments import Checked
from tfrank_sel.data import formats, stores
from tfrank_sel.data.formats import Columns, Reader, Schema

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Source(Checked):
    """A file to read.

    Args:
        path: The file.
        split: The split of its lists; None to assign each list by its query.
    """

    path: str
    split: str | None = None


@dataclasses.dataclass(frozen=True)
class Inputs(Checked):
    """Input files, and how to read them.

    Args:
        sources: The files, all in one format.
        columns: Names of the parts, for formats with names.
        shares: The share of queries of each split, for files without a split; they sum to 1.
        allow_bad_lines: Maximum number of malformed lines, rows or records to skip.
        adjacent: Whether the rows of a query are adjacent. If not, Beam groups them.
        format: The format of the files, if it cannot be inferred from their names.
    """

    sources: Sequence[Source]
    columns: Columns = dataclasses.field(default_factory=Columns)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    allow_bad_lines: int = 0
    adjacent: bool = False
    format: str | None = None

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        named = {source.split for source in self.sources if source.split is not None}
        if any(source.split is None for source in self.sources):
            named |= set(self.shares)
        return sorted(named)

    @property
    def reader(self) -> Reader:
        """The reader of the files."""
        return formats.reader([source.path for source in self.sources], self.columns, self.format)

    @property
    def learned(self) -> list[str]:
        """The training files."""
        return [source.path for source in self.sources if source.split in (None, "train")]

    def schema(self) -> Schema:
        """Returns the schema of the lists, inferred from training files.

        Raises:
            tfrank_sel.data.InputError: If the files have different formats, or cannot be read.
        """
        return self.reader.infer(self.learned)


def expand(patterns: Iterable[str], split: str | None = None) -> list[Source]:
    """Returns the files of paths and globs.

    Args:
        patterns: Paths and URLs, and patterns with `*`, `?` or `[...]`.
        split: The split of all files, if they have one.

    Returns:
        The files, in the order of `stores.expand`.

    Raises:
        tfrank_sel.data.InputError: As `stores.expand`.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     expand([file.name], "train") == [Source(file.name, "train")]
        True
    """
    return [Source(path, split) for path in stores.expand(patterns)]
