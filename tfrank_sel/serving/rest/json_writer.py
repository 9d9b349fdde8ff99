"""Writer of the JSON of a `:predict` answer."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.status import Code, ServingError, invalid


def to_body(outputs: Arrays, *, rows: bool) -> bytes:
    """Writes the answer, in row format (`predictions`) or columnar (`outputs`).

    Args:
        outputs: The outputs by name; strings are bytes in arrays of objects.
        rows: Whether the request was in row format.

    Returns:
        The JSON text.

    Raises:
        ServingError: INVALID_ARGUMENT if the format is that of rows, and the first axes of the
            outputs differ.

    Example:
        >>> to_body({"y": np.array([1.0, 2.5], np.float32)}, rows=False)
        b'{\\n    "outputs": [1.0,2.5]\\n}'
    """
    if not rows:
        columns = {name: to_text(name, array) for name, array in outputs.items()}
        return b'{\n    "outputs": ' + _one_or_object(columns) + b"\n}"
    size = _batch_size(outputs)
    if len(outputs) == 1:
        [(name, array)] = outputs.items()
        return b'{\n    "predictions": ' + to_text(name, array) + b"\n}"
    lines = (
        _one_or_object({name: to_text(name, array[row]) for name, array in outputs.items()})
        for row in range(size)
    )
    return b'{\n    "predictions": [' + b", ".join(lines) + b"]\n}"


def _batch_size(outputs: Arrays) -> int:
    size = None
    for name, array in outputs.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information")
        if size is not None and len(array) != size:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {size}"
            )
        size = len(array)
    return size or 0


def to_text(name: str, array: np.ndarray | bytes) -> bytes:
    """Returns the JSON text of a tensor, or of one row of it."""
    if isinstance(array, bytes) or array.dtype == np.object_:
        strings = array if isinstance(array, bytes) else array.tolist()
        nested = _strings(strings, as_b64=name.endswith("_bytes"))
        return json.dumps(nested, ensure_ascii=False).encode("utf-8", "surrogateescape")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        return json.dumps(array.tolist()).encode()
    value = np.ascontiguousarray(array) if array.ndim else array[()]
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        raise ServingError(
            Code.UNIMPLEMENTED, f"Tensor name: {name} has type {array.dtype}, unknown to JSON"
        ) from error


def _strings(nested: Any, *, as_b64: bool) -> Any:
    if isinstance(nested, list):
        return [_strings(item, as_b64=as_b64) for item in nested]
    if as_b64:
        return {"b64": base64.b64encode(nested).decode()}
    return nested.decode("utf-8", "surrogateescape")


def _one_or_object(texts: Mapping[str, bytes]) -> bytes:
    if len(texts) == 1:
        return next(iter(texts.values()))
    members = (json.dumps(name).encode() + b": " + text for name, text in texts.items())
    return b"{" + b", ".join(members) + b"}"
