"""Conversion of Arrow columns to numbers and texts, by feature type.

NaN and the empty text mean a missing value, infinity means an invalid value.
"""

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrank_sel.features import DAY, Bool, Feature, Set, Timestamp, Vector

_NO_NUMBER = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "nan", "n/a", "none", "None", "null")
_BOOLS = ("false", "0", "true", "1")
_DAYS = (-719_162, 2_932_896)  # the first of the year 1, and the last of the year 9999


def arrow() -> Any:
    """Returns pyarrow, with its module `compute`.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import pyarrow.compute  # pyarrow alone does not import it; pandas does
    except ImportError as error:
        raise ImportError("tables require pyarrow: pip install 'tfrank_sel[frames]'") from error
    return pyarrow


def array(column: Any) -> Any:
    """Returns values as an Arrow array; mixed types become texts or lists of texts.

    Example:
        >>> array([1.5, "abc", None]).to_pylist()
        ['1.5', 'abc', None]
        >>> array([[1, 2], [3, "x"], 4]).to_pylist()
        [['1', '2'], ['3', 'x'], ['4']]
    """
    pa = arrow()
    is_matrix = isinstance(column, np.ndarray) and column.ndim > 1
    items = list(column) if is_matrix else column
    try:
        return pa.array(items)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        items = list(column)
    if any(isinstance(x, list | tuple | np.ndarray) for x in items):
        found = [None if x is None else x if np.ndim(x) else [x] for x in items]
        return pa.array([None if x is None else list(map(str, x)) for x in found])
    return pa.array([None if x is None or x != x else str(x) for x in items])


def accepts(kind: Any, feature: Feature) -> bool:
    """Returns whether a column of an Arrow type may hold a feature.

    A text column may contain values of any type, and is checked row by row.

    Example:
        >>> import pyarrow
        >>> accepts(pyarrow.list_(pyarrow.float32()), Vector(size=2))
        True
    """
    types = arrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind) or types.is_null(kind):
        return True
    if isinstance(feature, Timestamp):
        return (types.is_temporal(kind) and not is_span(kind)) or is_number(kind)
    if is_list(kind):
        kind = kind.value_type
        if isinstance(feature, Vector):
            return is_number(kind) or is_text(kind) or types.is_null(kind)
        return isinstance(feature, Set) and not types.is_nested(kind)
    if isinstance(feature, Vector):
        return feature.size == 1 and is_number(kind)
    if feature.texts(""):
        return not types.is_nested(kind) and not is_binary(kind)
    return is_number(kind) or types.is_boolean(kind)


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is an integer, float or decimal type."""
    types = arrow().types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is a string type."""
    types = arrow().types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_binary(kind: Any) -> bool:
    """Whether an Arrow type is a binary type, whose bytes need not be text."""
    types = arrow().types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list type."""
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_span(kind: Any) -> bool:
    """Whether an Arrow type is a time-of-day or duration type."""
    types = arrow().types
    return types.is_time(kind) or types.is_duration(kind) or types.is_interval(kind)


def numbers(column: Any, feature: Feature) -> np.ndarray:
    """Returns a column as the numbers of a feature, `[rows, k]`, float32."""
    if isinstance(feature, Vector):
        return _vectors(column, feature.size)
    if isinstance(feature, Timestamp):
        return day_and_second(_seconds(plain(column)))
    return (_bools if isinstance(feature, Bool) else floats)(column)[:, None]


def texts(column: Any, feature: Feature) -> np.ndarray:
    """Returns a column as the texts of a feature, `[rows, k]`, strings."""
    if isinstance(feature, Set):
        return _sets(plain(column), feature.max_values)
    return strings(column)[:, None]


def plain(column: Any) -> Any:
    """Returns a column as one array, without a dictionary, its texts as strings."""
    pa = arrow()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if is_text(array.type) else array


def strings(column: Any) -> np.ndarray:
    """Returns a column as strings; empty for null or NaN.

    Whole floats are written as integers, because pandas converts integers with missing values to
    floats.
    """
    pa = arrow()
    array = plain(column)
    as_text = array.cast(pa.string())
    if pa.types.is_floating(array.type):
        values = np.asarray(array.cast(pa.float64()).fill_null(np.nan))
        is_whole = (values == np.floor(values)) & (np.abs(values) < 2.0**63)
        whole = pa.array(np.where(is_whole, values, 0.0).astype(np.int64)).cast(pa.string())
        nothing = pa.scalar(None, pa.string())
        as_text = pa.compute.if_else(pa.array(np.isnan(values)), nothing, as_text)
        as_text = pa.compute.if_else(pa.array(is_whole), whole, as_text)
    # Equal texts share one object.
    encoded = as_text.fill_null("").dictionary_encode()
    return np.asarray(encoded.dictionary.to_pylist(), np.object_)[np.asarray(encoded.indices)]


def floats(column: Any) -> np.ndarray:
    """Returns a column as float32; NaN for null, infinity for an invalid number."""
    pa = arrow()
    array = plain(column)
    if is_text(array.type):
        return _parsed(array, [pa.float64()], _float).astype(np.float32)
    with np.errstate(over="ignore"):
        return np.asarray(array.cast(pa.float32(), safe=False).fill_null(np.nan))


