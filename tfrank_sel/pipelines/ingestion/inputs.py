"""The files of a run, their columns, and the splits that their lists belong to."""

import collections
import dataclasses
import glob
from collections.abc import Iterable, Mapping, Sequence

from tfrank_sel import data  # whose FeatureSpec needs TensorFlow, and is imported at its use
from tfrank_sel.arguments import Checked
from tfrank_sel.data import formats, stores
from tfrank_sel.data.formats import Columns, Layout, Reader
from tfrank_sel.data.lists import InputError
from tfrank_sel.features import Feature

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Source(Checked):
    """A file to read.

    Args:
        path: The file.
        split: The split that its lists belong to; None if that is told by the query.
    """

    path: str
    split: str | None = None


@dataclasses.dataclass(frozen=True)
class Inputs(Checked):
    """What to read, and how.

    Args:
        sources: The files, all of one format.
        columns: Names of the parts, where files name them.
        shares: The share of the queries that each split gets, for files that belong to none;
            together 1.
        allow_bad_lines: How many lines, rows or records may be left out.
        adjacent: Whether the rows of a query stand together. If not, Beam groups them.
        format: The format of the files, if their names do not tell it.
    """

    sources: Sequence[Source]
    columns: Columns = dataclasses.field(default_factory=Columns)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    allow_bad_lines: int = 0
    adjacent: bool = False
    format: str | None = None

    @property
    def splits(self) -> list[str]:
        """The splits that there will be."""
        named = {source.split for source in self.sources if source.split is not None}
        if any(source.split is None for source in self.sources):
            named |= set(self.shares)
        return sorted(named)

    @property
    def reader(self) -> Reader:
        """The reader of the files."""
        return formats.reader([source.path for source in self.sources], self.columns, self.format)

    def spec(self, layout: Layout) -> "data.FeatureSpec":
        """Returns the names and sizes of the parts of a list as it is stored."""
        is_weighted = bool(self.columns.measures.keys() - {"label"})
        weight = "weight" if is_weighted else None
        return data.FeatureSpec(len(layout.names), num_texts=len(layout.texts), weight=weight)

    def types(self, layout: Layout) -> Mapping[str, Feature] | None:
        """Returns the types of the features that a server takes by name; None if they are packed.

        The latter is so if no type was asked for.
        """
        return None if self.columns.types is None else layout.features

    def layout(self) -> Layout:
        """Returns what the lists hold, as far as training may know.

        Raises:
            tfrank_sel.data.InputError: If the files are not of one format, or cannot be read.
        """
        learned = [source.path for source in self.sources if source.split in (None, "train")]
        return self.reader.layout(learned)


def expand(patterns: Iterable[str], split: str | None = None) -> list[Source]:
    """Returns the files that paths and globs name.

    Args:
        patterns: Paths and URLs, and patterns with `*`, `?` or `[...]`.
        split: The split that they belong to, if it is the same for all.

    Returns:
        The files, in the order of the patterns, those of one pattern by name.

    Raises:
        tfrank_sel.data.InputError: If there is no such file, or one is named twice; if a store
            cannot be reached or refuses, or a scheme is unknown.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     expand([file.name], "train") == [Source(file.name, "train")]
        True
    """
    paths: list[str] = []
    for pattern in patterns:
        found = stores.glob(pattern) if glob.has_magic(pattern) else [pattern]
        if not found:
            raise InputError(pattern, "expected a file. Received: a pattern of no file")
        if found == [pattern] and not (stores.is_file(pattern) or stores.is_dir(pattern)):
            raise InputError(pattern, "expected a file. Received: no such file")
        paths += found
    for path, count in collections.Counter(paths).items():
        if count > 1:
            raise InputError(path, "expected each file once. Received: the same file again")
    return [Source(path, split) for path in paths]
