"""Page of the endpoint: the inputs of each model, with examples from its warm-up requests."""

import contextlib
import importlib.resources
import itertools
import json
import urllib.parse
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
from tfrank_sel.export.saved_model import WARM_UP
from tfrank_sel.serving import input_features, monitoring
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model, per_model
from tfrank_sel.serving.engine.predict import warmup_requests
from tfrank_sel.serving.rest import json_reader, rows_of_json
from tfrank_sel.serving.status import ServingError
from tfrank_sel.version import __version__

EXAMPLES = 3
# Number of items of an example on the page.
ITEMS = 20
_PAGE = importlib.resources.files(__package__) / "page.html"
_SIGNATURE = "predict"


def render_page(core: ServerCore) -> bytes:
    """Returns the page of the currently served models."""
    models = {name: _describe_model(core, name) for name in core.names()}
    text = json.dumps(models).replace("<", r"\u003c")  # the text is inside a script element
    return _PAGE.read_text(encoding="utf-8").replace("MODELS", text, 1).encode()


def _describe_model(core: ServerCore, name: str) -> dict[str, Any]:
    with contextlib.suppress(ServingError), core.acquire(name, None, None) as model:
        return of_model(model)
    return {**_inputs(None), "signatures": [], "examples": []}


@per_model
def of_model(model: Model) -> dict[str, Any]:
    """Returns the inputs of a model as far as they are known, and examples, as JSON-ready values.

    Reads the files of its version, at the first call.
    """
    inputs, examples = rows_of_json.declared_inputs(model), list[dict[str, Any]]()
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
    for log in warmup_requests(model.path / WARM_UP):
        request = log.predict_log.request
        # The request of the default signature precedes that of the same list.
        if request.model_spec.signature_name == "serving_default":
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


OPENAPI = "/openapi.json"

_TEXT = {"oneOf": [{"type": "string"}, {"type": "object", "required": ["b64"]}]}
_ERROR = {"description": "The request is refused: `error` says why."}


def render_openapi(core: ServerCore) -> bytes:
    """Returns the document of the currently served models: OpenAPI 3.1, as JSON."""
    paths = {monitoring.PATH: _get("Metrics for Prometheus", "text/plain")}
    paths[monitoring.HEALTH] = _get("Whether all models are available; 503 if not", "text/plain")
    for name in core.names():
        model = f"/v1/models/{urllib.parse.quote(name, safe='')}"
        paths[model] = _get(f"States of the versions of {name}")
        paths[f"{model}/metadata"] = _get(f"Signatures of {name}")
        try:
            with core.acquire(name, None, None) as served:
                if served.signatures:
                    paths[f"{model}:predict"] = {"post": _predict(served)}
        except ServingError:  # no version is ready: its states tell so
            continue
    info = {"title": "tfrank_sel endpoint", "version": __version__}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": paths}, indent=1).encode()


def _get(summary: str, content: str = "application/json") -> dict[str, Any]:
    answer = {"description": summary, "content": {content: {}}}
    return {"get": {"summary": summary, "responses": {"200": answer}}}


@per_model
def _predict(model: Model) -> dict[str, Any]:
    """The operation `:predict`, a request and an answer for each signature."""
    requests, answers = zip(*_schemas(model), strict=True)
    body = {"application/json": {"schema": {"oneOf": requests}}}
    answer = {"application/json": {"schema": {"anyOf": answers}}}
    return {
        "summary": "Outputs of a signature; TensorFlow Serving's row format is accepted, too",
        "requestBody": {"required": True, "content": body},
        "responses": {"200": {"description": "Outputs", "content": answer}, "default": _ERROR},
    }


def _schemas(model: Model) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for name, signature in sorted(model.signatures.items()):
        inputs = _tensors(signature.definition.inputs)
        fields = {field: {"type": kind} for field, (_, kind) in json_reader.FIELDS.items()}
        fields |= {"signature_name": {"const": name}, "inputs": inputs}
        request = _object(fields, title=name)
        request["required"] = ["inputs"]
        if name != DEFAULT_SIGNATURE:
            request["required"].insert(0, "signature_name")
        yield request, _object({"outputs": _tensors(signature.definition.outputs)}, title=name)


def _tensors(tensors: dict[str, meta_graph_pb2.TensorInfo]) -> dict[str, Any]:
    """Tensors by name; a tensor that is alone may be without its name, as it is in an answer."""
    named = {name: _tensor(info) for name, info in sorted(tensors.items())}
    return _object(named) if len(named) > 1 else {"anyOf": [_object(named), *named.values()]}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*properties], "properties": properties, **more}


def _tensor(info: meta_graph_pb2.TensorInfo) -> dict[str, Any]:
    """Nested arrays, one a dimension; any value if the number of dimensions is unknown."""
    dtype = tf.as_dtype(info.dtype)
    kind = "boolean" if dtype.is_bool else "integer" if dtype.is_integer else "number"
    schema: dict[str, Any] = _TEXT if dtype == tf.string else {"type": kind}
    if info.tensor_shape.unknown_rank:
        return {"description": f"{kind}, of any shape"}
    for dim in reversed(info.tensor_shape.dim):
        size = {} if dim.size < 0 else {"minItems": dim.size, "maxItems": dim.size}
        schema = {"type": "array", "items": schema, **size}
    return schema
