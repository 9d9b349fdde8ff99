"""TensorFlow Serving's REST API, as a bare ASGI application on the shared core."""

import importlib.resources
import json
import re
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import json_format, message

from serving import json_examples, json_inputs, json_outputs, json_reader, monitoring
from serving.core import ServerCore
from serving.grpc_services import signature_map, status_response
from serving.inference import classify, regress
from serving.model import DEFAULT_SIGNATURE
from serving.predict import predict
from serving.status import Code, ServingError

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# name, version and label of the model that a request asks for
Target = tuple[str, int | None, str | None]

# A request may not take longer than this, in seconds.
TIMEOUT = 30.0
# What a compressed body may grow to, in bytes.
MAX_INFLATED = 2**30

_PAGE = importlib.resources.files("serving") / "page.html"
_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<verb>predict|classify|regress)", re.I)
_GET = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.I)
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>Not Found</BODY></HTML>\n"


class RestApi:
    """The ASGI application.

    The model runs in the loop's own thread: handing it to another costs more than a typical
    ranking takes.

    Args:
        core: What it serves.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        body = await _body(receive)
        if body is None:
            return
        status, content_type, answer = self._answer(scope, body)
        headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, scope: Scope, body: bytes) -> tuple[int, bytes, bytes]:
        """Returns status, content type and body of the answer."""
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        headers = dict(scope["headers"])
        if path == "/":
            return 200, b"text/html; charset=utf-8", self._page()
        if path == monitoring.PATH:
            return 200, b"text/plain", self._core.metrics()
        if path.startswith(monitoring.PATH + "?"):
            return 400, b"text/plain", f"Unexpected path: {path}".encode()
        if not re.match(r"/v1/", path, re.IGNORECASE):
            return 404, b"text/html", _NOT_FOUND
        if scope["method"] == "OPTIONS":
            known = re.match(rb"https?://", headers.get(b"origin", b""))
            return 200 if known else 400, b"text/html", b""
        try:
            answer = self._dispatch(scope["method"], path, headers, body)
        except ServingError as error:
            text = json.dumps({"error": str(error)}, indent=4).encode()
            return error.code.http_status, b"application/json", text
        return 200, b"application/json", answer

    def _page(self) -> bytes:
        names = json.dumps(self._core.names()).replace("<", r"\u003c")  # it stands in a script
        return _PAGE.read_text().replace("NAMES", names, 1).encode()

    def _dispatch(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> bytes:
        if method == "POST":
            match = _POST.fullmatch(path)
            # The path may be of any case, the verb may not.
            if match and match["verb"].islower():
                verb, target = match["verb"], _target(match)
                with self._core.observed(target[0], verb.capitalize(), "REST"):
                    return self._post(verb, target, _inflated(headers, body))
        elif method == "GET" and (match := _GET.fullmatch(path)):
            return self._metadata(match) if match["metadata"] else self._status(match)
        raise ServingError(Code.INVALID_ARGUMENT, f"Malformed request: {method} {path}")

    def _post(self, verb: str, target: Target, body: bytes) -> bytes:
        document = json_reader.read(body)
        if not isinstance(document, dict):
            raise ServingError(Code.INVALID_ARGUMENT, "Request body must be a JSON object")
        name = document.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(name, str):
            raise ServingError(
                Code.INVALID_ARGUMENT, "'signature_name' key must be a string value."
            )
        if verb == "predict":
            return self._predict(target, name, document)
        examples = json_examples.to_input(document)
        with self._core.acquire(*target) as model:
            if verb == "regress":
                return json_examples.regressions(regress(model, name, examples, TIMEOUT))
            return json_examples.classifications(classify(model, name, examples, TIMEOUT))

    def _predict(self, target: Target, name: str, document: dict[str, Any]) -> bytes:
        with self._core.acquire(*target) as model:
            signature = model.signatures.get(name or DEFAULT_SIGNATURE)
            if signature is None:
                raise ServingError(
                    Code.INVALID_ARGUMENT,
                    f'Serving signature name: "{name}" not found in signature def',
                )
            types = {alias: info.dtype for alias, info in signature.definition.inputs.items()}
            inputs = json_inputs.to_inputs(document, types)
            outputs = predict(model, signature, inputs, timeout=TIMEOUT)
        return json_outputs.to_body(outputs, rows="instances" in document)

    def _status(self, match: re.Match[str]) -> bytes:
        # A label is not looked at: the states of all versions are the answer.
        name, version, _ = _target(match)
        return _json(_as_dict(status_response(self._core, name, version)))

    def _metadata(self, match: re.Match[str]) -> bytes:
        name, version, label = _target(match)
        with self._core.acquire(name, version, label) as model:
            spec = {"name": name, "signature_name": "", "version": str(model.version)}
            metadata = {"signature_def": _as_dict(signature_map(model))}
        return _json({"model_spec": spec, "metadata": metadata})


async def _body(receive: Receive) -> bytes | None:
    """Returns the whole body, or None if the client went away."""
    parts = []
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        parts.append(event.get("body", b""))
        if not event.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflated(headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    if headers.get(b"content-encoding", b"").lower() != b"gzip":
        return body
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = inflater.decompress(body, MAX_INFLATED)
    except zlib.error as error:
        raise ServingError(Code.INVALID_ARGUMENT, f"Body is not gzip: {error}") from error
    if not inflater.eof:
        raise ServingError(
            Code.INVALID_ARGUMENT,
            f"Body must be whole gzip of at most {MAX_INFLATED} bytes. Received: cut or larger",
        )
    return text


def _target(match: re.Match[str]) -> Target:
    """Returns name, version and label of the model that a path asks for."""
    if match["name"] is None:
        raise ServingError(Code.INVALID_ARGUMENT, "Missing model name in request.")
    version = int(match["version"]) if match["version"] is not None else None
    if version is not None and version >= 2**63:
        raise ServingError(
            Code.INVALID_ARGUMENT, f"Failed to convert version: {match['version']} to numeric."
        )
    label = urllib.parse.unquote(match["label"]) if match["label"] is not None else None
    return urllib.parse.unquote(match["name"]), version, label


def _as_dict(proto: message.Message) -> dict[str, Any]:
    result: dict[str, Any] = json_format.MessageToDict(
        proto, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return result


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=4).encode()
