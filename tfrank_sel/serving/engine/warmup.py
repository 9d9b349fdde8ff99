"""Warm-up: the requests that a version answers before it is served, from beside the model.

They stand in `assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`.
"""

import pathlib
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf import message
from tensorflow_serving.apis import prediction_log_pb2

from tfrank_sel.serving.engine import inference, tensor_protos
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import predict, signature_of
from tfrank_sel.serving.status import Code, ServingError, invalid

PATH = pathlib.Path("assets.extra", "tf_serving_warmup_requests")

_MAX_RECORDS = 1000


def warm_up(model: Model, folder: pathlib.Path) -> int:
    """Runs the warm-up requests of a version, so that no user waits for what the first one costs.

    Args:
        model: The version, loaded.
        folder: Its folder.

    Returns:
        How many requests there were; 0 without the file.

    Raises:
        ServingError: DATA_LOSS if the file is no TFRecord of `PredictionLog`, INVALID_ARGUMENT if
            it holds more than 1000 records, UNIMPLEMENTED for a record of a kind that cannot be
            run, or what a request raises.
    """
    count = 0
    for log in read(folder / PATH):
        _run(model, log)
        count += 1
    return count


def read(path: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    """Reads a file of warm-up requests; none if there is no such file.

    Raises:
        ServingError: DATA_LOSS if the file is no TFRecord of `PredictionLog`, INVALID_ARGUMENT at
            record 1001.
    """
    if not path.exists():
        return
    try:
        for count, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator(), 1):
            if count > _MAX_RECORDS:
                raise invalid(
                    f"Number of warmup records exceeds the maximum ({_MAX_RECORDS}) at {path}",
                )
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except (tf.errors.DataLossError, message.DecodeError) as error:
        raise ServingError(
            Code.DATA_LOSS,
            f"{path}: {error}. Please verify your warmup data is in TFRecord format.",
        ) from error


def _run(model: Model, log: prediction_log_pb2.PredictionLog) -> None:
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        sent = {k: tensor_protos.to_array(k, v) for k, v in request.inputs.items()}
        signature = signature_of(model, request.model_spec.signature_name)
        predict(model, signature, sent, request.output_filter)
    elif kind == "regress_log":
        request = log.regress_log.request
        inference.regress(model, request.model_spec.signature_name, request.input)
    elif kind == "classify_log":
        request = log.classify_log.request
        inference.classify(model, request.model_spec.signature_name, request.input)
    elif kind == "multi_inference_log":
        inference.multi_inference(model, log.multi_inference_log.request)
    else:
        raise ServingError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind or 'none'}")
