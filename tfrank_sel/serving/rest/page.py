"""Page of the endpoint: the inputs of each model, with examples from its warm-up requests."""

import contextlib
import importlib.resources
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import input_pb2, predict_pb2

from tfrank_sel.data.schema import Columns
from tfrank_sel.export.inputs import ModelInputs
from tfrank_sel.serving import input_features
from tfrank_sel.serving.engine import warmup
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import Model, per_model
from tfrank_sel.serving.rest import rows_of_json
from tfrank_sel.serving.status import ServingError

EXAMPLES = 3
ITEMS = 20  # items of an example
_PAGE = importlib.resources.files(__package__) / "page.html"
_SIGNATURE = "predict"


def written(core: ServerCore) -> bytes:
    """Returns the page of the currently served models."""
    models = {name: _told(core, name) for name in core.names()}
    text = json.dumps(models).replace("<", r"\u003c")  # the text is inside a script element
    return _PAGE.read_text(encoding="utf-8").replace("MODELS", text, 1).encode()


def _told(core: ServerCore, name: str) -> dict[str, Any]:
    with contextlib.suppress(ServingError), core.acquire(name, None, None) as model:
        return of_model(model)
    return {**_inputs(None), "signatures": [], "examples": []}


@per_model
def of_model(model: Model) -> dict[str, Any]:
    """Returns the inputs of a model as far as they are known, and examples, as JSON-ready values.

    Reads the files of its version, at the first call.
    """
    inputs, examples = rows_of_json.declared(model), list[dict[str, Any]]()
    with contextlib.suppress(Exception):  # of signatures and requests that are not the package's
        if inputs is None:
            signature = model.definitions.get(_SIGNATURE, meta_graph_pb2.SignatureDef())
            inputs = input_features.of_model(signature, {})
        if inputs is not None:
            examples = list(itertools.islice(_examples(model, inputs), EXAMPLES))
    return {**_inputs(inputs), "signatures": sorted(model.signatures), "examples": examples}


def _inputs(inputs: ModelInputs | None) -> dict[str, Any]:
    """The features of a model as JSON-ready values, with the name of the `input` of each."""
    if inputs is None:
        return {"num_features": None, "features": {}, "mask": "mask", "doc_id": Columns.doc_id}
    packed, types = inputs.packed, inputs.types if inputs.packed is None else {}
    return {
        "num_features": packed and packed.num_features,
        "features": {x: {**y.config(), "input": inputs.names[x]} for x, y in types.items()},
        "mask": inputs.mask,
        "doc_id": inputs.doc_id,
    }


def _examples(model: Model, inputs: ModelInputs) -> Iterator[dict[str, Any]]:
    """The first lists of the warm-up requests: `inputs` by name, and `ids` of the items if known.

    An integer is a string, because numbers in JavaScript have 53 bits; null is NaN.
    """
    ids: list[str] = []
    of_query = {inputs.names[x] for x, y in inputs.types.items() if y.of == "query"}
    for log in warmup.read(model.path / warmup.PATH):
        request = log.predict_log.request
        if request.model_spec.signature_name == "serving_default":  # precedes the same list's
            ids = _ids(request, inputs.doc_id)
        if request.model_spec.signature_name != _SIGNATURE:
            continue
        arrays = {name: tf.make_ndarray(proto)[:1] for name, proto in request.inputs.items()}
        arrays.pop(inputs.mask, None)
        values = {
            name: _values(x if name in of_query else x[:, :ITEMS])[0] for name, x in arrays.items()
        }
        yield {"inputs": values, "ids": ids[:ITEMS]}


def _ids(request: predict_pb2.PredictRequest, doc_id: str) -> list[str]:
    """Identifiers of the items of the first list of a request; empty if it holds no such lists."""
    lists = request.inputs["examples"].string_val
    try:
        first = input_pb2.ExampleListWithContext.FromString(lists[0] if lists else b"")
    except message.DecodeError:
        return []
    values = [item.features.feature[doc_id].bytes_list.value for item in first.examples]
    return [x[0].decode(errors="replace") if x else "" for x in values]


def _values(array: np.ndarray) -> list[Any]:
    if array.dtype == object:
        return np.vectorize(lambda x: x.decode(errors="replace"), otypes=[object])(array).tolist()
    if array.dtype.kind in "iu":
        return array.astype(str).tolist()
    text = orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return list(orjson.loads(text))
