"""TensorFlow Serving's gRPC services, on the shared core."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import any_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.engine import inference, tensor_protos
from tfrank_sel.serving.engine.core import ServerCore
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model
from tfrank_sel.serving.engine.predict import predict, signature_of
from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.status import ServingError, invalid

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
_ANY_SIZE = -1
_YEAR = 365 * 24 * 3600.0


def create_server(core: ServerCore, limits: Limits, *, threads: int = 32) -> grpc.Server:
    """Returns a gRPC server of the services, without a port and not started.

    Args:
        core: What it serves.
        limits: What it takes from clients.
        threads: How many requests run at a time. One that a client is slow to send occupies a
            thread, too.
    """
    options = [
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_metadata_size", limits.header_bytes),
        ("grpc.absolute_max_metadata_size", limits.header_bytes),
        ("grpc.max_send_message_length", _ANY_SIZE),
        # Otherwise a second server could take the same port, and half of its requests.
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.server(
        futures.ThreadPoolExecutor(threads, "grpc"),
        options=options,
        maximum_concurrent_rpcs=limits.requests,
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(core), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(core), server)
    servicer = health.HealthServicer()
    for service in ("", "PredictionService", "ModelService"):
        servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return server


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    """`tensorflow.serving.PredictionService`.

    Args:
        core: What it serves.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    def Predict(  # noqa: N802
        self, request: predict_pb2.PredictRequest, context: grpc.ServicerContext
    ) -> predict_pb2.PredictResponse:
        """Runs a signature."""
        with (
            _observed(self._core, context, request.model_spec.name, "Predict"),
            _acquired(self._core, request) as model,
        ):
            signature = signature_of(model, request.model_spec.signature_name)
            sent = {k: tensor_protos.to_array(k, v) for k, v in request.inputs.items()}
            outputs = predict(model, signature, sent, request.output_filter, _timeout(context))
            spec = _spec(request, model, signature.name)
            response = predict_pb2.PredictResponse(model_spec=spec)
            for alias, array in outputs.items():
                tensor_protos.to_proto(array, response.outputs[alias])
            return response

    def Classify(  # noqa: N802
        self, request: classification_pb2.ClassificationRequest, context: grpc.ServicerContext
    ) -> classification_pb2.ClassificationResponse:
        """Runs a classification on examples."""
        answer = classification_pb2.ClassificationResponse
        return self._infer(request, context, "Classify", inference.classify, answer)

    def Regress(  # noqa: N802
        self, request: regression_pb2.RegressionRequest, context: grpc.ServicerContext
    ) -> regression_pb2.RegressionResponse:
        """Runs a regression on examples."""
        answer = regression_pb2.RegressionResponse
        return self._infer(request, context, "Regress", inference.regress, answer)

    def MultiInference(  # noqa: N802
        self, request: inference_pb2.MultiInferenceRequest, context: grpc.ServicerContext
    ) -> inference_pb2.MultiInferenceResponse:
        """Runs several regressions and classifications on the same examples."""
        name = request.tasks[0].model_spec.name if request.tasks else ""
        with _observed(self._core, context, name, "MultiInference"):
            inference.check_models(request)
            with _acquired(self._core, request.tasks[0]) as model:
                results = inference.multi_inference(model, request, _timeout(context))
                for task, result in zip(request.tasks, results, strict=True):
                    name = task.model_spec.signature_name or DEFAULT_SIGNATURE
                    result.model_spec.CopyFrom(_spec(task, model, name))
                return inference_pb2.MultiInferenceResponse(results=results)

    def _infer(
        self,
        request: Any,
        context: grpc.ServicerContext,
        api: str,
        run: Callable[..., Any],
        answer: type,
    ) -> Any:
        with (
            _observed(self._core, context, request.model_spec.name, api),
            _acquired(self._core, request) as model,
        ):
            name = request.model_spec.signature_name or DEFAULT_SIGNATURE
            result = run(model, name, request.input, _timeout(context))
            return answer(model_spec=_spec(request, model, name), result=result)

    def GetModelMetadata(  # noqa: N802
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Tells a model's signatures."""
        with _errors(context):
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            if not request.metadata_field:
                raise invalid(
                    "GetModelMetadataRequest must specify at least one metadata_field",
                )
            for field in request.metadata_field:
                if field != "signature_def":
                    raise invalid(f"Metadata field {field} is not supported")
            with _acquired(self._core, request) as model:
                response = get_model_metadata_pb2.GetModelMetadataResponse(
                    model_spec=_spec(request, model, "")
                )
                packed = any_pb2.Any()
                packed.Pack(signature_map(model))
                response.metadata["signature_def"].CopyFrom(packed)
                return response


class Models(model_service_pb2_grpc.ModelServiceServicer):
    """`tensorflow.serving.ModelService`.

    Args:
        core: What it serves.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    def GetModelStatus(  # noqa: N802
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Tells the states of a model's versions."""
        with _errors(context):
            if not request.HasField("model_spec"):
                raise invalid("Missing ModelSpec")
            return status_response(self._core, request.model_spec.name, _version(request))

    def HandleReloadConfigRequest(  # noqa: N802
        self,
        request: model_management_pb2.ReloadConfigRequest,
        context: grpc.ServicerContext,
    ) -> model_management_pb2.ReloadConfigResponse:
        """Serves other models, or other versions and labels of them."""
        with _errors(context):
            self._core.reload(model_config.of_proto(request.config))
            return model_management_pb2.ReloadConfigResponse()


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


@contextlib.contextmanager
def _errors(context: grpc.ServicerContext) -> Iterator[None]:
    """Ends the call with the code and text of an error."""
    try:
        yield
    except ServingError as error:
        context.abort(_STATUS_CODES[int(error.code)], str(error))


@contextlib.contextmanager
def _observed(
    core: ServerCore, context: grpc.ServicerContext, name: str, api: str
) -> Iterator[None]:
    """Counts and measures the call, too."""
    with _errors(context), core.observed(name, api, "GRPC"):
        yield


def _acquired(core: ServerCore, request: Any) -> contextlib.AbstractContextManager[Model]:
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    label = spec.version_label if spec.WhichOneof("version_choice") == "version_label" else None
    return core.acquire(spec.name, _version(request), label)


def _timeout(context: grpc.ServicerContext) -> float | None:
    """Returns the seconds left, or None if the client set no deadline: gRPC says centuries then."""
    remaining = context.time_remaining()
    return remaining if remaining is not None and remaining < _YEAR else None


def _version(request: Any) -> int | None:
    spec = request.model_spec
    return spec.version.value if spec.HasField("version") else None


def _spec(request: Any, model: Model, signature: str) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=request.model_spec.name, signature_name=signature)
    spec.version.value = model.version
    return spec
