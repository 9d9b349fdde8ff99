import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tfrank_sel.export import saved_model
from tfrank_sel.export.saved_model import WARM_UP as PATH
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.versions import ModelVersions
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.status import Code


@pytest.fixture
def base(half, tmp_path):
    shutil.copytree(half / "1", tmp_path / "1")
    (tmp_path / "1" / PATH).parent.mkdir()
    return tmp_path


def predict_log(signature="", **inputs):
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    for name, value in inputs.items():
        tensor_protos.to_proto(np.array(value, np.float32), log.predict_log.request.inputs[name])
    return log


def regress_log(signature):
    log = prediction_log_pb2.PredictionLog()
    log.regress_log.request.model_spec.signature_name = signature
    log.regress_log.request.input.example_list.examples.add()
    return log


def status(base, *records):
    with tf.io.TFRecordWriter(str(base / "1" / PATH)) as writer:
        for record in records:
            writer.write(record.SerializeToString())
    return loaded(base)


def loaded(base, **limits):
    config = ModelConfig("half", base, max_load_retries=0)
    versions = ModelVersions(config, limits=Limits(**limits))
    versions.poll()
    [status] = versions.statuses()
    versions.close()
    return status


def test_every_kind_of_request_warms_up(base):
    assert status(base, predict_log(x=[1.0]), regress_log("regress_x_to_y")).code == Code.OK


@pytest.mark.parametrize(
    ("records", "code", "message"),
    [
        ([predict_log(x=[1.0])] * 1001, Code.INVALID_ARGUMENT, "exceeds the maximum"),
        ([predict_log(other=[1.0])], Code.INVALID_ARGUMENT, "alias: x"),
        ([predict_log("nope", x=[1.0])], Code.FAILED_PRECONDITION, '"nope" not found'),
        ([regress_log("multi")], Code.INVALID_ARGUMENT, "No regression inputs"),
        ([prediction_log_pb2.PredictionLog()], Code.UNIMPLEMENTED, "log_type for warmup: none"),
    ],
)
def test_a_version_whose_warm_up_fails_is_not_served(base, records, code, message):
    found = status(base, *records)

    assert (found.code, message in found.message) == (code, True)


def test_a_warm_up_file_of_another_kind_is_told(base):
    (base / "1" / PATH).write_text("these words are not a TFRecord")

    found = loaded(base)

    assert found.code == Code.DATA_LOSS
    assert "Please verify your warmup data is in TFRecord format" in found.message


def test_the_limits_are_those_of_the_server(base):
    long = predict_log(x=np.zeros([1, 70_000]))
    assert "Accepted: at most 65536" in status(base, long).message
    assert loaded(base, items=70_000).code == Code.OK
    assert status(base, predict_log(x=np.zeros([1, 300]))).code == Code.OK
    assert loaded(base, items=100).code == Code.OK  # lower ones are of requests alone


def test_no_more_requests_are_written_than_servers_run(tmp_path):
    (tmp_path / PATH).parent.mkdir()
    requests = [("", {"x": np.zeros(1)})] * 1001
    saved_model.write_warm_up(tmp_path, requests[1:])
    with pytest.raises(ValueError, match="`examples` must make at most 1000 warm-up requests"):
        saved_model.write_warm_up(tmp_path, requests)
