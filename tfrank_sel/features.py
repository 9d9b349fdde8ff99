"""Types of features: what a column of a table means to a ranker.

A list is two matrices: numbers `[list_size, num_features]`, NaN where one is missing, and texts
`[list_size, num_texts]`, empty where one is missing. A type says which columns of them are a
feature's, and `tfrank_sel.models.Preparation` what a network makes of them. Nothing here needs
TensorFlow.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, ClassVar

from tfrank_sel.arguments import Checked

MEAN, REFUSE = "mean", "refuse"
LARGEST_ID = 2**24  # up to which float32 holds every integer
MISSING_INTEGER = -(2**63)  # stands for an integer that is missing
DAY = 86_400  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature(Checked):
    """Base of all types.

    Args:
        of: `"item"`, or `"query"` if it is the same for all items of a list.

    Attributes:
        type: Name of the type in configurations.

    Raises:
        ValueError: If `of` is neither.
    """

    type: ClassVar[str]
    of: str = "item"

    def __post_init__(self) -> None:
        _check("of", self.of, ("item", "query"))

    @property
    def may_be_missing(self) -> bool:
        """Whether a row or a request may lack it."""
        return True

    def numbers(self, name: str) -> list[str]:
        """Returns a name for each of its columns in the matrix of numbers."""
        return []

    def texts(self, name: str) -> list[str]:
        """Returns a name for each of its columns in the matrix of texts."""
        return []

    def columns(self, name: str) -> list[str]:
        """Returns a name for each number that a network is given of it; `numbers` by default."""
        return self.numbers(name)

    def config(self) -> dict[str, Any]:
        """Returns the type and its options as JSON-ready values: see `of_config`."""
        return {"type": self.type, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Numeric(Feature):
    """A feature that is one number or several.

    Args:
        missing: What stands for a missing value. `"mean"` is the mean of the others; if values were
            missing in training, a column says where. A number is that number. `"refuse"` leaves the
            row out, and refuses the request.
        within_list: Whether a network that compares items sees where it stands within its list.
    """

    missing: str | float = MEAN
    within_list: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.missing, str):
            _check("missing", self.missing, (MEAN, REFUSE), "or a number")

    @property
    def may_be_missing(self) -> bool:
        return self.missing != REFUSE

    def numbers(self, name: str) -> list[str]:
        return [name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number(_Numeric):
    """A number.

    Args:
        missing: `"mean"`, `"refuse"` or a number: what stands for a missing value.
        within_list: Whether a network that compares items sees where it stands within its list.
        of: `"item"` or `"query"`.

    Example:
        >>> Number(missing=0.0).config()
        {'type': 'number', 'of': 'item', 'missing': 0.0, 'within_list': True}
    """

    type: ClassVar[str] = "number"
    within_list: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bool(_Numeric):
    """True or false, as 1 or 0.

    Args:
        missing: As in `Number`.
        within_list: As in `Number`.
        of: As in `Number`.
    """

    type: ClassVar[str] = "bool"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vector(_Numeric):
    """Several numbers, such as an embedding of a text: all are there, or all are missing.

    Args:
        size: How many; the same for all items.
        missing: As in `Number`.
        within_list: As in `Number`.
        of: As in `Number`.

    Raises:
        ValueError: If `size` is not positive.

    Example:
        >>> Vector(size=2).numbers("embedding")
        ['embedding[1]', 'embedding[2]']
    """

    type: ClassVar[str] = "vector"
    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("size", self.size)

    def numbers(self, name: str) -> list[str]:
        return [f"{name}[{index}]" for index in range(1, self.size + 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timestamp(_Numeric):
    """A point in time, in seconds since 1970-01-01 UTC.

    With neither `since` nor `parts` it is only what the age of others is measured to.

    Args:
        since: Name of the timestamp to which its age is measured, in days, such as the time of the
            query.
        parts: Whether a network sees its time of the day and its day of the week, each as a sine
            and a cosine.
        missing: `"mean"` or `"refuse"`.
        within_list: As in `Number`.
        of: As in `Number`.

    Raises:
        ValueError: If `missing` is a number.

    Example:
        >>> Timestamp(since="shown_at").columns("published_at")
        ['published_at[age]']
    """

    type: ClassVar[str] = "timestamp"
    since: str | None = None
    parts: bool = False
    within_list: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.missing, str):
            raise ValueError(f"`missing` must be 'mean' or 'refuse'. Received: {self.missing!r}")

    def numbers(self, name: str) -> list[str]:
        return [f"{name}[day]", f"{name}[second]"]

    def columns(self, name: str) -> list[str]:
        parts = ("day_sin", "day_cos", "week_sin", "week_cos") if self.parts else ()
        return [f"{name}[{part}]" for part in ((("age",) if self.since else ()) + parts)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Textual(Feature):
    """A feature of texts, each of which becomes an integer: 0 where there is none.

    Args:
        encoding: `"embedding"`, a vector that is learnt, or `"one_hot"`.
        dimension: Size of the embedding.
        dtype: `"string"`, or `"int64"` if requests hold integers.
    """

    encoding: str = "embedding"
    dimension: int = 8
    dtype: str = "string"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("encoding", self.encoding, ("embedding", "one_hot"))
        _check("dtype", self.dtype, ("string", "int64"))
        _positive("dimension", self.dimension)

    def texts(self, name: str) -> list[str]:
        return [name]

    def ids(self, vocabulary: int) -> int:
        """Returns how many integers there are, of a vocabulary of so many values."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category(_Textual):
    """One of many values, text or integer, with a vocabulary that is found in training data.

    0 stands for a missing value, 1 to `out_of_vocabulary` for the others by a hash, and the
    vocabulary follows, the most frequent value first.

    Args:
        min_count: How often a value must occur to be in the vocabulary.
        max_size: Largest size of the vocabulary.
        out_of_vocabulary: Number of integers for all other values.
        encoding: `"embedding"`, a vector that is learnt, or `"one_hot"`.
        dimension: Size of the embedding.
        dtype: `"string"`, or `"int64"` if requests hold integers.
        of: As in `Number`.

    Raises:
        ValueError: If a number is not positive, or there would be more than 2**24 integers.
    """

    type: ClassVar[str] = "category"
    min_count: int = 2
    max_size: int = 10_000
    out_of_vocabulary: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_count", "max_size", "out_of_vocabulary"):
            _positive(name, getattr(self, name))
        _few(self.ids(self.max_size))

    def ids(self, vocabulary: int) -> int:
        return 1 + self.out_of_vocabulary + vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Set(Category):
    """A set of categories, such as tags: the mean of their embeddings, or all of them hot.

    Args:
        max_values: Number of values that are kept of an item; the first.
        min_count: As in `Category`, as all others.
        max_size: Largest size of the vocabulary.
        out_of_vocabulary: Number of integers for all other values.
        encoding: `"embedding"` or `"one_hot"`.
        dimension: Size of the embedding.
        dtype: `"string"` or `"int64"`.
        of: As in `Number`.
    """

    type: ClassVar[str] = "set"
    max_values: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("max_values", self.max_values)

    def texts(self, name: str) -> list[str]:
        return [f"{name}[{index}]" for index in range(1, self.max_values + 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hash(_Textual):
    """One of very many values, text or integer, told apart by a hash.

    Args:
        buckets: Number of integers that the hash gives; 0 is kept for a missing value.
        encoding: As in `Category`.
        dimension: As in `Category`.
        dtype: As in `Category`.
        of: As in `Number`.

    Raises:
        ValueError: If `buckets` is not positive, or 2**24 or more.
    """

    type: ClassVar[str] = "hash"
    buckets: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("buckets", self.buckets)
        _few(self.ids(0))

    def ids(self, vocabulary: int) -> int:
        return 1 + self.buckets


TYPES: dict[str, type[Feature]] = {
    kind.type: kind for kind in (Number, Bool, Category, Hash, Set, Vector, Timestamp)
}


def of_config(config: Mapping[str, Any] | str) -> Feature:
    """Makes a feature of what `config` returned, or of the name of its type.

    Raises:
        ValueError: If there is no such type, it has no such option, or an option is out of range.
        TypeError: If an option is of another type.

    Example:
        >>> of_config("bool") == of_config({"type": "bool"}) == Bool()
        True
    """
    options = {"type": config} if isinstance(config, str) else dict(config)
    name = options.pop("type", None)
    if name not in TYPES:
        near = difflib.get_close_matches(str(name), TYPES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`type` must be one of {', '.join(TYPES)}.{hint} Received: {name!r}")
    known = {field.name: field for field in dataclasses.fields(TYPES[name])}
    needed = [x for x, field in known.items() if field.default is dataclasses.MISSING]
    if not set(needed) <= set(options) <= set(known):
        wanted = f"{name!r} takes {', '.join(sorted(known))}" + "".join(
            f", and needs {x}" for x in needed
        )
        raise ValueError(f"{wanted}. Received: {', '.join(options) or 'no option'}")
    return TYPES[name](**options)


def check(features: Mapping[str, Feature]) -> None:
    """Raises a `ValueError` if a feature refers to another that is no timestamp."""
    for name, feature in features.items():
        since = feature.since if isinstance(feature, Timestamp) else None
        if since is not None and not isinstance(features.get(since), Timestamp):
            found = features[since].type if since in features else "no such feature"
            wanted = f"`since` of {name!r} must name a feature of type timestamp"
            raise ValueError(f"{wanted}. Received: {since!r}, {found}")


def _check(name: str, value: object, choices: tuple[str, ...], more: str = "") -> None:
    if value not in choices:
        wanted = " or ".join(map(repr, choices)) + (f", {more}" if more else "")
        raise ValueError(f"`{name}` must be {wanted}. Received: {value!r}")


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"`{name}` must be positive. Received: {value}")


def _few(ids: int) -> None:
    if ids > LARGEST_ID:
        raise ValueError(f"there may be at most 2**24 integers for values. Received: {ids}")
