"""Predict and Regress: from inputs to outputs, with the checks of TensorFlow Serving."""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow_serving.apis import input_pb2, prediction_log_pb2, regression_pb2

from tfrank_sel.data.formats import records
from tfrank_sel.data.rejections import InputError
from tfrank_sel.export.saved_model import WARM_UP, WARM_UP_REQUESTS
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model, Signature
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.status import Code, ServingError, invalid


def signature_of(model: Model, name: str) -> Signature:
    """Returns a signature by name; the default signature if the name is empty.

    Raises:
        ServingError: FAILED_PRECONDITION if there is none.
    """
    name = name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise ServingError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    return model.signatures[name]


def complete_inputs(signature: Signature, sent: Arrays) -> Arrays:
    """Returns the inputs of a signature: those sent, and the defaults of the others.

    Raises:
        ServingError: INVALID_ARGUMENT if an input is missing or unknown, or has another type or
            shape than the signature declares.
    """
    names, declared = signature.feeds, signature.declared
    if len(sent) > len(names) or (len(sent) < len(names) and not signature.defaults):
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(names)} "
            f"len({_set(sent)}) != len({_set(names)}). "
            f"Sent extra: {_set(set(sent) - set(names))}. "
            f"Missing but required: {_set(set(names) - set(sent))}.",
        )
    complete = {**signature.defaults, **sent}
    for name in names:
        if name not in complete:
            feed = signature.definition.inputs[name].name
            raise invalid(
                f"Signature input alias: {name}(feed name: {feed}) not found in request and no "
                f"default value provided. Inputs expected to be in the set {_set(names)}.",
            )
        value, (kinds, rank, sizes) = complete[name], declared[name]
        if value.dtype.type not in kinds or (rank is not None and value.ndim != rank):
            raise _shape_error(signature, name, value)
        for axis, size in sizes:
            if value.shape[axis] != size:
                raise _shape_error(signature, name, value)
    if not sent.keys() <= names.keys():  # beside one that has a default
        expected = f"Inputs of signature {signature.name} must be in the set {_set(names)}"
        raise invalid(expected, _set(sent.keys() - names.keys()))
    return {name: complete[name] for name in names}


def _shape_error(signature: Signature, name: str, value: np.ndarray) -> ServingError:
    info = signature.definition.inputs[name]
    declared = tf.TensorShape(info.tensor_shape)
    shape = "any shape" if declared.rank is None else f"shape {declared}"
    return invalid(
        f"Input {name} of signature {signature.name} must be {tf.as_dtype(info.dtype).name} of "
        f"{shape}",
        f"{tf.as_dtype(value.dtype).name} of shape {tf.TensorShape(value.shape)}",
    )


def wanted_outputs(signature: Signature, output_filter: Sequence[str]) -> list[str]:
    """Returns the names of the outputs to compute: all, or those of the filter.

    Raises:
        ServingError: INVALID_ARGUMENT if the filter has an unknown or repeated name.
    """
    for position, name in enumerate(output_filter):
        if name not in signature.fetches:
            raise invalid(
                f"output tensor alias not found in signature: {name} "
                f"Outputs expected to be in the set {_set(signature.fetches)}.",
            )
        if name in output_filter[:position]:
            raise invalid(f"duplicate output tensor alias: {name}")
    return list(output_filter or signature.fetches)


def predict(
    model: Model,
    signature: Signature,
    sent: Arrays,
    output_filter: Sequence[str] = (),
    timeout: float | None = None,
) -> Arrays:
    """Runs a signature on the tensors of a request.

    Args:
        model: The model.
        signature: One of its signatures.
        sent: The inputs of the request.
        output_filter: Names of the requested outputs; empty for all.
        timeout: Maximum time of the run in seconds; None for no limit.

    Returns:
        The outputs by name.

    Raises:
        ServingError: If inputs or filter do not fit the signature, or the run fails.
    """
    inputs = complete_inputs(signature, sent)
    outputs = wanted_outputs(signature, output_filter)
    return dict(zip(outputs, model.run(signature, inputs, outputs, timeout), strict=True))


def regress(
    model: Model, name: str, rows: np.ndarray, timeout: float | None = None
) -> regression_pb2.RegressionResult:
    """Runs a regression on the examples of a request: of `inputs`, giving `outputs`.

    The declared method of a signature is ignored, as by TensorFlow Serving.

    Args:
        model: The model.
        name: Name of the signature; empty for the default one.
        rows: The examples, from `serialize_examples`.
        timeout: Maximum time of the run in seconds; None for no limit.

    Returns:
        One value for each example.

    Raises:
        ServingError: INVALID_ARGUMENT if signature or examples are not of a regression, or the
            error of the run.
    """
    signature = model.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    if "inputs" not in signature.feeds:
        raise invalid(f"No regression inputs found in SignatureDef: {signature.definition}")
    if "outputs" not in signature.fetches:
        raise invalid(f"No regression outputs found in SignatureDef: {signature.definition}")
    inputs = complete_inputs(signature, {"inputs": rows})
    [values] = model.run(signature, inputs, ["outputs"], timeout)
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(values.shape)}"
        )
    if values.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT. Got: {values.dtype}")
    if len(values) != len(rows):
        raise invalid(f"Expected output batch size of {len(rows)}. Got: {len(values)}")
    result = regression_pb2.RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


def serialize_examples(examples: input_pb2.Input, limits: Limits) -> np.ndarray:
    """Returns the bytes of each example, behind those of the context: parsers merge the two.

    Args:
        examples: The examples of a request, with or without a context.
        limits: The limits on their number and size.

    Raises:
        ServingError: INVALID_ARGUMENT if there is none, or if they exceed a limit.
    """
    context, listed = b"", examples.example_list.examples
    if examples.HasField("example_list_with_context"):
        context = examples.example_list_with_context.context.SerializeToString()
        listed = examples.example_list_with_context.examples
    if not listed:
        raise invalid("Input is empty.")
    limits.check_elements(len(listed), len(listed) * len(context))
    array = np.empty(len(listed), np.object_)
    array[:] = [context + x.SerializeToString() for x in listed]
    return array


def _set(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


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
    values, default = dataclasses.asdict(limits), dataclasses.asdict(Limits())
    limits = Limits(**{name: max(default[name], values[name]) for name in values})
    count = 0
    for log in warmup_requests(folder / WARM_UP):
        _repeat(model, log, limits)
        count += 1
    return count


def warmup_requests(path: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    """Reads a file of warm-up requests, a TFRecord of `PredictionLog`; none if there is no file.

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


def _repeat(model: Model, log: prediction_log_pb2.PredictionLog, limits: Limits) -> None:
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        request = log.predict_log.request
        sent = tensor_protos.to_arrays(request.inputs, limits)
        signature = signature_of(model, request.model_spec.signature_name)
        predict(model, signature, sent, request.output_filter)
    elif kind == "regress_log":
        request = log.regress_log.request
        regress(model, request.model_spec.signature_name, serialize_examples(request.input, limits))
    else:
        raise ServingError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind or 'none'}")
