"""TensorFlow Serving's REST API, an ASGI application on the shared core."""

import asyncio
import functools
import json
import re
import urllib.parse
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import json_format, message

from tfrank_sel.errors import received
from tfrank_sel.serving import monitoring
from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.interleaving import session
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model, per_model
from tfrank_sel.serving.engine.predict import predict
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.grpc_services import signature_map, status_response
from tfrank_sel.serving.options import ExceededError, Limits
from tfrank_sel.serving.rest import json_reader, json_writer, page, rows_of_json
from tfrank_sel.serving.rest.connections import ANSWERED, Answered
from tfrank_sel.serving.status import SESSION, Code, ServingError, invalid

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
# status, content type and body
Answer = tuple[int, bytes, bytes]
# name, version and label of the model that a request asks for
Target = tuple[str, int | None, str | None]

# What is said while the request is not whole.
_CLOSING = (408, 413, 429, 431, 503)

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<verb>predict)", re.I)
_NOTHING = re.compile(r"(?!)")
_GET = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.I)
_MEMBERS = 256  # of a body of gzip
_PAGES: dict[str, tuple[bytes, Callable[[ServerCore], bytes]]] = {
    "/": (b"text/html; charset=utf-8", page.render_page),
    page.OPENAPI: (b"application/json", page.render_openapi),
    monitoring.PATH: (b"text/plain", ServerCore.metrics),
}
_NOT_FOUND = b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>Not Found</BODY></HTML>\n"


