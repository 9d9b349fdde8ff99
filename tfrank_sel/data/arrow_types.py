"""Types of Arrow, as which columns are read."""

import functools
from typing import Any

from tfrank_sel.features import Feature, Set, Timestamp, Vector

PERIOD = "pandas.period"


def arrow() -> Any:
    """Returns pyarrow, with its module `compute`.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import pyarrow.compute  # pyarrow alone does not import it; pandas does
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'tfrank_sel[frames]'") from error
    return pyarrow


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

    Texts, bytes and UUIDs are strings, float16 is float32, a period of pandas is its first moment;
    a dictionary, a run-end encoding or another extension has the type of its values, and all lists
    are of one type.

    Example:
        >>> import pyarrow
        >>> plain_type(pyarrow.list_(pyarrow.float16(), 2))
        ListType(list<item: float>)
    """
    pa = arrow()
    if isinstance(kind, pa.BaseExtensionType):
        converted = {"arrow.uuid": pa.string(), PERIOD: pa.timestamp("us")}
        return converted.get(kind.extension_name) or plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.string() if is_text(kind) or is_binary(kind) else kind
