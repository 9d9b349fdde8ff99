"""Reader of JSON with the extensions of TensorFlow Serving.

Its parser accepts `NaN`, `Infinity` and `Inf`, stops after the first value, keeps the first of
equal keys, and does not change bytes that are not UTF-8.
"""

import json
import math
import re
from typing import Any

import orjson

from tfrank_sel.serving.rest.json_inputs import shown
from tfrank_sel.serving.status import invalid

_SPACE = re.compile(r"[ \t\n\r]*")
_INF = re.compile(r'"(?:[^"\\]|\\.)*"|Inf(?!inity)', re.DOTALL)
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting ',' delimiter": "Missing a comma or a closing bracket.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
}


def read(body: bytes) -> Any:
    """Reads the first JSON value of a request's body.

    Args:
        body: The text. Bytes of a string that are not UTF-8 become surrogate escapes.

    Returns:
        The value, of Python's own types; an integer beyond 64 bits becomes a float.

    Raises:
        ServingError: INVALID_ARGUMENT with the position of the error.

    Example:
        >>> read(b'{"a": [1, 2.0, NaN], "a": 3} and more')
        {'a': [1, 2.0, nan]}
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _read_slowly(body)
    # orjson keeps the last of equal keys. If there are as many colons as keys, no key is repeated.
    return value if _count_keys(value) == body.count(b":") else _read_slowly(body)


def read_object(body: bytes) -> dict[str, Any]:
    """Reads a request's body, which must be an object.

    Raises:
        ServingError: INVALID_ARGUMENT if it is not.
    """
    document = read(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    return document


def _count_keys(value: Any) -> int:
    """Counts the keys of all objects, or fewer when lists mix objects and numbers."""
    count, rest = 0, [value]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            count += len(value)
            rest.extend(value.values())
        elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            rest.extend(value)
    return count


def _read_slowly(body: bytes) -> Any:
    text = body.decode("utf-8", "surrogateescape")
    if "Inf" in text:
        text = _INF.sub(lambda found: "Infinity" if found[0] == "Inf" else found[0], text)
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    if start == len(text):
        raise invalid("JSON Parse error: The document is empty. at offset: 0")
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        reason = _REASONS.get(error.msg, "Missing a closing quotation mark or invalid string.")
        raise invalid(f"JSON Parse error: {reason} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: Lists or objects are nested too deeply.") from error


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise invalid(f"JSON Parse error: Number too big to be stored in double: {text[:32]}")
    return value


def _integer(text: str) -> int | float:
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**64:
        return _float(text)
    return value


def _constant(text: str) -> float:
    return float(text)  # a function of Python lets other threads run in between


def _first_of_equal(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


_DECODER = json.JSONDecoder(
    object_pairs_hook=_first_of_equal,
    parse_float=_float,
    parse_int=_integer,
    parse_constant=_constant,
)
