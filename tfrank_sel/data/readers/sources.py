"""What a run reads: files of lists, their formats, and what a list found in one is."""

import collections
import dataclasses
import enum
import glob
from collections.abc import Iterable, Mapping

from tfrank_sel import data
from tfrank_sel.arguments import Checked

SPLITS = ("train", "validation", "test")


class Format(enum.Enum):
    """How a file holds lists."""

    LETOR = "letor"
    ELWC = "elwc"
    EIE = "eie"
    SEQUENCE_EXAMPLE = "sequence-example"
    EXAMPLE = "example"
    PARQUET = "parquet"
    CSV = "csv"

    @property
    def has_rows(self) -> bool:
        """Whether a record is one item, so that the items of a query have to be found."""
        return self in (Format.EXAMPLE, Format.PARQUET, Format.CSV)


_BY_NAME = {
    ".parquet": Format.PARQUET,
    ".csv": Format.CSV,
    ".csv.gz": Format.CSV,
    ".tfrecord": Format.ELWC,
    ".tfrecord.gz": Format.ELWC,
}


@dataclasses.dataclass(frozen=True)
class Source(Checked):
    """A file to read.

    Args:
        path: The file.
        format: How it holds lists.
        split: The split that its lists belong to; None if that is told by the query.
    """

    path: str
    format: Format
    split: str | None = None


@dataclasses.dataclass(frozen=True)
class Columns(Checked):
    """Names of the parts of a list, in files that name them: all but LETOR.

    Args:
        query: The identifier of the query. A list that has none is named by its content.
        label: The relevance.
        doc_id: The identifier of the item; if there is none, `ID:position`.
        features: The features, in the order that the model takes them; by default all that are
            numbers and have no other role, by name in records and as they stand in tables.
        context: What else to keep of a query, to slice the evaluation by; of a table, the value in
            the first row of the query.

    Raises:
        ValueError: If a name has two roles.
    """

    query: str = "query_id"
    label: str = "relevance"
    doc_id: str = "doc_id"
    features: tuple[str, ...] = ()
    context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [*self.others, *self.features]
        if len(set(names)) < len(names):
            raise ValueError(f"the names of columns must differ. Received: {names}")

    @property
    def others(self) -> tuple[str, ...]:
        """The names that are no features."""
        return (self.query, self.label, self.doc_id, *self.context)


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a list of a source holds.

    Args:
        features: Names of the features, and how many numbers each is.
        context: What is kept of the query beside its identifier, and whether it is a number.

    Example:
        >>> Layout({"price": 1, "embedding": 2}).names
        ['price', 'embedding[1]', 'embedding[2]']
    """

    features: Mapping[str, int]
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """A name for each number of an item; those of one feature are counted from 1."""
        return [
            name if size == 1 else f"{name}[{index}]"
            for name, size in self.features.items()
            for index in range(1, size + 1)
        ]


@dataclasses.dataclass(frozen=True)
class Found:
    """A list as it was found.

    Args:
        item_list: The list. In it, values need not be finite.
        context: What else is known of the query, by name.
    """

    item_list: data.ItemList
    context: Mapping[str, str | float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Rejected:
    """What is left out.

    Args:
        file: The file.
        unit: What is counted: `line`, `row` or `record`.
        number: Which one, counted from 1; None if the file as a whole cannot be used.
        reason: What is required and what was received.
        text: What stands there, as far as it is text.
    """

    file: str
    unit: str
    number: int | None
    reason: str
    text: str | None = None

    @property
    def place(self) -> str:
        """Where it stands: `file:line`, or `file, row 7`."""
        if self.number is None:
            return self.file
        if self.unit == "line":
            return f"{self.file}:{self.number}"
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def rule(self) -> str:
        """The rule that it breaks."""
        return self.reason.partition(". Received")[0]


def expand(
    patterns: Iterable[str], split: str | None = None, format: Format | None = None
) -> list[Source]:
    """Returns the files that paths and globs name.

    Args:
        patterns: Paths, and patterns with `*`, `?` or `[...]`.
        split: The split that they belong to, if it is the same for all.
        format: Their format. By default it is told by the end of the name: `.parquet`, `.csv` and
            `.csv.gz`, `.tfrecord` and `.tfrecord.gz` (ELWC), and LETOR for any other.

    Returns:
        The files, in the order of the patterns, those of one pattern by name.

    Raises:
        tfrank_sel.data.InputError: If a pattern names no file, or a file is named twice.

    Example:
        >>> expand(["train.txt", "more.csv.gz"])[1].format
        <Format.CSV: 'csv'>
    """
    paths: list[str] = []
    for pattern in patterns:
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not found:
            raise data.InputError(pattern, "expected a file. Received: a pattern of no file")
        paths += found
    for path, count in collections.Counter(paths).items():
        if count > 1:
            raise data.InputError(path, "expected each file once. Received: the same file again")
    return [Source(path, format or _format(path), split) for path in paths]


def _format(path: str) -> Format:
    return next((found for end, found in _BY_NAME.items() if path.endswith(end)), Format.LETOR)
