"""Fast reader of the JSON of a `:predict` request with regular blocks of numbers.

Most requests have nested lists of numbers for each float input. These are read directly into an
array, without Python objects, in a third of the time. `json_reader` and `json_inputs` read other
requests, and raise the errors.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import simdjson

from tfrank_sel.serving.rest import json_inputs, json_reader
from tfrank_sel.serving.status import ServingError


class _IrregularError(Exception):
    """The request does not consist of regular blocks of numbers."""


class Document:
    """A request.

    Args:
        body: Its text.

    Raises:
        ServingError: INVALID_ARGUMENT if it is not a JSON object.

    Example:
        >>> from tensorflow.core.framework import types_pb2
        >>> document = Document(b'{"instances": [[1, 2.5]]}')
        >>> document.to_inputs({"x": types_pb2.DT_FLOAT})
        {'x': array([[1. , 2.5]], dtype=float32)}
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._is_plain = False  # read by simdjson, which accepts only valid JSON
        if body.startswith(b"{") and b'"b64"' not in body:
            try:
                root: Any = simdjson.Parser().parse(body)
                self._members = {key: root[key] for key in root.keys()}  # noqa: SIM118
                self._is_plain = True
            except (ValueError, RuntimeError):
                pass
        if not self._is_plain:
            self._members = json_reader.read_object(body)

    @property
    def is_rows(self) -> bool:
        """Whether the answer is in row format."""
        return "instances" in self._members

    def get(self, key: str, default: Any) -> Any:
        """Returns the value of a key, of any type."""
        return self._members.get(key, default)

    def to_inputs(self, types: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Returns the inputs by name.

        Args:
            types: Type (DT_...) of every input of the signature.

        Raises:
            ServingError: As `json_inputs.to_inputs`.
        """
        if self._is_plain:
            try:
                return self._regular(types)
            except _IrregularError:
                self._members = json_reader.read_object(self._body)
        return json_inputs.to_inputs(self._members, types)

    def _regular(self, types: Mapping[str, int]) -> dict[str, np.ndarray]:
        block = _Block()
        if self._members.keys() - {"signature_name"} == {"instances"}:
            inputs = block.rows(self._members["instances"], types)
        elif self._members.keys() - {"signature_name"} == {"inputs"}:
            inputs = block.columns(self._members["inputs"], types)
        else:
            raise _IrregularError
        # As many brackets as lists that were read, so there are no other lists among the numbers.
        brackets = np.frombuffer(self._body, np.uint8) == ord("[")
        if np.count_nonzero(brackets) != block.lists:
            raise _IrregularError
        return inputs


class _Block:
    """Reads tensors, and counts their lists."""

    def __init__(self) -> None:
        self.lists = 0

    def rows(self, instances: Any, types: Mapping[str, int]) -> dict[str, np.ndarray]:
        if not isinstance(instances, simdjson.Array) or not len(instances):
            raise _IrregularError
        if not isinstance(instances[0], simdjson.Object):
            return self.columns(instances, types)
        self.lists += 1
        rows = [self.columns(row, types) for row in instances if isinstance(row, simdjson.Object)]
        if len(rows) < len(instances):
            raise _IrregularError
        try:
            return {name: np.stack([row[name] for row in rows]) for name in types}
        except ValueError as error:  # their shapes differ
            raise _IrregularError from error

    def columns(self, inputs: Any, types: Mapping[str, int]) -> dict[str, np.ndarray]:
        if not isinstance(inputs, simdjson.Object):
            if len(types) != 1:
                raise _IrregularError
            [(name, dtype)] = types.items()
            return {name: self._tensor(inputs, dtype)}
        if set(inputs.keys()) != types.keys():
            raise _IrregularError
        return {name: self._tensor(inputs[name], dtype) for name, dtype in types.items()}

    def _tensor(self, value: Any, dtype: int) -> np.ndarray:
        if dtype not in json_inputs.FLOATS or not isinstance(value, simdjson.Array):
            return self._other(value, dtype)
        shape: list[int] = []
        level: list[Any] = [value]
        while True:
            sizes = set(map(len, level))
            if len(sizes) != 1 or 0 in sizes:
                raise _IrregularError
            shape += sizes
            self.lists += len(level)
            if not isinstance(level[0][0], simdjson.Array):
                break
            level = [item for array in level for item in array]
            if not all(isinstance(item, simdjson.Array) for item in level):
                raise _IrregularError
        try:
            values = np.frombuffer(value.as_buffer(of_type="d"), np.float64).reshape(shape)
        except (TypeError, ValueError) as error:  # not all are numbers, or some lists are empty
            raise _IrregularError from error
        with np.errstate(over="ignore"):
            return values.astype(json_inputs.FLOATS[dtype])

    def _other(self, value: Any, dtype: int) -> np.ndarray:
        plain = value.as_list() if isinstance(value, simdjson.Array) else value
        if isinstance(plain, simdjson.Object):
            raise _IrregularError
        try:
            tensor = json_inputs.to_array(plain, dtype)
        except ServingError as error:
            raise _IrregularError from error
        self.lists += _lists_of(tensor.shape)
        return tensor


def _lists_of(shape: tuple[int, ...]) -> int:
    """Returns the number of lists in the JSON of a tensor, by its shape."""
    return sum(math.prod(shape[:axis]) for axis in range(len(shape)))
