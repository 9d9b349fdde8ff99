"""Description of the REST API of the served models: an OpenAPI document."""

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from tfrank_sel.serving import monitoring
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model, per_model
from tfrank_sel.serving.status import ServingError
from tfrank_sel.version import __version__

PATH = "/openapi.json"

_TEXT = {"oneOf": [{"type": "string"}, {"type": "object", "required": ["b64"]}]}
_ERROR = {"description": "The request is refused: `error` says why."}


def written(core: ServerCore) -> bytes:
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
    document = {"openapi": "3.1.0", "info": info, "paths": paths}
    return json.dumps(document, indent=1).encode()


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
        request = _object({"signature_name": {"const": name}, "inputs": inputs}, title=name)
        if name == DEFAULT_SIGNATURE:
            request["required"].remove("signature_name")
        outputs = {"outputs": _tensors(signature.definition.outputs)}
        yield request, _object(outputs, title=name)


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
