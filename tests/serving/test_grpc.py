import re
import time

import grpc
import numpy as np
import pytest
import urllib3
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow.core.framework import tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    regression_pb2,
)

from tfrank_sel.serving import monitoring

X = np.array([2.0, 4.0], np.float32)


def array_of(response, name="y"):
    return np.array(response.outputs[name].float_val, np.float32)


def test_the_latest_version_answers_unless_another_is_named(client):
    latest, first = client.predict(x=X), client.predict(version=1, x=X)

    assert array_of(latest).tolist() == [4.0, 5.0]
    assert array_of(first).tolist() == [3.0, 4.0]
    assert (latest.model_spec.version.value, first.model_spec.version.value) == (2, 1)
    assert latest.model_spec.signature_name == "serving_default"


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_shapes_survive(client, shape):
    response = client.predict(version=1, x=np.zeros(shape, np.float32))

    y = response.outputs["y"]
    assert tuple(dim.size for dim in y.tensor_shape.dim) == shape
    assert y.HasField("tensor_shape")
    assert list(y.float_val) == [2.0] * int(np.prod(shape))


def test_types_survive(client):
    sent = {
        "i32": np.array([-(2**31)], np.int32),
        "i64": np.array([2**53 + 1], np.int64),
        "u8": np.array([255], np.uint8),
        "f64": np.array([0.1]),
        "flag": np.array([True]),
    }
    request = client.request(signature="types", **sent)

    assert dict(client.stub.Predict(request).outputs) == dict(request.inputs)


def test_values_stand_in_content_or_in_a_short_list(client):
    request = client.request(x=X)
    x = request.inputs["x"]
    x.ClearField("float_val")
    x.tensor_content = X.tobytes()
    assert array_of(client.stub.Predict(request)).tolist() == [4.0, 5.0]

    x.tensor_content = b""
    x.float_val.append(2.0)  # repeated
    assert array_of(client.stub.Predict(request)).tolist() == [4.0, 4.0]


def test_an_input_with_a_default_may_be_left_out(client):
    assert array_of(client.predict(signature="with_default", x=X)).tolist() == [4.0, 8.0]


def test_a_filter_chooses_outputs(client):
    inputs = {"a": np.ones([1, 2], np.float32), "b": np.array([b"\xff"], object)}
    response = client.predict(signature="multi", output_filter=["echo"], **inputs)

    assert list(response.outputs) == ["echo"]
    assert list(response.outputs["echo"].string_val) == [b"\xff"]


@pytest.mark.parametrize(
    ("request_of", "code", "message"),
    [
        ({"name": "foo"}, "NOT_FOUND", r"Servable not found for request: Latest\(foo\)"),
        ({"version": 9}, "NOT_FOUND", r"Specific\(half, 9\)"),
        ({"name": ""}, "INVALID_ARGUMENT", "no name"),
        ({"signature": "no"}, "FAILED_PRECONDITION", 'Serving signature key "no" not found.'),
        ({"z": X}, "INVALID_ARGUMENT", r"2!=1 len\({x,z}\) != len\({x}\). Sent extra: {z}"),
        ({"signature": "multi"}, "INVALID_ARGUMENT", "Missing but required: {a,b}"),
        (
            {"x": X.astype(np.float64)},
            "INVALID_ARGUMENT",
            "must be float32 of any shape. R",
        ),
        ({"output_filter": ["z"]}, "INVALID_ARGUMENT", "alias not found in signature: z"),
        ({"output_filter": ["y", "y"]}, "INVALID_ARGUMENT", "duplicate output tensor alias: y"),
    ],
)
def test_a_bad_request_is_told_why(client, request_of, code, message):
    with pytest.raises(grpc.RpcError, match=message) as error:
        client.predict(**{"x": X, **request_of})
    assert error.value.code().name == code


def test_bad_tensors_and_labels_are_refused(client):
    request = client.request(x=X)
    request.inputs["x"].float_val.append(1.0)
    with pytest.raises(grpc.RpcError, match="tensor parsing error: x"):
        client.stub.Predict(request)
    request = client.request(x=X)
    request.inputs["x"].dtype = types_pb2.DT_INVALID
    with pytest.raises(grpc.RpcError, match="tensor parsing error: x"):
        client.stub.Predict(request)
    request.model_spec.version_label = "canary"
    with pytest.raises(grpc.RpcError, match="Unrecognized servable version label: canary"):
        client.stub.Predict(request)
    request.ClearField("model_spec")
    with pytest.raises(grpc.RpcError, match="Missing ModelSpec"):
        client.stub.Predict(request)


