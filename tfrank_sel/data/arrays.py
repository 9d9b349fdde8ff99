"""Arrow arrays: conversion to numbers and texts by feature type.

NaN and the empty text mean a missing value; infinity and a text that begins with `INVALID` mean an
invalid value. Equal values have one text, whatever the type of their column: see `canonical_text`.
"""

import contextlib
import datetime
import itertools
import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfrank_sel.canonical_text import ANY_SPELLING, SPELLINGS, canonical
from tfrank_sel.data.arrow_types import PERIOD, arrow, is_list, is_number, is_text, plain_type
from tfrank_sel.features import DAY, Bool, Feature, Set, Timestamp, Vector

EXACT = 2.0**53  # from here on, float64 does not hold every integer
_EXACT = {2: 2.0**11, 4: 2.0**24, 8: EXACT}  # the same by bytes of a float
INVALID = "\uffff"  # begins a text of an invalid value: a noncharacter, which no text contains
_NO_NUMBER = ("", "#N/A", "N/A", "NA", "NULL", "NaN", "nan", "n/a", "none", "None", "null")
_BOOLS = ("false", "0", "0.0", "true", "1", "1.0")
_WORDS = {"false": 0.0, "true": 1.0}
# 2024/02/29, 2024.02.29; where the year is last, a day and a month cannot be told apart
_YEAR_FIRST = r"^(\s*[0-9]{4})[/.]([0-9]{2})[/.]([0-9]{2})"
_DAYS = (-719_162, 2_932_896)  # the first of the year 1, and the last of the year 9999
_EPOCH, _NO_TIME = np.datetime64(0, "us"), np.datetime64("NaT", "us")
_FARTHEST = 1e12  # seconds, beyond the year 9999
_WRITTEN_DAYS = (18_000_101, 21_991_231)  # eight digits that are a day, such as 20240229


def array(column: Any, *, may_be_lists: bool = True) -> Any:
    """Returns values as an Arrow array; mixed types become texts or lists of texts.

    Args:
        column: The values.
        may_be_lists: Whether a list among other values makes lists of all, or is invalid.

    Example:
        >>> array([1.5, "abc", True, None]).to_pylist()
        ['1.5', 'abc', 'true', None]
        >>> array([[1, 2], [3, "x"], 4]).to_pylist()
        [['1', '2'], ['3', 'x'], ['4']]
    """
    try:
        return uniform(column)
    except (arrow().ArrowInvalid, TypeError, OverflowError, UnicodeError):
        items = list(column)
    pa = arrow()
    if may_be_lists and any(isinstance(x, list | tuple | np.ndarray) for x in items):
        lists = [x if x is None or isinstance(x, list | tuple | np.ndarray) else [x] for x in items]
        kind = pa.list_(pa.string())
        return pa.array([None if x is None else list(map(text, x)) for x in lists], kind)
    return pa.array([text(x) for x in items], pa.string())


def uniform(column: Any) -> Any:
    """Returns values of one type as an Arrow array.

    Raises:
        pyarrow.ArrowException: If they are of several types; a matrix is a column of lists.
        OverflowError: If they are integers beyond 64 bits.
    """
    pa = arrow()
    items = column = _alike(column)
    if isinstance(column, np.ndarray):
        column = column.astype(column.dtype.newbyteorder("="), copy=False)
        items = list(column) if column.ndim > 1 else column
    try:
        return pa.array(items)
    except OverflowError:
        # Integers of more than 63 bits need the unsigned type.
        return pa.array(items, pa.uint64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Only this way does Arrow read the NA of pandas as null.
        return pa.array(items, from_pandas=True)


def _alike(column: Any) -> Any:
    """Scalars of one type of NumPy as an array, and days among times as times."""
    if not isinstance(column, list) and getattr(column, "dtype", None) != np.dtype(object):
        return column
    is_there = (isinstance(x, np.ndarray) or not (x is None or _is_missing(x)) for x in column)
    first = next(itertools.compress(column, is_there), None)
    if not isinstance(first, np.generic | datetime.date):
        return column
    kinds = {*map(type, column)}
    if kinds <= {np.datetime64, type(None)}:
        return _of_years(np.array(column, "M8"), np.array(column, "M8[us]"))
    if isinstance(first, np.generic):
        return np.asarray(column) if len(kinds) == 1 else column
    if len(kinds - {type(None)}) == 1:
        return column
    values = [None if _is_missing(x) else x for x in column]  # NaT is a time of no day
    if not any(isinstance(x, datetime.datetime) for x in values):
        return values
    midnight = datetime.time()
    return [
        datetime.datetime.combine(x, midnight) if type(x) is datetime.date else x for x in values
    ]


def text(value: Any) -> str | None:
    """Returns a value as a text, as `strings` does in a column of its type."""
    if isinstance(value, list | dict):
        return f"{INVALID}{value!r}"
    if value is None or _is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating) and math.isinf(value):
        return f"{INVALID}{float(value)!r}"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        whole, exact = int(value), _EXACT.get(np.asarray(value).itemsize, EXACT)
        return str(whole) if abs(whole) < exact else f"{INVALID}{float(value)!r}"
    if isinstance(value, bytes):
        return decode(value)
    if isinstance(value, np.datetime64):  # one of hours ends with the hour
        value = value + np.timedelta64(0, "s")
    try:
        as_text = value if isinstance(value, str) else canonical(str(value))
        as_text.encode()
    except UnicodeError:
        # Half a surrogate pair has no UTF-8.
        return f"{INVALID}{value!r}"
    except ValueError:  # more digits than Python writes
        return f"{INVALID}an integer of {value.bit_length()} bits"
    return as_text


