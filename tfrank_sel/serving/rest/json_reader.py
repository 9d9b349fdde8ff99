"""JSON as TensorFlow Serving reads it, which is not quite JSON.

Its parser takes `NaN` and `Infinity`, stops after the first value, keeps the first of equal keys,
nests without bound, and leaves bytes that are no UTF-8 as they are.
"""

import json
import re
from typing import Any

import orjson

from tfrank_sel.serving.status import ServingError, invalid

_STRINGS = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "Inf": float("inf"),
    "-Inf": float("-inf"),
}
_WORD = re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))


def read(body: bytes) -> Any:
    """Reads the first JSON value of a request's body.

    Args:
        body: The text. Bytes of a string that are no UTF-8 become surrogate escapes.

    Returns:
        The value, of Python's own types; an integer beyond 64 bits becomes a float.

    Raises:
        ServingError: INVALID_ARGUMENT with the place of the fault.

    Example:
        >>> read(b'{"a": [1, 2.0, NaN], "a": 3} and more')
        {'a': [1, 2.0, nan]}
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _Reader(body.decode("utf-8", "surrogateescape")).read()
    # orjson keeps the last of equal keys. As many colons as keys: no key came twice.
    if _count_keys(value) == body.count(b":"):
        return value
    return _Reader(body.decode("utf-8", "surrogateescape")).read()


def read_object(body: bytes) -> dict[str, Any]:
    """Reads a request's body, which must be an object.

    Raises:
        ServingError: INVALID_ARGUMENT if it is not.
    """
    document = read(body)
    if not isinstance(document, dict):
        raise invalid("Request body must be a JSON object")
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


class _Reader:
    """Reads one value without recursion, so that no nesting is too deep.

    Args:
        text: What to read.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> Any:
        """Returns the first value of the text."""
        if self._peek() == "":
            raise self._error("The document is empty.")
        root: list[Any] = []
        # The containers that are still open; a list takes values, an object pairs of key and value.
        open_ones: list[tuple[list[Any] | dict[str, Any], str]] = [(root, "")]
        while True:
            container, key = open_ones[-1]
            value = self._value()
            if isinstance(container, list):
                container.append(value)
            else:
                container.setdefault(key, value)
            if isinstance(value, (list, dict)) and not self._closes(value):
                open_ones.append((value, self._key() if isinstance(value, dict) else ""))
                continue
            while len(open_ones) > 1 and not self._more(open_ones):
                open_ones.pop()
            if len(open_ones) == 1:
                return root[0]

    def _value(self) -> Any:
        """Reads a scalar, or the bracket that opens a container."""
        char = self._peek()
        if char == '"':
            return self._string()
        if char in ("[", "{"):
            self._at += 1
            return [] if char == "[" else {}
        if word := _WORD.match(self._text, self._at):
            self._at = word.end()
            return _WORDS[word[0]]
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._error("Invalid value.")
        self._at = number.end()
        if number[1] or number[2] or len(number[0]) > 20:
            return float(number[0])
        integer = int(number[0])
        return integer if -(2**63) <= integer < 2**64 else float(integer)

    def _string(self) -> str:
        try:
            text, self._at = _STRINGS.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            raise self._error("Missing a closing quotation mark or invalid string.") from error
        return text

    def _key(self) -> str:
        if self._peek() != '"':
            raise self._error("Missing a name for object member.")
        key = self._string()
        if self._peek() != ":":
            raise self._error("Missing a colon after a name of object member.")
        self._at += 1
        return key

    def _closes(self, container: list[Any] | dict[str, Any]) -> bool:
        """Passes the closing bracket, if it comes next."""
        closing = self._peek() == ("]" if isinstance(container, list) else "}")
        self._at += closing
        return closing

    def _more(self, open_ones: list[tuple[list[Any] | dict[str, Any], str]]) -> bool:
        """Passes what follows a value of the innermost container; False if that is its end."""
        container, _ = open_ones[-1]
        if self._closes(container):
            return False
        if self._peek() != ",":
            what = "] after an array element" if isinstance(container, list) else "} after a member"
            raise self._error(f"Missing a comma or {what}.")
        self._at += 1
        if isinstance(container, dict):
            open_ones[-1] = (container, self._key())
        return True

    def _peek(self) -> str:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _error(self, reason: str) -> ServingError:
        return invalid(f"JSON Parse error: {reason} at offset: {self._at}")
