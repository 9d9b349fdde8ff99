"""Values of rows in JSON: null, true, times and texts, which tensors of JSON cannot be."""

from collections.abc import Mapping, Set
from typing import Any, TypeGuard

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from tfrank_sel.data import requests, typed
from tfrank_sel.data.rejections import InputError
from tfrank_sel.export.inputs import ModelInputs
from tfrank_sel.export.saved_model import MANIFEST, read_manifest
from tfrank_sel.features import means_missing
from tfrank_sel.serving import input_features
from tfrank_sel.serving.engine.model import Model, per_model
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.rest import json_reader
from tfrank_sel.serving.status import invalid


def has(inputs: ModelInputs | None, types: Mapping[str, int]) -> TypeGuard[ModelInputs]:
    """Whether a signature with inputs of these types takes the features of a model by name."""
    return inputs is not None and {*inputs.names.values()} <= {*types}


@per_model
def declared_inputs(model: Model) -> ModelInputs | None:
    """Returns the inputs that the manifest of a model describes; None if it describes none.

    Reads the file of its version, at the first call.
    """
    if not (model.path / MANIFEST).exists():
        return None
    try:
        described = read_manifest(model.path)["features"]
        predict = model.definitions.get("predict", meta_graph_pb2.SignatureDef())
        return input_features.of_model(predict, described)
    except Exception:  # the manifest of another model, or another file of this name
        return None


def to_inputs(document: Mapping[str, Any], types: Mapping[str, int], inputs: ModelInputs) -> Arrays:
    """Reads the inputs of a request by the types of features, as the client reads rows of a table.

    TensorFlow Serving refuses what this reads beside tensors: null for a missing value, Booleans,
    times as texts, numbers of a category, and sets of fewer values.

    Args:
        document: The request.
        types: Type (DT_...) of every input of the signature.
        inputs: The inputs of the model.

    Returns:
        The inputs by name.

    Raises:
        ServingError: INVALID_ARGUMENT. It names the list, unless there is one, the item and the
            feature of a value that its type does not hold.
    """
    features = inputs.names
    whole = _complete(document, types.keys(), inputs)
    plain = json_reader.to_inputs(whole, types, _as_it_is, _as_it_is)
    size = max((len(x) for x in plain.values() if isinstance(x, list)), default=0)
    for alias in features.values():
        if not isinstance(plain[alias], list) or len(plain[alias]) != size:
            expected = f"expected in {alias!r} a value for each of {size} lists"
            raise invalid(f"request: {expected}", json_reader.format_value(plain[alias]))
    parts = [
        _list({name: plain[alias][i] for name, alias in features.items()}, inputs, i, size)
        for i in range(size)
    ]
    try:
        made = {alias: np.stack([x[name] for x in parts]) for name, alias in features.items()}
    except ValueError as error:
        raise invalid("request: expected lists of one length; pad them", "several") from error
    return {**made, **{x: json_reader.to_array(plain[x], types[x]) for x in types if x not in made}}


def _complete(document: Mapping[str, Any], types: Set[str], inputs: ModelInputs) -> dict[str, Any]:
    """A request with the mask of whole lists, if that is all that it lacks."""
    of_items = [x for name, x in inputs.names.items() if inputs.types[name].of == "item"]
    whole = dict(document)

    def add(sent: Any) -> Any:
        if not (isinstance(sent, dict) and of_items and sent.keys() == types - {inputs.mask}):
            return sent
        values = sent[of_items[0]]
        is_batch = "inputs" in whole and isinstance(values, list)
        return {**sent, inputs.mask: [_ones(x) for x in values] if is_batch else _ones(values)}

    if inputs.mask in types and "inputs" in whole:
        whole["inputs"] = add(whole["inputs"])
    elif inputs.mask in types and isinstance(whole.get("instances"), list):
        whole["instances"] = [add(x) for x in whole["instances"]]
    return whole


def _ones(values: Any) -> list[bool]:
    return [True] * len(values) if isinstance(values, list) else [True]


def _as_it_is(value: Any, _: int) -> Any:
    return value


def _list(values: Mapping[str, Any], inputs: ModelInputs, number: int, count: int) -> Arrays:
    """The values of a list by name of the feature."""
    query, items = dict[str, Any](), dict[str, Any]()
    for name, value in values.items():
        if inputs.types[name].of == "query":
            query[name] = _plain(value)
        else:
            items[name] = [_plain(x) for x in value] if isinstance(value, list) else value
    doc_id = inputs.doc_id
    try:
        made = requests.item_list(items, inputs.types, query=query, doc_id=doc_id)
    except InputError as error:
        prefix = f"list {number}: " if count > 1 else ""
        raise invalid(f"{prefix}{error}") from error
    batch = {"features": made.features[np.newaxis]}
    if made.texts is not None:
        batch["texts"] = made.texts[np.newaxis]
    named = typed.split_matrices({x: tf.constant(y) for x, y in batch.items()}, inputs.types)
    return {name: x.numpy()[0] for name, x in named.items()}


def _plain(value: Any) -> Any:
    """A value as a row has it: bytes, and None or NaN for the numbers that mean a missing value."""
    if isinstance(value, list):
        plain = [_plain(x) for x in value]
        return None if all(x is None for x in plain) else plain
    if json_reader.is_b64(value):
        return json_reader.to_bytes(value)
    if isinstance(value, int | float) and means_missing(value):
        return float("nan") if isinstance(value, float) else None
    return value