def test_a_request_ends_at_its_deadline_and_is_counted_as_late(client, endpoint):
    def late():
        url = f"http://127.0.0.1:{endpoint.rest_port}{monitoring.PATH}"
        text = urllib3.request("GET", url).data.decode()
        found = re.search(r'model_name="half",status="DEADLINE_EXCEEDED"} (\d+)', text)
        return int(found[1]) if found else 0

    before = late()
    with pytest.raises(grpc.RpcError) as error:
        client.predict(signature="slow", timeout=0.3, x=np.zeros(1, np.float32))
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    end = time.monotonic() + 5
    while late() == before:  # the client gives up before the server has counted it
        assert time.monotonic() < end


def test_metadata_tells_the_signatures(client):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half"
    response = client.stub.GetModelMetadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()

    assert response.metadata["signature_def"].Unpack(signatures)
    assert response.model_spec.version.value == 2
    assert set(signatures.signature_def["multi"].inputs) == {"a", "b"}
    for fields, message in (([], "at least one metadata_field"), (["foo"], "foo is not supported")):
        request.metadata_field[:] = fields
        with pytest.raises(grpc.RpcError, match=message):
            client.stub.GetModelMetadata(request)


def test_status_tells_the_versions(client):
    stub = model_service_pb2_grpc.ModelServiceStub(client.channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half"
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE

    versions = stub.GetModelStatus(request).model_version_status

    assert [(v.version, v.state) for v in versions] == [(2, available), (1, available)]
    request.model_spec.version.value = 9
    with pytest.raises(grpc.RpcError, match="Could not find version 9 of model half"):
        stub.GetModelStatus(request)


def test_health_is_told(client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "PredictionService", "ModelService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("sizes", "dtype", "message"),
    [
        ((10**8,), types_pb2.DT_FLOAT, "Too many elements .* Received: 100000000"),
        ((2**62, 2**62), types_pb2.DT_FLOAT, "Too many items on an axis of tensor x"),
        ((1,) * 70, types_pb2.DT_FLOAT, "Too many axes of tensor x"),
        ((2, 2**16 + 1), types_pb2.DT_FLOAT, "Too many items on an axis of tensor x"),
        ((1,), types_pb2.DT_RESOURCE, "tensor parsing error: x"),
        ((1,), types_pb2.DT_VARIANT, "tensor parsing error: x"),
        ((-1,), types_pb2.DT_FLOAT, "tensor parsing error: x"),
    ],
)
def test_a_declared_shape_is_checked_before_memory_is_taken(client, sizes, dtype, message):
    request = client.request()
    request.inputs["x"].dtype = dtype
    for size in sizes:
        request.inputs["x"].tensor_shape.dim.add(size=size)

    with pytest.raises(grpc.RpcError, match=message) as error:
        client.stub.Predict(request)

    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_tensors_of_a_request_count_together(client):
    request = client.request()
    for name in "xyz":
        request.inputs[name].dtype = types_pb2.DT_FLOAT
        request.inputs[name].tensor_shape.dim.add(size=2**20)

    with pytest.raises(grpc.RpcError, match=f"Too many elements .* Received: {3 * 2**20}"):
        client.stub.Predict(request)


def test_axes_are_counted_before_a_request_is_parsed(client):
    request = client.request()
    request.inputs["x"].tensor_shape.dim.extend([tensor_shape_pb2.TensorShapeProto.Dim()] * 9000)

    with pytest.raises(
        grpc.RpcError, match=r"Too many bytes in a tensor's shape.* Received: 18000"
    ):
        client.stub.Predict(request)


def test_a_context_counts_for_every_example(client):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "half"
    examples = request.input.example_list_with_context
    examples.context.features.feature["c"].bytes_list.value.append(bytes(2**20))
    for _ in range(100):
        examples.examples.add()

    with pytest.raises(grpc.RpcError, match="Too many decoded bytes"):
        client.stub.Regress(request)


def test_a_regression_merges_the_context_into_every_example(client):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "half", "regress_x_to_y"
    examples = request.input.example_list_with_context
    examples.context.features.feature["x"].float_list.value.append(4.0)
    examples.examples.add()
    examples.examples.add().features.feature["x"].float_list.value.append(2.0)
    values = [x.value for x in client.stub.Regress(request).result.regressions]
    assert values == [5.0, 4.0]


def test_bytes_that_are_no_message_are_refused(client):
    call = client.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError, match="Received: other bytes") as error:
        call(b"\xff garbage")
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
