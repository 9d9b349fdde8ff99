"""The bounds of a deployment's Envoy (`bounds.lua`), in front of a server."""

import json

import grpc
import numpy as np
import pytest
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, regression_pb2

from benchmarks.robustness.attacks import field, predict_request, varint
from tests.serving.gateways import PREDICT
from tests.serving.half_plus import Client


def dims(*sizes):
    return b"".join(field(2, b"\x08" + varint(size)) for size in sizes)


def value(content, times=1):
    """An entry of a request's inputs with these bytes as its tensor, sent so many times."""
    return field(2, field(1, b"x") + field(2, content) * times)


def shape(content):
    """The same for a tensor of floats with these bytes as its shape."""
    return value(FLOAT + field(2, content))


def context(size, count):
    """A request to classify whose context the server copies into each example."""
    feature = field(1, field(1, b"c") + field(2, field(1, field(1, bytes(size)))))
    return field(2, field(2, field(1, b"") * count + field(2, field(1, feature))))


FLOAT, STRING = b"\x08\x01", b"\x08\x07"
SPEC = field(1, field(1, b"ranker"))
MEMORY = "takes too much memory"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("request_bytes", "why"),
    [
        (predict_request(100_000_000), "Too many elements: 100000000"),
        (predict_request(2**40, 2**40), "Too many elements"),
        (predict_request(2_000_000, 2), "Too many elements: 4000000"),
        (shape(dims(2_000_000)) * 2, "Too many elements: 4000000"),
        (predict_request(2**64 - 1), "Too many elements"),
        (predict_request(2**64 + 5), "Too many elements"),
        (shape(dims(1000, 1000, 1000)), "Too many elements: 1000000000"),
        (shape(dims(*[2**63 - 1] * 17, 0)) + shape(dims(10**9)), "Too many elements"),  # inf * 0
        (shape(b"\x12\x00" * 1_100_000), MEMORY),
        (value(STRING + field(2, dims(100_000)) + field(8, bytes(2**20))), MEMORY),
        (value(FLOAT + field(10, bytes(5_000_000))), MEMORY),
        (value(FLOAT + field(13, bytes(5_000_000))), MEMORY),
        (field(3, b"") * 1_100_000, MEMORY),
        (field(2, b"") * 130_000, MEMORY),
        # what protobuf reads in another way than it seems
        (shape(field(2, b"\x08" + varint(10**9) + b"\x0a\x00")), "Dim must not have field 1"),
        (shape(field(2, b"\x08\x01\x08\x02")), "Dim must have field 1 once"),
        (value(STRING + field(1, b"")), "TensorProto must not have field 1 of wire type 2"),
        (value(FLOAT + STRING), "TensorProto must have field 1 once"),
        (value(FLOAT + b"\x12\x00\x12\x00"), "TensorProto must have field 2 once"),
        (value(FLOAT, times=2), "InputsEntry must have field 2 once"),
        (SPEC * 2, "PredictRequest must have field 1 once"),
        (
            shape(varint(1 << 32 | 0x12) + varint(len(dims(9))) + dims(9)),
            "must not have field 536870914",
        ),
        (b"\x92\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x00", "must not have field"),
        (value(b"\x08" + varint(2**32 + 7)), "type 4294967303"),
        *((predict_request(1, dtype=dtype), f"type {dtype}") for dtype in (0, 20, 21, 101, 121)),
        (value(b"\x08\x15" + field(15, field(3, b"") * 9)), "must not have field 15"),
        (value(b"\x08\x14" + field(14, b"")), "must not have field 14"),
        (field(1, b"\x52\x00" * 9), "ModelSpec must not have field 10"),
        (b"\xff garbage", "must not have field"),
        (b"\xff" * 12, "must be protobuf"),
        (b"\x12\x7f", "must be whole"),
        (b"\x0b" * 8, "must not have field 1 of wire type 3"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_requests_that_cost_more_memory_than_their_bytes_do_not_pass(gateway, request_bytes, why):
    refused(gateway, "Predict", request_bytes, why)


@pytest.mark.parametrize(
    ("method", "request_bytes", "why"),
    [
        ("Classify", context(4_000_000, 400_000), MEMORY),
        ("Regress", context(40_000, 100), MEMORY),
        ("MultiInference", context(40_000, 100), MEMORY),
        ("Classify", field(2, field(1, field(1, b"") * 1_100_000)), MEMORY),
        ("Regress", context(9, 1) + context(9, 1), "request must have field 2 once"),
        ("Regress", field(2, field(2, field(2, b"") * 2)), "ExampleList must have field 2 once"),
        ("GetModelMetadata", field(2, b"") * 1_100_000, MEMORY),
        ("PredictStreamed", b"", "must be one of PredictionService"),
        ("Predict?x", predict_request(10**9), "must be one of PredictionService"),
    ],
)
def test_the_other_requests_are_bounded(gateway, method, request_bytes, why):
    refused(gateway, method, request_bytes, why)


def refused(gateway, method, request_bytes, why):
    call = gateway.channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")

    def passes_nothing():
        before = gateway.served()
        with pytest.raises(grpc.RpcError, match=why) as error:
            call(request_bytes, metadata=gateway.metadata)
        assert error.value.code().name == "INVALID_ARGUMENT"
        return gateway.served() == before

    # a request of an earlier test may end meanwhile
    assert any(passes_nothing() for _ in range(5))


@pytest.mark.parametrize("in_content", [True, False])
def test_tensors_of_every_type_pass(gateway, in_content):
    arrays = {
        "i32": np.array([1, -2], np.int32),
        "i64": np.array([1, -(2**60)], np.int64),
        "u8": np.array([1, 255], np.uint8),
        "f64": np.array([1.5, -2.5]),
        "flag": np.array([True, False]),
    }
    request = Client(0).request(name="ranker", signature="types", **arrays)
    request.output_filter.extend(["i64", "flag"])
    for name, array in arrays.items() if in_content else ():
        tensor = request.inputs[name]
        tensor.CopyFrom(
            tensor_pb2.TensorProto(
                dtype=tensor.dtype, tensor_shape=tensor.tensor_shape, tensor_content=array.tobytes()
            )
        )

    answer = gateway.stub.Predict(request, metadata=gateway.metadata)

    assert set(answer.outputs) == {"i64", "flag"}
    assert list(answer.outputs["i64"].int64_val) == [1, -(2**60)]


@pytest.mark.parametrize("kind", ["example_list", "example_list_with_context"])
def test_examples_pass(gateway, kind):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "ranker"
    request.model_spec.signature_name = "regress_x_to_y"
    examples = getattr(request.input, kind)
    for _ in range(3):
        feature = examples.examples.add().features.feature
        feature["s"].bytes_list.value.extend([b"", b"x"])
        feature["i"].int64_list.value.extend([1, -1])
        feature["x"].float_list.value.append(2.0)
    if kind == "example_list_with_context":
        examples.context.features.feature["c"].bytes_list.value.append(b"x" * 1000)

    answer = gateway.stub.Regress(request, metadata=gateway.metadata)

    assert [found.value for found in answer.result.regressions] == [4.0] * 3


def test_metadata_pass(gateway):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "ranker"

    answer = gateway.stub.GetModelMetadata(request, metadata=gateway.metadata)

    assert answer.model_spec.name == "ranker"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"instances": [' + b"0.12345678901," * 250_000 + b"0]}", 200),
        (b'{"instances": [' + b'"",' * 1_000_000 + b'""]}', 400),
        (b'{"instances": ' + b"[" * 4_000_000, 400),
        (b'{"instances": [' + b"{}," * 1_000_000 + b"{}]}", 400),
    ],
    ids=["numbers", "strings", "brackets", "objects"],
)
def test_the_values_of_json_are_counted(gateway, body, status):
    before = gateway.served()

    found, answer = gateway.rest("POST", PREDICT, body)

    assert found == status
    if status == 400:
        assert MEMORY in json.loads(answer)["error"]
        assert gateway.served() == before
