"""JSON of `:classify` and `:regress`: the examples of a request, the results of an answer."""

import json
from typing import Any

import numpy as np
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from tfrank_sel.serving.rest.json_inputs import is_b64, shown, to_bytes
from tfrank_sel.serving.rest.json_outputs import to_text
from tfrank_sel.serving.status import invalid

_KINDS = {bool: "int64", int: "int64", float: "float", str: "string", dict: "string"}
_JSON_TYPES = {type(None): "Null", list: "Array", dict: "Object"}


def to_input(document: dict[str, Any]) -> input_pb2.Input:
    """Reads the examples of a request, and its context if it has one.

    An integer or a Boolean is an int64 feature, a number with a decimal point a float feature, and
    a string or `{"b64": ...}` a bytes feature.

    Args:
        document: The request.

    Returns:
        The examples.

    Raises:
        ServingError: INVALID_ARGUMENT if the request has no examples, or values of other types.

    Example:
        >>> examples = to_input({"examples": [{"x": 80.0}]}).example_list.examples
        >>> examples[0].features.feature["x"].float_list.value
        [80.0]
    """
    result = input_pb2.Input()
    target = result.example_list
    if "context" in document:
        target = result.example_list_with_context
        _add_features(document["context"], target.context)
    if "examples" not in document:
        raise invalid(
            "When method is classify or regress, key 'examples' is expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid("Expecting 'examples' value to be a list/array")
    if not examples:
        raise invalid("'examples' value is an empty array")
    for example in examples:
        _add_features(example, target.examples.add())
    return result


def regressions(result: regression_pb2.RegressionResult) -> bytes:
    """Writes the answer to `:regress`: a number for each example.

    Args:
        result: The values.

    Returns:
        The JSON text.
    """
    values = np.array([x.value for x in result.regressions], np.float32)
    return _results(to_text("results", values))


def classifications(result: classification_pb2.ClassificationResult) -> bytes:
    """Writes the answer to `:classify`: pairs of label and score for each example.

    Args:
        result: The classes.

    Returns:
        The JSON text.
    """
    rows = (b", ".join(map(_pair, row.classes)) for row in result.classifications)
    return _results(b"[" + b", ".join(b"[" + row + b"]" for row in rows) + b"]")


def _pair(entry: classification_pb2.Class) -> bytes:
    label = json.dumps(entry.label).encode()
    return b"[" + label + b", " + to_text("score", np.array(entry.score, np.float32)) + b"]"


def _results(text: bytes) -> bytes:
    return b'{\n    "results": ' + text + b"\n}"


def _add_features(features: Any, example: example_pb2.Example) -> None:
    if not isinstance(features, dict):
        raise invalid(f"Example must be JSON object but got: {shown(features)}")
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kind = None
        try:
            feature = example.features.feature[name]
        except UnicodeEncodeError as error:
            raise invalid(f"Feature: {shown(name)} is not Unicode") from error
        for item in values:
            found = _kind(name, item)
            kind = kind or found
            if found != kind:
                raise invalid(f"feature: {name} expecting type: {kind}")
            if kind == "int64":
                _check_range(name, item)
                feature.int64_list.value.append(item)
            elif kind == "float":
                feature.float_list.value.append(item)
            else:
                feature.bytes_list.value.append(to_bytes(item))


def _kind(name: str, value: Any) -> str:
    if type(value) not in _KINDS or (isinstance(value, dict) and not is_b64(value)):
        raise invalid(
            f"Feature: {name} has element with unexpected JSON type: {_JSON_TYPES[type(value)]}"
        )
    return _KINDS[type(value)]


def _check_range(name: str, value: int) -> None:
    if not -(2**63) <= value < 2**63:
        raise invalid(
            f"Feature: {name} has integral type number: uint64. Only int64_t is supported"
        )
