"""Feature types: the meaning of a column of a table for a ranker.

A list is two matrices: numbers `[list_size, num_features]`, NaN if missing, and texts
`[list_size, num_texts]`, empty if missing. A type defines which columns belong to a feature;
`tfrank_sel.models.Preparation` defines the inputs of a network. Nothing here needs TensorFlow.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

from tfrank_sel.arguments import Checked
from tfrank_sel.errors import question, refusal

MEAN, REFUSE = "mean", "refuse"
LARGEST_ID = 2**24  # float32 holds every integer up to this
MISSING_INTEGER = -(2**63)  # a missing integer: see `means_missing`
# A number that stands for a missing one.
MISSING_NUMBER = -3e38
# The number of seconds of a day.
DAY = 86_400
_PART = re.compile(r"(?<=.)\[(?:[0-9]+|day|second|age|(?:day|week)_(?:sin|cos))\]$", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature(Checked):
    """Base of all types.

    Args:
        of: `"item"`, or `"query"` if the value is the same for all items of a list.

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
        """Whether the value may be missing in a row or a request."""
        return True

    def numbers(self, name: str) -> list[str]:
        """Returns a name for each of its columns in the matrix of numbers."""
        return []

    def texts(self, name: str) -> list[str]:
        """Returns a name for each of its columns in the matrix of texts."""
        return []

    def columns(self, name: str) -> list[str]:
        """Returns a name for each number that a network receives for it; `numbers` by default."""
        return self.numbers(name)

    def config(self) -> dict[str, Any]:
        """Returns the type and its options as JSON-ready values: see `of_config`."""
        return {"type": self.type, **dataclasses.asdict(self)}