class RestApi:
    """The ASGI application.

    Args:
        core: Models that it serves.
        admission: Limits on requests, and threads that run them.
    """

    def __init__(self, core: ServerCore, admission: Admission) -> None:
        self._core = core
        self._admission = admission
        self._limits = admission.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, unless the client goes away."""
        connection = scope.get(ANSWERED) or Answered()
        task = asyncio.current_task()
        assert task is not None
        connection.tasks.add(task)
        try:
            if connection.is_left():
                raise _client_gone()
            status, content_type, body = await self._answer(scope, receive)
        except asyncio.CancelledError:
            if not connection.is_gone:
                raise
            return
        except ServingError as error:
            status, content_type = error.http_status, b"application/json"
            body = json.dumps({"error": str(error)}, indent=4).encode()
        finally:
            connection.tasks.discard(task)
        headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
        ]
        if status in _CLOSING:  # the rest of the request is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size + len(scope["raw_path"]) > self._limits.header_bytes:
            raise _too_long("Headers", self._limits.header_bytes, 431)
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        method, headers = scope["method"], dict(scope["headers"])
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise invalid("A request must have one header `Host`", hosts or "none")
        session.set(headers.get(SESSION.encode(), b"").decode("latin-1"))
        if path in _PAGES:
            content_type, render = _PAGES[path]
            return 200, content_type, await self._run(lambda *_: render(self._core))
        if path == monitoring.HEALTH:
            missing = ", ".join(self._core.unavailable())
            return 503 if missing else 200, b"text/plain", missing.encode() or b"ok"
        if path.startswith(monitoring.PATH + "?"):
            return 400, b"text/plain", f"Unexpected path: {path}".encode()
        if not re.match(r"/v1/", path, re.IGNORECASE):
            return 404, b"text/html", _NOT_FOUND
        match = {"POST": _POST, "GET": _GET}.get(method, _NOTHING).fullmatch(path)
        name = urllib.parse.unquote(match["name"] or "") if match else ""
        verb = match["verb"] if match and method == "POST" else ""
        with self._core.observe(verb, "REST", name):
            body = await self._body(headers, receive, scope["client"])
            # The path may be of any case, the verb may not.
            if match is None or verb != verb.lower():
                raise invalid(f"Malformed request: {method} {path}")
            work: Callable[[bytes, Limits], bytes]
            if method == "GET":
                method_of = self._metadata if match["metadata"] else self._status
                work, body = (lambda *_: method_of(match)), b""
            else:
                work = functools.partial(self._predict, _target(match))
            answer = await self._run(work, body)
        return 200, b"application/json", answer

    async def _run(self, work: Callable[[bytes, Limits], bytes], body: bytes = b"") -> bytes:
        return await self._admission.run(work, body, self._limits.run_seconds)

    async def _body(
        self, headers: Mapping[bytes, bytes], receive: Receive, connection: object
    ) -> bytes:
        """Returns the whole body, inflated."""
        limit = self._limits.body_bytes
        parts: list[bytes] = []
        size, is_whole = 0, False
        async with self._admission.receive(connection):
            while not is_whole and size <= limit:
                event = await receive()
                parts.append(event.get("body", b""))
                size += len(parts[-1])
                is_whole = not event.get("more_body", False)
        if event["type"] == "http.disconnect":
            raise _client_gone()
        body = b"".join(parts)
        if len(body) > limit:
            raise _too_long("A body", limit, 413)
        if headers.get(b"content-encoding", b"").lower() != b"gzip":
            return body
        return await self._run(_inflate, body)

    def _predict(self, target: Target, body: bytes, limits: Limits) -> bytes:
        limits.check_json(body)
        document = json_reader.Document(body)
        name = document.fields().get("signature_name", DEFAULT_SIGNATURE)
        with self._core.acquire(*target) as model:
            signature = model.signatures.get(name or DEFAULT_SIGNATURE)
            if signature is None:
                raise invalid(
                    f'Serving signature name: "{name}" not found in signature def',
                )
            types = {alias: info.dtype for alias, info in signature.definition.inputs.items()}

            def outputs_of(sent: Arrays) -> Arrays:
                for alias, array in sent.items():
                    limits.check_shape(alias, array.shape)
                return predict(model, signature, sent, timeout=limits.run_seconds)

            try:
                outputs = outputs_of(document.to_inputs(types))
            except ExceededError:
                raise
            except ServingError as error:
                inputs = rows_of_json.declared_inputs(model)
                if error.code is not Code.INVALID_ARGUMENT or not rows_of_json.has(inputs, types):
                    raise
                # values of rows, or those of which an error should name feature and item
                rows = json_reader.read_object(body)
                outputs = outputs_of(rows_of_json.to_inputs(rows, types, inputs))
        return json_writer.to_body(outputs, rows=document.is_rows)

    def _status(self, match: re.Match[str]) -> bytes:
        # A label is not looked at: the states of all versions are the answer.
        name, version, _ = _target(match)
        return _json(_as_dict(status_response(self._core, name, version)))

    def _metadata(self, match: re.Match[str]) -> bytes:
        name, version, label = _target(match)
        with self._core.acquire(name, version, label) as model:
            spec = {"name": name, "signature_name": "", "version": str(model.version)}
            metadata = {"signature_def": _signatures(model)}
        return _json({"model_spec": spec, "metadata": metadata})


def _client_gone() -> ServingError:
    return ServingError(Code.CANCELLED, "The client closed the connection")


def _too_long(what: str, limit: int, http_status: int) -> ExceededError:
    message = received(f"{what} must have at most {limit} bytes", "more")
    return ExceededError(Code.RESOURCE_EXHAUSTED, message, http_status)


def _inflate(body: bytes, limits: Limits) -> bytes:
    text = bytearray()
    for _ in range(_MEMBERS):
        inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            # one byte more than may be: 0 would be no limit
            text += inflater.decompress(body, limits.body_bytes + 1 - len(text))
        except zlib.error as error:
            raise invalid(f"Body is not gzip: {error}") from error
        if len(text) > limits.body_bytes:
            raise _too_long("A body", limits.body_bytes, 413)
        if not inflater.eof:
            raise invalid("Body must be whole gzip", "cut")
        body = inflater.unused_data.lstrip(b"\0 \t\r\n")
        if not body:
            return bytes(text)
    raise invalid(f"Body must have at most {_MEMBERS} members of gzip", "more")


def _target(match: re.Match[str]) -> Target:
    """Returns name, version and label of the model that a path asks for."""
    if match["name"] is None:
        raise invalid("Missing model name in request.")
    version: int | None = None
    if match["version"] is not None:
        digits = match["version"].lstrip("0") or "0"
        # `int` refuses thousands of digits
        if len(digits) > len(str(2**63)) or (version := int(digits)) >= 2**63:
            raise invalid(f"Failed to convert version: {match['version']} to numeric.")
    label = urllib.parse.unquote(match["label"]) if match["label"] is not None else None
    return urllib.parse.unquote(match["name"]), version, label


def _as_dict(proto: message.Message) -> dict[str, Any]:
    result: dict[str, Any] = json_format.MessageToDict(
        proto, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return result


@per_model
def _signatures(model: Model) -> dict[str, Any]:
    return _as_dict(signature_map(model))


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=4).encode()
