"""TensorFlow Serving's gRPC services, on the shared core."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, message as protobuf
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.interleaving import session
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model
from tfrank_sel.serving.engine.predict import predict, regress, serialize_examples, signature_of
from tfrank_sel.serving.monitoring import Observation
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.status import SESSION, Code, ServingError, invalid, map_errors

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
_ANY_SIZE = -1
_YEAR = 365 * 24 * 3600.0
_EARLY = 0.02  # seconds by which a client may give up before its deadline as seen here
_OUTLINED = 2**14  # bytes of a request whose axes are counted before it is parsed
_STREAMS = 128  # calls of one connection at a time


@dataclasses.dataclass(frozen=True)
class _Rpc:
    """A method: its request, what answers it in how many seconds, whether it is counted or slow."""

    request: type[protobuf.Message]
    answer: Callable[[Any, float, Limits], protobuf.Message]
    is_counted: bool = False
    is_slow: bool = False


def create_server(core: ServerCore, admission: Admission) -> grpc.aio.Server:
    """Returns a gRPC server of the services, without a port and not started.

    Args:
        core: Models that it serves.
        admission: Limits on requests, and threads that run them.
    """
    limits = admission.limits
    options = [
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_send_message_length", _ANY_SIZE),
        ("grpc.max_concurrent_streams", _STREAMS),
        # Otherwise a second server could take the same port, and half of its requests.
        ("grpc.so_reuseport", 0),
    ]
    # Calls of clients that go away are counted, not logged with a traceback each.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers([Services(core, admission)])
    return server


class Services(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """`PredictionService` and `ModelService` of TensorFlow Serving, and gRPC's health check.

    Requests arrive as streams of one message, because a handler of a stream receives the message
    itself: it can set a deadline, and parse the message in a thread.

    Args:
        core: Models that it serves.
        admission: Limits on requests, and threads that run them.
    """

    def __init__(self, core: ServerCore, admission: Admission) -> None:
        self._core = core
        self._admission = admission
        prediction = "/tensorflow.serving.PredictionService/"
        models = "/tensorflow.serving.ModelService/"
        self._methods = {
            f"{prediction}Predict": _Rpc(predict_pb2.PredictRequest, self._predict, True),
            f"{prediction}Regress": _Rpc(regression_pb2.RegressionRequest, self._regress, True),
            f"{prediction}GetModelMetadata": _Rpc(
                get_model_metadata_pb2.GetModelMetadataRequest, self._metadata
            ),
            f"{models}GetModelStatus": _Rpc(
                get_model_status_pb2.GetModelStatusRequest, self._status
            ),
            f"{models}HandleReloadConfigRequest": _Rpc(
                model_management_pb2.ReloadConfigRequest, self._reload, is_slow=True
            ),
            "/grpc.health.v1.Health/Check": _Rpc(health_pb2.HealthCheckRequest, _health),
        }

    def service(
        self, details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """Returns the handler of a method, or None for an unknown one."""
        method = self._methods.get(details.method)
        if method is None:
            return None
        api = details.method.rpartition("/")[2]

        async def handle(
            messages: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]"
        ) -> bytes:
            try:
                return await self._answer(api, method, messages, context)
            except ServingError as error:
                code, message = error.code, str(error)
            await context.abort(_STATUS_CODES[int(code)], message)
            # `abort` raises, so this line is never reached.
            raise AssertionError

        return grpc.stream_unary_rpc_method_handler(handle)

    async def _answer(
        self,
        api: str,
        method: _Rpc,
        messages: AsyncIterator[bytes],
        context: "grpc.aio.ServicerContext[bytes, bytes]",
    ) -> bytes:
        limits, seconds = self._admission.limits, _seconds(context)
        if seconds is None:
            seconds = _YEAR if method.is_slow else limits.run_seconds
        due = time.monotonic() + seconds

        def work(body: bytes, limits: Limits) -> bytes:
            if method.request is predict_pb2.PredictRequest and len(body) > _OUTLINED:
                tensor_protos.check_axes(body, limits)
            request = method.request.FromString(body)
            seen.model_name = self._core.served_name(_model_name(request))
            response = method.answer(request, max(0.001, due - time.monotonic()), limits)
            return response.SerializeToString()

        session.set(str(dict(context.invocation_metadata() or ()).get(SESSION, "")))
        observed = self._core.observe if method.is_counted else _observe_uncounted
        with observed(api, "GRPC") as seen:
            async with self._admission.receive(context.peer()):
                body = await anext(messages, None)
            if body is None:
                raise invalid("A call must send a message", "none")
            try:
                return await self._admission.run(
                    work, body, due - time.monotonic(), is_slow=method.is_slow
                )
            except asyncio.CancelledError as error:
                if due - time.monotonic() > _EARLY:
                    raise
                # The client's clock was first. That the server was late is what is counted.
                message = f"The request must be answered in {seconds:.3g} seconds"
                raise ServingError(Code.DEADLINE_EXCEEDED, message) from error

    def _predict(
        self, request: predict_pb2.PredictRequest, seconds: float, limits: Limits
    ) -> predict_pb2.PredictResponse:
        with self._acquire(request) as model:
            signature = signature_of(model, request.model_spec.signature_name)
            sent = tensor_protos.to_arrays(request.inputs, limits)
            outputs = predict(model, signature, sent, request.output_filter, seconds)
            response = predict_pb2.PredictResponse(model_spec=_spec(request, model, signature.name))
            for alias, array in outputs.items():
                tensor_protos.to_proto(array, response.outputs[alias])
            return response

    def _regress(
        self, request: regression_pb2.RegressionRequest, seconds: float, limits: Limits
    ) -> regression_pb2.RegressionResponse:
        rows = serialize_examples(request.input, limits)
        with self._acquire(request) as model:
            name = request.model_spec.signature_name or DEFAULT_SIGNATURE
            result = regress(model, name, rows, seconds)
            spec = _spec(request, model, name)
            return regression_pb2.RegressionResponse(model_spec=spec, result=result)

    def _metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, *_: Any
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid(f"Metadata field {field} is not supported")
        with self._acquire(request) as model:
            packed = any_pb2.Any()
            packed.Pack(signature_map(model))
            return get_model_metadata_pb2.GetModelMetadataResponse(
                model_spec=_spec(request, model, ""), metadata={"signature_def": packed}
            )

    def _status(
        self, request: get_model_status_pb2.GetModelStatusRequest, *_: Any
    ) -> get_model_status_pb2.GetModelStatusResponse:
        return status_response(self._core, request.model_spec.name, _version(request))

    def _reload(
        self, request: model_management_pb2.ReloadConfigRequest, *_: Any
    ) -> model_management_pb2.ReloadConfigResponse:
        self._core.request(model_config.of_proto(request.config))
        return model_management_pb2.ReloadConfigResponse()

    def _acquire(self, request: Any) -> contextlib.AbstractContextManager[Model]:
        version, spec = _version(request), request.model_spec
        label = spec.version_label if spec.WhichOneof("version_choice") == "version_label" else None
        return self._core.acquire(spec.name, version, label)


def signature_map(model: Model) -> get_model_metadata_pb2.SignatureDefMap:
    """Returns the declarations of all signatures of a model."""
    return get_model_metadata_pb2.SignatureDefMap(signature_def=model.definitions)


def status_response(
    core: ServerCore, name: str, version: int | None
) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the states of one version, or of all versions of a model, latest first.

    Raises:
        ServingError: NOT_FOUND if there is none.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for status in core.statuses(name, version):
        entry = response.model_version_status.add(version=status.version, state=int(status.state))
        entry.status.error_code = int(status.code)
        entry.status.error_message = status.message
    return response


def _health(*_: Any) -> health_pb2.HealthCheckResponse:
    return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


def _model_name(request: Any) -> str:
    return request.model_spec.name if hasattr(request, "model_spec") else ""


@contextlib.contextmanager
def _observe_uncounted(api: str, entrypoint: str) -> Iterator[Observation]:
    """Maps errors as `ServerCore.observe`, for calls that TensorFlow Serving does not count."""
    with map_errors():
        yield Observation("")


def _seconds(context: "grpc.aio.ServicerContext[bytes, bytes]") -> float | None:
    """Returns the seconds left, or None if the client set no deadline: gRPC says centuries then."""
    remaining: float | None = context.time_remaining()
    return remaining if remaining is not None and remaining < _YEAR else None


def _version(request: Any) -> int | None:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    return spec.version.value if spec.HasField("version") else None


def _spec(request: Any, model: Model, signature: str) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=request.model_spec.name, signature_name=signature)
    spec.version.value = model.version
    return spec
