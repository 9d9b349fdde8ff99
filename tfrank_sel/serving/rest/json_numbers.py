"""The JSON of a `:predict` request; regular blocks of numbers are read as arrays at once.

Most requests are that: for each float input lists in lists of numbers, which become an array
without becoming Python objects first, in a third of the time. Whatever else a request holds is left
to `json_reader` and `json_inputs`, which also word the errors.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import simdjson

from tfrank_sel.serving.rest import json_inputs, json_reader
from tfrank_sel.serving.status import ServingError


class _IrregularError(Exception):
    """The request is not of this kind."""


class Document:
    """A request.

    Args:
        body: Its text.

    Raises:
        ServingError: INVALID_ARGUMENT if it is no JSON object.

    Example:
        >>> from tensorflow.core.framework import types_pb2
        >>> document = Document(b'{"instances": [[1, 2.5]]}')
        >>> document.to_inputs({"x": types_pb2.DT_FLOAT})
        {'x': array([[1. , 2.5]], dtype=float32)}
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._is_plain = False  # read by simdjson, which takes what is JSON alone
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
        """Whether the answer is wanted in row format."""
        return "instances" in self._members

    def get(self, key: str, default: Any) -> Any:
        """Returns what stands under a key, which may be of any type."""
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
        # As many brackets as lists were looked at: no other list hides among the numbers.
        brackets = np.frombuffer(self._body, np.uint8) == ord("[")
        if np.count_nonzero(brackets) != block.lists:
            raise _IrregularError
        return inputs


class _Block:
    """Reads tensors, and counts the lists that it came across."""

    def __init__(self) -> None:
        self.lists = 0

    def rows(self, instances: Any, types: Mapping[str, int]) -> dict[str, np.ndarray]:
        if not isinstance(instances, simdjson.Array) or not len(instances):
            raise _IrregularError
        if not isinstance(instances[0], simdjson.Object):
            return self.columns(instances, types)
        if not all(isinstance(row, simdjson.Object) for row in instances):
            raise _IrregularError
        self.lists += 1
        rows = [self.columns(row, types) for row in instances]
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
        except (TypeError, ValueError) as error:  # not all are numbers, or some are lists of none
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
    """Returns how many lists a tensor of a shape is written as."""
    return sum(math.prod(shape[:axis]) for axis in range(len(shape)))