def _is_missing(value: Any) -> bool:
    """Whether a value is NaN or NaT, which differ from themselves, or pandas' NA."""
    try:
        return bool(value != value)
    except TypeError:
        return True


def decode(octets: bytes) -> str:
    """Returns bytes as text; it begins with `INVALID` if they are no UTF-8."""
    try:
        return octets.decode()
    except UnicodeError:
        return f"{INVALID}{octets!r}"


def plain(column: Any) -> Any:
    """Returns a column as one array of its `plain_type`; an invalid text begins with `INVALID`."""
    pa = arrow()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if kind == (target := plain_type(kind)):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == PERIOD:  # its storage counts from 1970 in its own unit
            return pa.array(array.to_pandas().dt.to_timestamp(), from_pandas=True).cast(target)
        if kind.extension_name != "arrow.uuid":
            return plain(array.storage)
        return _by_value(array.storage, lambda octets: str(uuid.UUID(bytes=octets)))
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pa.compute.run_end_decode(array))
    if is_list(kind):
        lengths = np.asarray(pa.compute.list_value_length(array).fill_null(0))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = plain(pa.compute.list_flatten(array))
        return pa.ListArray.from_arrays(offsets, values, mask=array.is_null())
    try:
        return array.cast(target)
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return _by_value(array, decode)


def _by_value(array: Any, convert: Callable[[Any], str]) -> Any:
    """Converts each distinct value to a text."""
    encoded = array.dictionary_encode()
    texts = [convert(value) for value in encoded.dictionary.to_pylist()]
    return arrow().array(texts, arrow().string()).take(encoded.indices)


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
        return _sets(column, feature.max_values)
    return strings(column, spell=True)[:, None]


def strings(column: Any, *, spell: bool = False, exact: float | None = None) -> np.ndarray:
    """Returns a column as strings; empty for null or NaN.

    Whole floats are written as integers, because pandas converts integers with missing values to
    floats; from 2**53 on (2**24 if they have 32 bits, and 2**11 if 16), they are invalid, because
    they may have been other integers.

    Args:
        column: The column.
        spell: Whether to spell texts as values of other types, too: see `canonical_text`.
        exact: The number below which its floats hold every integer; that of its type if None.
    """
    pa = arrow()
    array = plain(column)
    as_text = array.cast(pa.string())
    if pa.types.is_floating(array.type):
        as_text = _of_floats(array, as_text, exact or exact_below(column.type))
    # Equal texts share one object.
    encoded = as_text.fill_null("").dictionary_encode()
    words = encoded.dictionary
    may_change = spell or not is_text(array.type)
    if may_change and pa.compute.any(pa.compute.match_substring_regex(words, ANY_SPELLING)).as_py():
        for pattern, text in SPELLINGS:
            words = pa.compute.replace_substring_regex(words, pattern, text)
    return np.asarray(words.to_pylist(), np.object_)[np.asarray(encoded.indices)]


def exact(column: Any) -> np.ndarray | None:
    """Returns numbers that identify as they are, with -0 as 0; None if their texts are needed.

    These are those of another type, or if one is missing, may have been rounded, or becomes another
    one as float64.
    """
    types, array = arrow().types, plain(column)
    if not is_number(array.type) or array.null_count:
        return None
    if types.is_integer(array.type):
        return np.asarray(array)
    values = doubles(array)
    is_kept = types.is_floating(array.type) or len(np.unique(values)) == len(array.unique())
    return values + 0.0 if is_kept and (np.abs(values) < exact_below(column.type)).all() else None


