"""Transports of the client: the same two calls over gRPC and REST."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
from google.protobuf import json_format, message

from tfrank_sel.errors import received, refusal
from tfrank_sel.http_client import ADDRESS, MISFORMED, Client, one_line, quote
from tfrank_sel.serving import protos
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.rest import json_reader
from tfrank_sel.serving.status import Code, ServingError

_ANY_SIZE = -1
# A server that starts, changes versions or has too much to do is asked again, and so is one that
# cancels a call; other errors are not retried.
_TRIES = 4
_RETRY = {
    "maxAttempts": _TRIES,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
# what reading another message raises; protobuf raises the last for half a character
_MISFORMED = (*MISFORMED, json_format.Error, message.Error, SystemError)
_SERVICE = "tensorflow.serving.PredictionService"


class _Transport:
    """Calls of one model on one server.

    Args:
        address: Address of the server.
        model_name: Name of the model on the server.
        timeout: Maximum time of a request in seconds.
    """

    def __init__(self, address: str, model_name: str, timeout: float) -> None:
        self.address = address
        self.model_name = model_name
        self.timeout = timeout

    def error(self, code: Code, message: str) -> ServingError:
        """Returns an error that names the server."""
        return ServingError(code, f"{self.address}: {code.name}: {one_line(message)}")

    @contextlib.contextmanager
    def _reads(self, expected: str) -> Iterator[None]:
        """Turns what an answer of another form raises into an error that names the server."""
        try:
            yield
        except (*_MISFORMED, ServingError) as error:
            reason = error if isinstance(error, ServingError) else repr(error)
            raise self.error(Code.INTERNAL, received(expected, reason)) from error


class Grpc(_Transport):
    """gRPC; the address is `HOST:PORT`."""

    def open(self, authority: bytes | None) -> None:
        """Opens the connection, plain without the PEM of the authority of the server."""
        methods = [{"name": [{"service": _SERVICE}], "retryPolicy": _RETRY}]
        options = [
            ("grpc.max_receive_message_length", _ANY_SIZE),
            ("grpc.max_send_message_length", _ANY_SIZE),
            ("grpc.service_config", json.dumps({"methodConfig": methods})),
        ]
        if authority is None:
            self._channel = grpc.insecure_channel(self.address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(authority)
            self._channel = grpc.secure_channel(self.address, credentials, options=options)

    def predict(
        self,
        signature: str,
        inputs: Arrays,
        types: Mapping[str, int],
        headers: Mapping[str, str] = {},
    ) -> Arrays:
        """Runs a signature.

        Args:
            signature: Its name.
            inputs: Its inputs.
            types: Name and type (DT_...) of each requested output.
            headers: Headers of the request, metadata in gRPC.

        Returns:
            These outputs.

        Raises:
            ServingError: If the server cannot be reached or refuses the request.
        """
        request = protos.PredictRequest(output_filter=types)
        request.model_spec.name = self.model_name
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            tensor_protos.to_proto(array, request.inputs[name])
        outputs = self._call("Predict", request, protos.PredictResponse, headers).outputs
        with self._reads(f"An answer must have the outputs {', '.join(types)}"):
            for name, dtype in types.items():
                if outputs[name].dtype != dtype:
                    raise refusal(f"{name} must be of type {dtype}", outputs[name].dtype)
            return {name: tensor_protos.to_array(name, outputs[name]) for name in types}

    def signature(self, name: str) -> Any:
        """Returns the declaration of a signature; empty if there is none.

        Raises:
            ServingError: If the server cannot be reached or has no such model.
        """
        request = protos.MetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self.model_name
        response = self._call("GetModelMetadata", request, protos.MetadataResponse)
        with self._reads("An answer must have signatures"):
            signatures = protos.Signatures.FromString(response.metadata["signature_def"].value)
        return signatures.signature_def[name]

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _call(
        self, method: str, request: Any, answer: type[Any], headers: Mapping[str, str] = {}
    ) -> Any:
        # gRPC would log what cannot be parsed, with a traceback
        ask = self._channel.unary_unary(
            f"/{_SERVICE}/{method}", type(request).SerializeToString, bytes
        )
        try:
            octets = ask(request, timeout=self.timeout, metadata=(*headers.items(),))
        except grpc.RpcError as error:
            raise self.error(Code(error.code().value[0]), str(error.details())) from error
        with self._reads(f"An answer must be that of {method}"):
            return answer.FromString(octets)


class Rest(_Transport):
    """REST; the address is `http://HOST:PORT` or `https://HOST:PORT`."""

    def open(self, authority: bytes | None) -> None:
        """Opens the connection, by HTTPS with an authority or those of this machine."""
        self._client = Client(self.address, self.timeout, authority=authority, tries=_TRIES)
        self._path = f"/v1/models/{quote(self.model_name)}"

    def predict(
        self,
        signature: str,
        inputs: Arrays,
        types: Mapping[str, int],
        headers: Mapping[str, str] = {},
    ) -> Arrays:
        """Runs a signature, as `Grpc.predict`."""
        columns = {name: _plain(array.tolist()) for name, array in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        answer = self._ask("POST", f"{self._path}:predict", body, headers)
        with self._reads(f"An answer must have the outputs {', '.join(types)}"):
            return json_reader.to_inputs({"inputs": answer["outputs"]}, types)

    def signature(self, name: str) -> Any:
        """Returns the declaration of a signature, as `Grpc.signature`."""
        answer = self._ask("GET", f"{self._path}/metadata")
        with self._reads("An answer must have signatures"):
            signature = answer["metadata"]["signature_def"]["signature_def"].get(name, {})
            return json_format.ParseDict(signature, protos.Signature(), ignore_unknown_fields=True)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        try:
            answer = self._client.ask(method, path, body, headers)
        except TimeoutError as error:
            raise self.error(Code.DEADLINE_EXCEEDED, str(error)) from error
        except ConnectionError as error:
            raise self.error(Code.UNAVAILABLE, str(error)) from error
        except ValueError as error:
            raise self.error(Code.INTERNAL, str(error)) from error
        if answer.status != Code.OK.http_status:
            raise self.error(Code.of_http(answer.status), answer.reason)
        with self._reads("An answer must be JSON"):
            return json_reader.read_object(answer.content)


def connect(
    address: str, model_name: str, timeout: float, authority: bytes | None = None
) -> Grpc | Rest:
    """Returns the transport for an address: REST for `http://...`, otherwise gRPC.

    Args:
        address: Address of the server.
        model_name: Name of the model on the server.
        timeout: Maximum time of a request in seconds.
        authority: PEM of the certificate authority of the server; None for plain gRPC, and for
            HTTPS with the authorities of this machine.

    Raises:
        ValueError: If the address has a user, or is no URL of a server.
    """
    is_rest = address.lower().startswith(("http://", "https://"))
    if "@" in address or (is_rest and not ADDRESS.fullmatch(address)):
        shown = "one with `@`" if "@" in address else address
        raise refusal("`address` must be HOST:PORT or http://HOST:PORT, without a password", shown)
    of_server = address.rstrip("/"), model_name, timeout
    transport = Rest(*of_server) if is_rest else Grpc(*of_server)
    transport.open(authority)
    return transport


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value
