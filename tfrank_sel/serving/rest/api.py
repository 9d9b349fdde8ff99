"""TensorFlow Serving's REST API, as a bare ASGI application on the shared core."""

import asyncio
import importlib.resources
import json
import re
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import json_format, message
from tensorflow.core.protobuf import meta_graph_pb2

from tfrank_sel.serving import manifest, monitoring
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.inference import classify, regress
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE
from tfrank_sel.serving.engine.predict import predict
from tfrank_sel.serving.grpc_services import signature_map, status_response
from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.rest import json_examples, json_numbers, json_outputs, json_reader
from tfrank_sel.serving.status import ServingError, invalid

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# status, content type and body
Answer = tuple[int, bytes, bytes]
# name, version and label of the model that a request asks for
Target = tuple[str, int | None, str | None]

# A request may not take longer than this, in seconds.
TIMEOUT = 30.0
# What is said while the request is not whole.
_CLOSING = (408, 413, 429, 431)
_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]

_PAGE = importlib.resources.files(__package__) / "page.html"
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
        limits: What it takes from clients.
        cors: Whether pages from elsewhere may ask.
    """

    def __init__(self, core: ServerCore, limits: Limits, *, cors: bool = False) -> None:
        self._core = core
        self._limits = limits
        self._cors = _CORS if cors else []
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        self._running += 1
        try:
            answer = await self._read_and_answer(scope, receive)
        finally:
            self._running -= 1
        if answer is None:
            return
        status, content_type, body = answer
        headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
            *self._cors,
        ]
        if status in _CLOSING:  # the rest of the request is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _read_and_answer(self, scope: Scope, receive: Receive) -> Answer | None:
        """Returns the answer, or None if the client went away."""
        if self._running > self._limits.requests:
            return _error(429, f"At most {self._limits.requests} requests run at a time")
        if (
            sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"])
            > self._limits.header_bytes
        ):
            return _error(431, f"Headers must have at most {self._limits.header_bytes} bytes")
        try:
            body = await _body(receive, self._limits)
        except TimeoutError:
            return _error(408, f"A request must come in {self._limits.send_seconds} seconds")
        except _TooLongError as error:
            return _error(413, str(error))
        if body is None:
            return None
        return self._answer(scope, body)

    def _answer(self, scope: Scope, body: bytes) -> Answer:
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
            return _error(error.code.http_status, str(error))
        except _TooLongError as error:
            return _error(413, str(error))
        return 200, b"application/json", answer

    def _page(self) -> bytes:
        models = {name: self._takes(name) for name in self._core.names()}
        text = json.dumps(models).replace("<", r"\u003c")  # it stands in a script
        return _PAGE.read_text().replace("MODELS", text, 1).encode()

    def _takes(self, name: str) -> dict[str, Any]:
        """Returns what the latest version of a model takes, as far as it is known."""
        try:
            with self._core.acquire(name, None, None) as model:
                signature = model.definitions.get("predict", meta_graph_pb2.SignatureDef())
                told = manifest.read(model.path) if (model.path / manifest.PATH).exists() else {}
                return manifest.takes(signature, told).config()
        except (ServingError, OSError, ValueError):
            return manifest.Takes(None, {}).config()

    def _dispatch(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> bytes:
        if method == "POST":
            match = _POST.fullmatch(path)
            # The path may be of any case, the verb may not.
            if match and match["verb"].islower():
                verb, target = match["verb"], _target(match)
                with self._core.observed(target[0], verb.capitalize(), "REST"):
                    return self._post(
                        verb, target, _inflated(headers, body, self._limits.request_bytes)
                    )
        elif method == "GET" and (match := _GET.fullmatch(path)):
            return self._metadata(match) if match["metadata"] else self._status(match)
        raise invalid(f"Malformed request: {method} {path}")

    def _post(self, verb: str, target: Target, body: bytes) -> bytes:
        document: json_numbers.Document | dict[str, Any]
        if verb == "predict":
            document = json_numbers.Document(body)
        else:
            document = json_reader.read_object(body)
        name = document.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(name, str):
            raise invalid("'signature_name' key must be a string value.")
        if isinstance(document, json_numbers.Document):
            return self._predict(target, name, document)
        examples = json_examples.to_input(document)
        with self._core.acquire(*target) as model:
            if verb == "regress":
                return json_examples.regressions(regress(model, name, examples, TIMEOUT))
            return json_examples.classifications(classify(model, name, examples, TIMEOUT))

    def _predict(self, target: Target, name: str, document: json_numbers.Document) -> bytes:
        with self._core.acquire(*target) as model:
            signature = model.signatures.get(name or DEFAULT_SIGNATURE)
            if signature is None:
                raise invalid(
                    f'Serving signature name: "{name}" not found in signature def',
                )
            types = {alias: info.dtype for alias, info in signature.definition.inputs.items()}
            outputs = predict(model, signature, document.to_inputs(types), timeout=TIMEOUT)
        return json_outputs.to_body(outputs, rows=document.is_rows)

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


class _TooLongError(Exception):
    """A body, as it came or inflated, has more bytes than a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"A body must have at most {limit} bytes. Received: more")


def _error(status: int, message: str) -> Answer:
    return status, b"application/json", json.dumps({"error": message}, indent=4).encode()


async def _body(receive: Receive, limits: Limits) -> bytes | None:
    """Returns the whole body, or None if the client went away."""
    event = await receive()
    if event["type"] == "http.request" and not event.get("more_body", False):
        first: bytes = event.get("body", b"")
        if len(first) > limits.request_bytes:
            raise _TooLongError(limits.request_bytes)
        return first
    parts, size = [], 0
    async with asyncio.timeout(limits.send_seconds):
        while event["type"] != "http.disconnect":
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > limits.request_bytes:
                raise _TooLongError(limits.request_bytes)
            if not event.get("more_body", False):
                return b"".join(parts)
            event = await receive()
    return None


def _inflated(headers: Mapping[bytes, bytes], body: bytes, limit: int) -> bytes:
    if headers.get(b"content-encoding", b"").lower() != b"gzip":
        return body
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = inflater.decompress(body, limit)
    except zlib.error as error:
        raise invalid(f"Body is not gzip: {error}") from error
    if inflater.unconsumed_tail:
        raise _TooLongError(limit)
    if not inflater.eof:
        raise invalid("Body must be whole gzip. Received: cut")
    return text


def _target(match: re.Match[str]) -> Target:
    """Returns name, version and label of the model that a path asks for."""
    if match["name"] is None:
        raise invalid("Missing model name in request.")
    version = int(match["version"]) if match["version"] is not None else None
    if version is not None and version >= 2**63:
        raise invalid(f"Failed to convert version: {match['version']} to numeric.")
    label = urllib.parse.unquote(match["label"]) if match["label"] is not None else None
    return urllib.parse.unquote(match["name"]), version, label


def _as_dict(proto: message.Message) -> dict[str, Any]:
    result: dict[str, Any] = json_format.MessageToDict(
        proto, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return result


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=4).encode()