def exact_below(kind: Any) -> float:
    """Returns the number below which floats of an Arrow type hold every integer."""
    types = arrow().types
    while types.is_dictionary(kind) or types.is_run_end_encoded(kind) or is_list(kind):
        kind = kind.value_type
    return _EXACT[kind.bit_width // 8] if types.is_floating(kind) else EXACT


def _of_floats(array: Any, as_text: Any, exact: float) -> Any:
    """The texts of floats, as Python writes them, but whole ones as integers."""
    pa = arrow()
    values = np.asarray(array.fill_null(np.nan))
    size = np.abs(values)
    is_whole = values == np.floor(values)
    is_exact = is_whole & (size < exact)
    whole = pa.array(np.where(is_exact, values, 0.0).astype(np.int64)).cast(pa.string())
    as_text = pa.compute.if_else(pa.array(is_exact), whole, as_text)
    as_text = pa.compute.if_else(pa.array(np.isnan(values)), pa.scalar(None, pa.string()), as_text)
    is_small = (size < 1e-4) & ~is_whole
    is_other = is_small | (is_whole & ~is_exact)
    if not is_other.any():
        return as_text
    marks = np.where(is_small[is_other], "", INVALID).tolist()
    others = [f"{mark}{x!s}" for mark, x in zip(marks, values[is_other], strict=True)]
    return pa.compute.replace_with_mask(as_text, pa.array(is_other), pa.array(others))


def encode(values: Any, *, sort: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct values of a column, and the index among them of each row.

    Args:
        values: Texts or numbers, `[rows]`, or an Arrow column without nulls.
        sort: Whether to sort the distinct values; by default they have the order of the rows.

    Example:
        >>> distinct, codes = encode(np.array(["b", "a", "b"], object))
        >>> distinct.tolist(), codes.tolist()
        (['b', 'a'], [0, 1, 0])
    """
    column = values if hasattr(values, "dictionary_encode") else arrow().array(values)
    array = column.combine_chunks() if hasattr(column, "chunks") else column
    array = array.dictionary_encode()
    distinct = array.dictionary.to_numpy(zero_copy_only=False)
    codes = np.asarray(array.indices)
    if not sort:
        return distinct, codes.astype(np.int64)
    order = np.asarray(arrow().compute.array_sort_indices(array.dictionary), np.int64)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[codes]


def mask_of(texts: np.ndarray, is_one: Callable[[str], bool]) -> np.ndarray:
    """Returns a mask of the texts with a property, which is computed once for equal texts."""
    each = texts.ravel().tolist()
    matching = {x for x in set(each) if is_one(x)}
    if not matching:
        return np.zeros(texts.shape, bool)
    return np.fromiter((x in matching for x in each), bool, len(each)).reshape(texts.shape)


def floats(column: Any, *, words: bool = True) -> np.ndarray:
    """Returns a column as float32; NaN for null, infinity for an invalid number.

    All types are rounded to float64 first, as in text and in requests.

    Args:
        column: The column.
        words: Whether the texts true and false are 1 and 0.
    """
    array = plain(column)
    if arrow().types.is_float32(array.type):
        return _fill_nulls(array)
    with np.errstate(over="ignore"):
        return doubles(array, words=words).astype(np.float32)


def doubles(column: Any, *, words: bool = True) -> np.ndarray:
    """Returns a column as float64, otherwise as `floats`."""
    array = plain(column)
    if is_text(array.type):
        return _parse_numbers(array, _float_or_word if words else number)
    return _fill_nulls(array.cast(arrow().float64(), safe=False))


def moments(column: Any) -> np.ndarray:
    """Returns times by which rows are sorted.

    Args:
        column: The column: times, or texts of times in ISO 8601, or numbers, also as texts.

    Returns:
        `[rows]`: `datetime64` of the unit of the column, UTC, NaT if missing or invalid; or the
        numbers, int64 or float64, NaN if missing and infinity if invalid.
    """
    pa = arrow()
    array = plain(column)
    if is_text(array.type):
        words = strip_texts(array)
        for kind in (pa.int64(), pa.float64()):
            with contextlib.suppress(pa.ArrowInvalid):
                return moments(words.cast(kind))
        return _instants(words)
    if pa.types.is_integer(array.type) and not array.null_count:
        return np.asarray(array)
    if is_number(array.type) or pa.types.is_null(array.type):
        return doubles(array)
    if pa.types.is_date(array.type):  # pandas writes dates of 64 bits with times of the day
        array = array.cast(pa.timestamp("ms" if pa.types.is_date64(array.type) else "s"))
    return np.asarray(array.cast(pa.timestamp(array.type.unit)))


def instants(seconds: np.ndarray) -> np.ndarray:
    """Returns numbers among times as times; NaT for those that are none.

    Args:
        seconds: Seconds since 1970, or days in eight digits, `[rows]`: see `written_days`.

    Example:
        >>> instants(np.array([20240229, 20240230, 1.7e12])).astype("M8[s]").astype(str).tolist()
        ['2024-02-29T00:00:00', 'NaT', 'NaT']
    """
    seconds = written_days(seconds.astype(np.float64))
    is_near = np.abs(seconds) <= _FARTHEST
    times = _EPOCH + np.round(np.where(is_near, seconds, 0.0) * 1e6).astype("m8[us]")
    return np.where(is_near, times, _NO_TIME)


def concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns columns as one; times have the finest of their units that holds all, or `us`."""
    whole = np.concatenate(parts)
    if len({x.dtype for x in parts}) == 1 or whole.dtype.kind != "M":
        return whole
    return _of_years(whole, np.concatenate([x.astype("M8[us]") for x in parts]))


def _of_years(times: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """Times, or coarser ones of the same if some were beyond the years of their unit."""
    years = times.astype("M8[Y]"), coarse.astype("M8[Y]")
    return times if np.array_equal(*years, equal_nan=True) else coarse


def _instants(words: Any) -> np.ndarray:
    """Texts of times as `datetime64`; numbers among them are seconds, without a time numbers."""
    pa = arrow()
    iso = pa.compute.replace_substring_regex(words, _YEAR_FIRST, r"\1-\2-\3")
    for unit in ("us", "ns"):
        for zone in (None, "UTC"):
            with contextlib.suppress(pa.ArrowInvalid):
                return np.asarray(iso.cast(pa.timestamp(unit, zone)).cast(pa.timestamp(unit)))
    seconds, found = _each_instant(iso)
    return seconds if np.isnat(found[np.isinf(seconds)]).all() else found


def _each_instant(words: Any) -> tuple[np.ndarray, np.ndarray]:
    """The numbers among texts of times, infinity for others; and all as times, NaT for others."""
    texts = words.to_pylist()
    seconds = np.array([math.nan if x is None else number(x) for x in texts])
    found, others = instants(seconds), np.isinf(seconds)
    found[others] = [_instant(x) for x in itertools.compress(texts, others)]
    return seconds, found


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
    pairs = np.stack([days, np.floor(seconds - days * DAY)], axis=1).astype(np.float32)
    pairs[np.isinf(seconds) | (days < _DAYS[0]) | (days > _DAYS[1])] = np.inf
    return pairs


def zero_or_one(numbers: np.ndarray) -> np.ndarray:
    """Returns numbers, with infinity for those that are not 0, 1 or missing."""
    return np.where((numbers == 0.0) | (numbers == 1.0) | np.isnan(numbers), numbers, np.inf)


def _bools(column: Any) -> np.ndarray:
    array = plain(column)
    if not is_text(array.type):
        return zero_or_one(floats(array))
    pa = arrow()
    words = strip_texts(array)
    codes = pa.compute.index_in(pa.compute.utf8_lower(words), value_set=pa.array(_BOOLS))
    values = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, np.inf], np.float32)[
        np.asarray(codes.fill_null(len(_BOOLS)))
    ]
    return np.where(np.asarray(words.is_null()), np.float32(np.nan), values)


def _seconds(array: Any) -> np.ndarray:
    """Whole seconds since 1970-01-01 UTC, float64, as `moments`; infinity for invalid ones."""
    times = moments(array)
    if times.dtype.kind != "M":
        return written_days(times.astype(np.float64))
    is_missing = (strip_texts(array) if is_text(array.type) else array).is_null()
    whole = times.astype("M8[s]").astype(np.float64)
    return np.where(np.isnat(times), np.where(is_missing, np.nan, np.inf), whole)


def written_days(seconds: np.ndarray) -> np.ndarray:
    """Returns seconds since 1970, of which those of eight digits may be days, such as 20240229.

    Args:
        seconds: Numbers, float64 `[rows]`. From 18000101 to 21991231, they are days of the
            calendar, not seconds of 1970.

    Returns:
        `[rows]`, float64; infinity for a day that does not exist.

    Example:
        >>> written_days(np.array([20240229.0, 20240230.0, 1.7e9])).tolist()
        [1709164800.0, inf, 1700000000.0]
    """
    are_days = (seconds >= _WRITTEN_DAYS[0]) & (seconds <= _WRITTEN_DAYS[1])
    if not are_days.any():
        return seconds
    days, of_row = np.unique(seconds[are_days], return_inverse=True)
    seconds = seconds.copy()
    seconds[are_days] = np.array([_day(x) for x in days.tolist()])[of_row]
    return seconds


def _day(digits: float) -> float:
    try:
        day = datetime.datetime.strptime(f"{digits:.15g}", "%Y%m%d")
    except ValueError:
        return math.inf
    return day.replace(tzinfo=datetime.UTC).timestamp()


def _fill_nulls(array: Any) -> np.ndarray:
    """Floats, with NaN for null."""
    return np.asarray(array.fill_null(np.nan) if array.null_count else array)


def _parse_numbers(array: Any, parse: Callable[[str], float]) -> np.ndarray:
    """Parses texts as numbers, one by one if some are none."""
    words = strip_texts(array)
    with contextlib.suppress(arrow().ArrowInvalid):
        return _fill_nulls(words.cast(arrow().float64()))
    values = [np.nan if word is None else parse(word) for word in words.to_pylist()]
    return np.array(values, np.float64)


def strip_texts(array: Any) -> Any:
    """Stripped texts; null for spellings of a missing value."""
    pa = arrow()
    words = pa.compute.utf8_trim_whitespace(pa.compute.utf8_ltrim(array, INVALID))
    is_nothing = pa.compute.is_in(words, value_set=pa.array(_NO_NUMBER))
    return pa.compute.if_else(is_nothing, pa.scalar(None, pa.string()), words)


def number(word: str) -> float:
    """Returns a text as a number; infinity if it is none."""
    try:
        return math.inf if "_" in word else float(word)
    except ValueError:
        return math.inf


def _float_or_word(word: str) -> float:
    return _WORDS[word.lower()] if word.lower() in _WORDS else number(word)


def _instant(word: str) -> np.datetime64:
    """A time in ISO 8601; NaT if it is none."""
    try:
        instant = datetime.datetime.fromisoformat(word)
    except ValueError:
        return _NO_TIME
    if instant.tzinfo is not None:
        with contextlib.suppress(OverflowError):
            instant = instant.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(instant.replace(tzinfo=None), "us")


def _vectors(column: Any, size: int) -> np.ndarray:
    """Lists of numbers, or texts of numbers separated by spaces."""
    pa = arrow()
    array = plain(column)
    if is_text(array.type):
        array = pa.compute.utf8_split_whitespace(strip_texts(array))
    if not is_list(array.type):
        return np.broadcast_to(floats(array)[:, None], [len(array), size])
    lengths = np.asarray(pa.compute.list_value_length(array).fill_null(-1))
    vectors = np.full([len(array), size], np.inf, np.float32)
    vectors[lengths < 0] = np.nan
    is_whole = lengths == size
    vectors[is_whole] = floats(array.filter(pa.array(is_whole)).flatten()).reshape(-1, size)
    return vectors


def _sets(column: Any, max_values: int) -> np.ndarray:
    """The first texts of lists, or of a text separated by `|`; padded with empty texts."""
    pa = arrow()
    array, exact = plain(column), exact_below(column.type)
    if is_text(array.type):
        array = pa.compute.split_pattern(array, "|")
    if is_list(array.type):
        # not `list_parent_indices`, which counts the values that lie under a null, too
        lengths = np.asarray(pa.compute.list_value_length(array).fill_null(0))
        rows = np.repeat(np.arange(len(array)), lengths)
        values = strings(array.flatten(), spell=True, exact=exact)
    else:
        rows, values = np.arange(len(array)), strings(array, spell=True, exact=exact)
    rows, values = rows[values != ""], values[values != ""]
    starts = np.searchsorted(rows, np.arange(len(array)))
    places = np.arange(len(rows)) - starts[rows]
    is_kept = places < max_values
    padded = np.full([len(array), max_values], "", np.object_)
    padded[rows[is_kept], places[is_kept]] = values[is_kept]
    return padded
