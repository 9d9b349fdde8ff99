"""Warm-up requests, which a version answers before it is served.

They are in `assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`.
"""

import dataclasses
import pathlib
from collections.abc import Iterator

from google.protobuf import message
from tensorflow_serving.apis import prediction_log_pb2

from tfrank_sel.data.formats import records
from tfrank_sel.data.rejections import InputError
from tfrank_sel.export.saved_model import WARM_UP, WARM_UP_REQUESTS
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import predict, regress, serialized, signature_of
from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.status import Code, ServingError, invalid

PATH = pathlib.Path(WARM_UP)


def warm_up(model: Model, folder: pathlib.Path, limits: Limits = Limits()) -> int:  # noqa: B008
    """Runs the warm-up requests of a version, so that the first request of a user is not slow.

    Args:
        model: The version, loaded.
        folder: Its folder.
        limits: The limits on each request, where they are above the defaults: a server that takes
            less than others serves what others do.

    Returns:
        Number of requests; 0 without the file.

    Raises:
        ServingError: DATA_LOSS if the file is not a TFRecord of `PredictionLog`, INVALID_ARGUMENT
            if it has more than 1000 records, UNIMPLEMENTED for records of other kinds, or the
            error of a request.
    """
    given, default = dataclasses.asdict(limits), dataclasses.asdict(Limits())
    limits = Limits(**{name: max(default[name], given[name]) for name in given})
    count = 0
    for log in read(folder / PATH):
        _run(model, log, limits)
        count += 1
    return count


def read(path: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    """Reads a file of warm-up requests; none if there is no such file.

    Raises:
        ServingError: DATA_LOSS if the file is not a TFRecord of `PredictionLog`, INVALID_ARGUMENT
            at record 1001.
    """
    if not path.exists():
        return
    try:
        for count, record in enumerate(records.records(str(path)), 1):
            if count > WARM_UP_REQUESTS:
                raise invalid(
                    f"Number of warmup records exceeds the maximum ({WARM_UP_REQUESTS}) at {path}",
                )
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except (InputError, message.DecodeError) as error:
        reason = error.reason if isinstance(error, InputError) else error
        raise ServingError(
            Code.DATA_LOSS,
            f"{path}: {reason}. Please verify your warmup data is in TFRecord format.",
        ) from error


def _run(model: Model, log: prediction_log_pb2.PredictionLog, limits: Limits) -> None:
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        sent = tensor_protos.to_arrays(request.inputs, limits)
        signature = signature_of(model, request.model_spec.signature_name)
        predict(model, signature, sent, request.output_filter)
    elif kind == "regress_log":
        request = log.regress_log.request
        rows = serialized(request.input, limits)
        regress(model, request.model_spec.signature_name, rows)
    else:
        raise ServingError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind or 'none'}")
