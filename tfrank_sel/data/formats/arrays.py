"""Arrow arrays of ordinary types."""

import functools
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrank_sel.features import Feature, Set, Timestamp, Vector

EXACT = 2.0**53  # from here on, float64 does not hold every integer
INVALID = "\uffff"  # begins a text of an invalid value: a noncharacter, which no text contains


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
    pa = arrow()
    is_matrix = isinstance(column, np.ndarray) and column.ndim > 1
    items = list(column) if is_matrix else column
    try:
        return pa.array(items)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
        items = list(column)
    if may_be_lists and any(isinstance(x, list | tuple | np.ndarray) for x in items):
        found = [None if x is None else x if np.ndim(x) else [x] for x in items]
        return pa.array([None if x is None else list(map(text, x)) for x in found], _texts_type())
    return pa.array([text(x) for x in items], pa.string())


def _texts_type() -> Any:
    return arrow().list_(arrow().string())


def text(value: Any) -> str | None:
    """Returns a value as a text, as `values.strings` does in a column of its type."""
    if isinstance(value, list | dict):
        return f"{INVALID}{value!r}"
    if value is None or value != value:
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer():
        whole = int(value)
        return str(whole) if abs(whole) < EXACT else f"{INVALID}{float(value)!r}"
    if isinstance(value, bytes):
        return decoded(value)
    try:
        str(value).encode()
    except UnicodeError:  # half a surrogate pair
        return f"{INVALID}{value!r}"
    return str(value)


def decoded(octets: bytes) -> str:
    """Returns bytes as text; it begins with `INVALID` if they are no UTF-8."""
    try:
        return octets.decode()
    except UnicodeError:
        return f"{INVALID}{octets!r}"


def accepts(kind: Any, feature: Feature) -> bool:
    """Returns whether a column of an Arrow type may hold a feature.

    A text column may contain values of any type, and is checked row by row.

    Example:
        >>> import pyarrow
        >>> accepts(pyarrow.list_(pyarrow.float32()), Vector(size=2))
        True
    """
    types = arrow().types
    kind = plain_type(kind)
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
        return not types.is_nested(kind) and not types.is_interval(kind)
    return is_number(kind) or types.is_boolean(kind)


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is an integer, float or decimal type."""
    return _is_any(kind, "integer", "floating", "decimal")


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is a string type."""
    return _is_any(kind, "string", "large_string", "string_view")


def is_binary(kind: Any) -> bool:
    """Whether an Arrow type is a binary type, whose bytes need not be text."""
    return _is_any(kind, "binary", "large_binary", "binary_view", "fixed_size_binary")


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list type."""
    return _is_any(kind, "list", "large_list", "fixed_size_list", "list_view", "large_list_view")


def is_span(kind: Any) -> bool:
    """Whether an Arrow type is a time-of-day or duration type."""
    return _is_any(kind, "time", "duration", "interval")


def _is_any(kind: Any, *names: str) -> bool:
    types = arrow().types
    return any(getattr(types, f"is_{name}")(kind) for name in names)


@functools.lru_cache(maxsize=1024)
def plain_type(kind: Any) -> Any:
    """Returns the ordinary Arrow type as which a column is read.

    Texts, bytes and UUIDs are strings, float16 is float32; a dictionary, a run-end encoding or an
    extension has the type of its values, and all lists are of one type.

    Example:
        >>> import pyarrow
        >>> plain_type(pyarrow.list_(pyarrow.float16(), 2))
        ListType(list<item: float>)
    """
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if kind.extension_name == "arrow.uuid" else plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.string() if is_text(kind) or is_binary(kind) else kind


def plain(column: Any) -> Any:
    """Returns a column as one array of its `plain_type`; an invalid text begins with `INVALID`."""
    pa = arrow()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if kind == (wanted := plain_type(kind)):
        return array
    if isinstance(kind, pa.BaseExtensionType):
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
        return array.cast(wanted)
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return _by_value(array, decoded)


def _by_value(array: Any, convert: Callable[[Any], str]) -> Any:
    """Converts each distinct value to a text."""
    encoded = array.dictionary_encode()
    texts = [convert(value) for value in encoded.dictionary.to_pylist()]
    return arrow().array(texts, arrow().string()).take(encoded.indices)