def day_and_second(seconds: np.ndarray) -> np.ndarray:
    """Returns the day since 1970-01-01 and its whole second; infinity beyond the years 1 to 9999.

    Args:
        seconds: Since the beginning of that day, UTC, float64 `[rows]`; NaN if missing.

    Returns:
        `[rows, 2]`, float32.

    Example:
        >>> day_and_second(np.array([86_400.0, -1.0])).tolist()
        [[1.0, 0.0], [-1.0, 86399.0]]
    """
    days = np.floor(np.where(np.isinf(seconds), 0.0, seconds) / DAY)
    # a request holds whole seconds
    found = np.stack([days, np.floor(seconds - days * DAY)], axis=1).astype(np.float32)
    found[np.isinf(seconds) | (days < _DAYS[0]) | (days > _DAYS[1])] = np.inf
    return found


def zero_or_one(numbers: np.ndarray) -> np.ndarray:
    """Returns numbers, with infinity for those that are not 0, 1 or missing."""
    return np.where((numbers == 0.0) | (numbers == 1.0) | np.isnan(numbers), numbers, np.inf)


def _bools(column: Any) -> np.ndarray:
    array = plain(column)
    if not is_text(array.type):
        return zero_or_one(floats(array))
    pa = arrow()
    words = _spelled(array)
    codes = pa.compute.index_in(pa.compute.utf8_lower(words), value_set=pa.array(_BOOLS))
    values = np.array([0.0, 0.0, 1.0, 1.0, np.inf], np.float32)[
        np.asarray(codes.fill_null(len(_BOOLS)))
    ]
    return np.where(np.asarray(words.is_null()), np.float32(np.nan), values)


def _seconds(array: Any) -> np.ndarray:
    """Whole seconds since 1970-01-01 UTC, float64; a time without a zone is UTC."""
    pa = arrow()
    kind = array.type
    if is_text(kind):
        kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC")]
        return _parsed(array, kinds, _instant)
    if pa.types.is_date(kind):
        array = array.cast(pa.timestamp("ms"))
    return _float64(array)


def _float64(array: Any) -> np.ndarray:
    """Numbers, or the whole seconds of times, as float64; NaN for null."""
    pa = arrow()
    if pa.types.is_timestamp(array.type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
        ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
        return np.where(np.asarray(array.is_null()), np.nan, ticks // per_second)
    return np.asarray(array.cast(pa.float64(), safe=False).fill_null(np.nan))


def _parsed(array: Any, kinds: list[Any], parse: Callable[[str], float]) -> np.ndarray:
    """Parses texts as the first type that fits all of them, else one by one."""
    words = _spelled(array)
    for kind in kinds:
        try:
            return _float64(words.cast(kind))
        except arrow().ArrowInvalid:
            continue
    found = [np.nan if word is None else parse(word) for word in words.to_pylist()]
    return np.array(found, np.float64)


def _spelled(array: Any) -> Any:
    """Stripped texts; null for spellings of a missing value."""
    pa = arrow()
    words = pa.compute.utf8_trim_whitespace(array)
    is_nothing = pa.compute.is_in(words, value_set=pa.array(_NO_NUMBER))
    return pa.compute.if_else(is_nothing, pa.scalar(None, pa.string()), words)


def _float(word: str) -> float:
    try:
        return math.inf if "_" in word else float(word)
    except ValueError:
        return math.inf


def _instant(word: str) -> float:
    """Whole seconds since 1970-01-01 UTC of a time in ISO 8601."""
    try:
        found = datetime.datetime.fromisoformat(word)
    except ValueError:
        return math.inf
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return math.floor(found.replace(microsecond=0).timestamp())


def _vectors(column: Any, size: int) -> np.ndarray:
    """Lists of numbers, or texts of numbers separated by spaces."""
    pa = arrow()
    array = plain(column)
    if is_text(array.type):
        array = pa.compute.utf8_split_whitespace(_spelled(array))
    if not is_list(array.type):
        return np.broadcast_to(floats(array)[:, None], [len(array), size])
    lengths = np.asarray(pa.compute.list_value_length(array).fill_null(-1))
    found = np.full([len(array), size], np.inf, np.float32)
    found[lengths < 0] = np.nan
    is_whole = lengths == size
    found[is_whole] = floats(array.filter(pa.array(is_whole)).flatten()).reshape(-1, size)
    return found


def _sets(array: Any, max_values: int) -> np.ndarray:
    """The first texts of lists, or of a text separated by `|`; padded with empty texts."""
    pa = arrow()
    if is_text(array.type):
        array = pa.compute.split_pattern(array, "|")
    if is_list(array.type):
        rows, values = np.asarray(pa.compute.list_parent_indices(array)), strings(array.flatten())
    else:
        rows, values = np.arange(len(array)), strings(array)
    rows, values = rows[values != ""], values[values != ""]
    starts = np.searchsorted(rows, np.arange(len(array)))
    places = np.arange(len(rows)) - starts[rows]
    is_kept = places < max_values
    found = np.full([len(array), max_values], "", np.object_)
    found[rows[is_kept], places[is_kept]] = values[is_kept]
    return found
