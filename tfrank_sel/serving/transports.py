"""Transports of the client: the same two calls over gRPC and REST."""

import abc
import base64
import json
import ssl
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np
import urllib3
from google.protobuf import json_format

from tfrank_sel.refusals import received
from tfrank_sel.serving import protos
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.rest import json_reader
from tfrank_sel.serving.status import Code, ServingError

_ANY_SIZE = -1
# A server that starts, changes versions or has too much to do is asked again, and so is one that
# cancels a call; other errors are not retried.
_TRIES = 4
_WAIT = 0.1
_RETRY = {
    "maxAttempts": _TRIES,
    "initialBackoff": f"{_WAIT}s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
_SERVICE = "tensorflow.serving.PredictionService"


class Transport(abc.ABC):
    """Calls of one model on one server.

    Args:
        address: Address of the server.
        model_name: Name of the model on the server.
        timeout: Maximum time of a request in seconds.
        authority: PEM of the certificate authority of the server; None for plain gRPC, and for
            HTTPS with the authorities of this machine.
    """

    def __init__(
        self, address: str, model_name: str, timeout: float, authority: bytes | None
    ) -> None:
        self.address = address
        self.model_name = model_name
        self.timeout = timeout

    @abc.abstractmethod
    def predict(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        types: Mapping[str, int],
        headers: Mapping[str, str] = {},
    ) -> dict[str, np.ndarray]:
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

    @abc.abstractmethod
    def signature(self, name: str) -> Any:
        """Returns the declaration of a signature; empty if there is none.

        Raises:
            ServingError: If the server cannot be reached or has no such model.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connection."""

    def error(self, code: Code, message: str) -> ServingError:
        """Returns an error that names the server."""
        return ServingError(code, f"{self.address}: {code.name}: {message}")


class Grpc(Transport):
    """gRPC; the address is `HOST:PORT`."""

    def __init__(
        self, address: str, model_name: str, timeout: float, authority: bytes | None
    ) -> None:
        super().__init__(address, model_name, timeout, authority)
        methods = [{"name": [{"service": _SERVICE}], "retryPolicy": _RETRY}]
        options = [
            ("grpc.max_receive_message_length", _ANY_SIZE),
            ("grpc.max_send_message_length", _ANY_SIZE),
            ("grpc.service_config", json.dumps({"methodConfig": methods})),
        ]
        if authority is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(authority)
            self._channel = grpc.secure_channel(address, credentials, options=options)

    def predict(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        types: Mapping[str, int],
        headers: Mapping[str, str] = {},
    ) -> dict[str, np.ndarray]:
        request = protos.PredictRequest(output_filter=types)
        request.model_spec.name = self.model_name
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            tensor_protos.to_proto(array, request.inputs[name])
        outputs = self._call("Predict", request, protos.PredictResponse, headers).outputs
        return {name: tensor_protos.to_array(name, outputs[name]) for name in types}

    def signature(self, name: str) -> Any:
        request = protos.MetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self.model_name
        response = self._call("GetModelMetadata", request, protos.MetadataResponse)
        signatures = protos.Signatures.FromString(response.metadata["signature_def"].value)
        return signatures.signature_def[name]

    def close(self) -> None:
        self._channel.close()

    def _call(
        self, method: str, request: Any, answer: type[Any], headers: Mapping[str, str] = {}
    ) -> Any:
        ask = self._channel.unary_unary(
            f"/{_SERVICE}/{method}", type(request).SerializeToString, answer.FromString
        )
        try:
            return ask(request, timeout=self.timeout, metadata=(*headers.items(),))
        except grpc.RpcError as error:
            raise self.error(Code(error.code().value[0]), str(error.details())) from error


class Rest(Transport):
    """REST; the address is `http://HOST:PORT` or `https://HOST:PORT`."""

    def __init__(
        self, address: str, model_name: str, timeout: float, authority: bytes | None
    ) -> None:
        super().__init__(address, model_name, timeout, authority)
        retries = urllib3.Retry(
            _TRIES - 1,
            read=False,
            backoff_factor=_WAIT,
            status_forcelist=[Code.UNAVAILABLE.http_status],
            allowed_methods=None,
            raise_on_status=False,
        )
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        self._pool = urllib3.PoolManager(retries=retries, timeout=timeout, ssl_context=context)
        self._url = f"{address}/v1/models/{model_name}"

    def predict(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        types: Mapping[str, int],
        headers: Mapping[str, str] = {},
    ) -> dict[str, np.ndarray]:
        columns = {name: _plain(array.tolist()) for name, array in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        outputs = self._ask("POST", f"{self._url}:predict", body, headers)["outputs"]
        return json_reader.to_inputs({"inputs": outputs}, types)

    def signature(self, name: str) -> Any:
        answer = self._ask("GET", f"{self._url}/metadata")
        signature = answer["metadata"]["signature_def"]["signature_def"].get(name, {})
        return json_format.ParseDict(signature, protos.Signature(), ignore_unknown_fields=True)

    def close(self) -> None:
        self._pool.clear()

    def _ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        try:
            response = self._pool.request(method, url, body=body, headers=headers)
        except urllib3.exceptions.TimeoutError as error:
            raise self.error(Code.DEADLINE_EXCEEDED, str(error)) from error
        except urllib3.exceptions.HTTPError as error:
            raise self.error(Code.UNAVAILABLE, str(error)) from error
        if response.status != Code.OK.http_status:
            raise self.error(Code.of_http(response.status), _reason(response.data))
        try:
            return json_reader.read_object(response.data)
        except ServingError as error:
            raise self.error(Code.INTERNAL, received("An answer must be JSON", error)) from error


def connect(
    address: str, model_name: str, timeout: float, authority: bytes | None = None
) -> Transport:
    """Returns the transport for an address: REST for `http://...`, otherwise gRPC."""
    is_rest = address.startswith(("http://", "https://"))
    return (Rest if is_rest else Grpc)(address.rstrip("/"), model_name, timeout, authority)


def _reason(body: bytes) -> str:
    """Returns the message of an error: JSON from a model server, plain text from a proxy."""
    try:
        return str(json_reader.read_object(body)["error"])
    except (ServingError, KeyError):
        return body.decode("utf-8", "replace").strip()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value