FeatureTypes: TypeAlias = Mapping[str, Feature]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Numeric(Feature):
    """A feature of one or several numbers.

    Args:
        missing: Replacement of a missing value. `"mean"` is the mean of the other values; if values
            were missing in training, an indicator column is added. A number is that number.
            `"refuse"` drops the row in training and rejects the request in serving.
        within_list: Whether a network that compares items gets the value relative to its list, too.
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
        missing: Replacement of a missing value: `"mean"`, `"refuse"` or a number.
        within_list: Whether a network that compares items gets the value relative to its list, too.
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
    """Several numbers, such as a text embedding; either all are present or all are missing.

    Args:
        size: Number of numbers, the same for all items.
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

    Without `since` and `parts`, it is used only as the reference time of other timestamps.

    Args:
        since: Name of the reference timestamp, such as the time of the query. The network gets the
            age in days relative to it.
        parts: Whether a network gets the time of day and the day of the week, each as a sine and a
            cosine.
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
            raise refusal("`missing` must be 'mean' or 'refuse'", repr(self.missing))

    def numbers(self, name: str) -> list[str]:
        return [f"{name}[day]", f"{name}[second]"]

    def columns(self, name: str) -> list[str]:
        parts = ("day_sin", "day_cos", "week_sin", "week_cos") if self.parts else ()
        return [f"{name}[{part}]" for part in ((("age",) if self.since else ()) + parts)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Textual(Feature):
    """A feature of texts, each converted to an integer; 0 if missing.

    Args:
        encoding: `"embedding"`, a learned vector, or `"one_hot"`.
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
        """Returns the number of integers for a vocabulary of this size."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category(_Textual):
    """A categorical value, text or integer, with a vocabulary built from the training data.

    0 is a missing value, 1 to `out_of_vocabulary` are out-of-vocabulary values by their hash, and
    the vocabulary follows, the most frequent value first.

    Args:
        min_count: Minimum count of a value in the vocabulary.
        max_size: Maximum size of the vocabulary.
        out_of_vocabulary: Number of integers for out-of-vocabulary values.
        encoding: `"embedding"`, a learned vector, or `"one_hot"`.
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
    """A set of categories, such as tags: the mean of their embeddings, or a multi-hot vector.

    Args:
        max_values: Maximum number of values per item; the first are kept.
        min_count: As in `Category`.
        max_size: Maximum size of the vocabulary.
        out_of_vocabulary: Number of integers for out-of-vocabulary values.
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
    """A categorical value with very many values, text or integer, encoded by a hash.

    Args:
        buckets: Number of hash buckets; 0 is reserved for a missing value.
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
    """Makes a feature from the result of `config`, or from the name of its type.

    Raises:
        ValueError: If there is no such type, it has no such option, or an option is out of range.
        TypeError: If an option has the wrong type.

    Example:
        >>> of_config("bool") == of_config({"type": "bool"}) == Bool()
        True
    """
    options = {"type": config} if isinstance(config, str) else dict(config)
    name = options.pop("type", None)
    if name not in TYPES:
        hint = question(str(name), TYPES)
        raise refusal(f"`type` must be one of {', '.join(TYPES)}.{hint}", repr(name))
    fields = {field.name: field for field in dataclasses.fields(TYPES[name])}
    needed = [x for x, field in fields.items() if field.default is dataclasses.MISSING]
    if not set(needed) <= set(options) <= set(fields):
        expected = f"{name!r} takes {', '.join(sorted(fields))}" + "".join(
            f", and requires {x}" for x in needed
        )
        raise refusal(expected, *(options or ["no option"]))
    return TYPES[name](**options)


def spans(features: Mapping[str, Feature]) -> Iterator[tuple[str, Feature, bool, slice]]:
    """Yields each feature with its place in the matrices of a list.

    Args:
        features: Type of each feature, in the order of the matrices.

    Yields:
        The name, the type, whether the feature is in the matrix of texts, and its columns there.

    Example:
        >>> [x[2:] for x in spans({"price": Number(), "brand": Category(), "at": Timestamp()})]
        [(False, slice(0, 1, None)), (True, slice(0, 1, None)), (False, slice(1, 3, None))]
    """
    ends = [0, 0]
    for name, feature in features.items():
        texts = feature.texts(name)
        is_text = bool(texts)
        start = ends[is_text]
        ends[is_text] += len(texts or feature.numbers(name))
        yield name, feature, is_text, slice(start, ends[is_text])


def means_missing(values: Any) -> Any:
    """Whether numbers stand for a missing value in a request, as JSON has no NaN: those of float32
    that are -3e38 or less, and the least integer of 64 bits. No row of a table may have one.

    Args:
        values: A number, an array or a tensor.

    Example:
        >>> means_missing(-(2**63)), means_missing(-3.1e38), means_missing(-1e30)
        (True, True, False)
    """
    is_integer = "int" in str(getattr(values, "dtype", type(values)))
    return values == MISSING_INTEGER if is_integer else values <= MISSING_NUMBER


def whole(column: str, features: Collection[str] = ()) -> str:
    """Returns the feature of a column of a matrix or a network; itself, if it is one of some.

    Example:
        >>> whole("embedding[2]"), whole("at[day_sin]"), whole("ctr[30d]"), whole("x[1]", ["x[1]"])
        ('embedding', 'at', 'ctr[30d]', 'x[1]')
    """
    return column if column in features else _PART.sub("", column)


def check(features: Mapping[str, Feature]) -> None:
    """Raises a `ValueError` if a feature refers to another that is not a timestamp."""
    for name, feature in features.items():
        since = feature.since if isinstance(feature, Timestamp) else None
        if since is not None and not isinstance(features.get(since), Timestamp):
            type_of_since = features[since].type if since in features else "no such feature"
            expected = f"`since` of {name!r} must name a feature of type timestamp"
            raise refusal(expected, repr(since), type_of_since)


def _check(name: str, value: object, choices: tuple[str, ...], more: str = "") -> None:
    if value not in choices:
        accepted = " or ".join(map(repr, choices)) + (f", {more}" if more else "")
        raise refusal(f"`{name}` must be {accepted}", repr(value))


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise refusal(f"`{name}` must be positive", value)


def _few(ids: int) -> None:
    if ids > LARGEST_ID:
        raise refusal("the number of integers for values must be at most 2**24", ids)
