import asyncio
import http.client
import re

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import get_model_metadata_pb2

from tests.serving.half_plus import Client
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.monitoring import PATH, Metrics
from tfrank_sel.serving.status import Code, ServingError


def samples(text):
    return {
        # the parser appends `_total` to the names of counters
        (sample.name.removesuffix("_total"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_model_and_status():
    metrics = Metrics()
    for _ in range(3):
        with metrics.request("Predict", "GRPC", "m"):
            pass
    with pytest.raises(ServingError), metrics.request("predict", "REST", 'a "b\\\n'):
        raise ServingError(Code.NOT_FOUND, "none")
    for error, code in (
        (KeyError(20), Code.INTERNAL),
        (MemoryError(), Code.RESOURCE_EXHAUSTED),
        (DecodeError(), Code.INVALID_ARGUMENT),
    ):
        with pytest.raises(ServingError) as raised, metrics.request("Predict", "GRPC", "n"):
            raise error
        assert raised.value.code is code
    with pytest.raises(asyncio.CancelledError), metrics.request("Predict", "GRPC", "n"):
        raise asyncio.CancelledError

    found = samples(metrics.text().decode())

    count = ":tensorflow:serving:request_count"
    assert found[count, ("model_name", "m"), ("status", "OK")] == 3
    for code in ("INTERNAL", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "CANCELLED"):
        assert found[count, ("model_name", "n"), ("status", code)] == 1
    # as in TensorFlow Serving, a failure has no latency
    latencies = {key[3] for key in found if key[0].endswith("latency_count")}
    assert latencies == {("model_name", "m")}
    assert found[count, ("model_name", 'a "b\\\n'), ("status", "NOT_FOUND")] == 1


def test_latencies_fall_into_buckets():
    metrics = Metrics()
    for _ in range(5):
        with metrics.request("Predict", "GRPC", "m"):
            pass

    text = metrics.text().decode()
    latency = re.findall(r'request_latency_bucket{.*le="([^"]*)".*} (\d+)', text)

    assert len(latency) == 34
    assert latency[-1] == ("+Inf", "5")
    counts = [int(count) for _, count in latency]
    assert counts == sorted(counts)
    assert (
        samples(text)[
            ":tensorflow:serving:request_latency_count",
            ("API", "Predict"),
            ("entrypoint", "GRPC"),
            ("model_name", "m"),
        ]
        == 5
    )


def test_metrics_have_the_types_of_tensorflow_serving():
    types = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().text().decode(), re.M)
    assert types == [
        (":tensorflow:serving:request_count", "counter"),
        (":tfrank_sel:serving:lost_list_count", "counter"),
        (":tfrank_sel:serving:failed_round_count", "counter"),
        (":tensorflow:cc:saved_model:load_attempt_count", "counter"),
        (":tensorflow:serving:request_latency", "histogram"),
    ]


def test_both_protocols_are_observed(endpoint, client):
    client.predict(x=np.zeros([1], np.float32))
    with pytest.raises(grpc.RpcError):
        client.predict(name="made up", x=np.zeros([1], np.float32))
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port)
    connection.request("POST", "/v1/models/half:predict", '{"inputs": [1.0]}')
    connection.getresponse().read()
    connection.request("GET", "/v1/models/half")
    connection.getresponse().read()
    connection.request("GET", "/monitoring/prometheus/metrics")
    text = connection.getresponse().read().decode()

    latency = (
        ':tensorflow:serving:request_latency_count{API="%s",entrypoint="%s",model_name="half"}'
    )
    for names in (("Predict", "GRPC"), ("predict", "REST"), ("", "REST")):
        assert latency % names in text
    assert 'model_name="",status="NOT_FOUND"' in text
    assert "made up" not in text
    assert re.search(r'load_attempt_count{model_path=".*/half/2",status="success"} 1.0', text)


def test_only_what_tensorflow_serving_counts_is_counted(half):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half"
    with Endpoint([ModelConfig("half", half)]) as endpoint:
        client = Client(endpoint.grpc_port)
        assert client.stub.GetModelMetadata(request).metadata
        client.predict(x=np.zeros([1], np.float32))
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port)
        connection.request("GET", PATH)
        found = samples(connection.getresponse().read().decode())

    count = ":tensorflow:serving:request_count"
    assert {key: value for key, value in found.items() if key[0] == count} == {
        (count, ("model_name", "half"), ("status", "OK")): 1
    }
