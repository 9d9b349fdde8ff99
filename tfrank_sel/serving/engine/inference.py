"""Classify, Regress and MultiInference on `tf.Example`s, as in TensorFlow Serving.

Their input is called `inputs`; a regression answers with `outputs`, a classification with
`classes`, `scores` or both. The declared method of a signature is ignored.
"""

from collections.abc import Sequence

import numpy as np
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    regression_pb2,
)

from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model, Signature
from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.status import Code, ServingError, invalid

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"

_INPUT = "inputs"
_CLASSES, _SCORES, _OUTPUT = "classes", "scores", "outputs"


def regress(
    model: Model, name: str, rows: np.ndarray, timeout: float | None = None
) -> regression_pb2.RegressionResult:
    """Runs a regression on the examples of a request.

    Args:
        model: The model.
        name: Name of the signature; empty for the default one.
        rows: The examples, from `serialized`.
        timeout: Maximum time of the run in seconds; None for no limit.

    Returns:
        One value for each example.

    Raises:
        ServingError: INVALID_ARGUMENT if signature or examples are not of a regression, or the
            error of the run.
    """
    signature = _signature(model, name, "regression")
    if _OUTPUT not in signature.fetches:
        raise invalid(f"No regression outputs found in SignatureDef: {signature.definition}")
    [values] = model.run(signature, {_INPUT: rows}, [_OUTPUT], timeout)
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(values.shape)}"
        )
    _check("output", values, np.float32, len(rows))
    result = regression_pb2.RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result


def classify(
    model: Model, name: str, rows: np.ndarray, timeout: float | None = None
) -> classification_pb2.ClassificationResult:
    """Runs a classification on the examples of a request.

    Args:
        model: The model.
        name: Name of the signature; empty for the default one.
        rows: The examples, from `serialized`.
        timeout: Maximum time of the run in seconds; None for no limit.

    Returns:
        The classes of each example, with labels, scores or both.

    Raises:
        ServingError: INVALID_ARGUMENT if signature or examples are not of a classification, or the
            error of the run.
    """
    signature = _signature(model, name, "classification")
    outputs = [alias for alias in (_CLASSES, _SCORES) if alias in signature.fetches]
    if not outputs:
        raise invalid(
            'Expected classification signature outputs to contain at least one of "classes" or '
            f'"scores". Signature was: {signature.definition}'
        )
    found = dict(zip(outputs, model.run(signature, {_INPUT: rows}, outputs, timeout), strict=True))
    for alias, values in found.items():
        if values.ndim != 2:
            raise invalid(
                f"Expected Tensor shape: [batch_size num_classes] but got {list(values.shape)}"
            )
        _check(alias, values, np.object_ if alias == _CLASSES else np.float32, len(rows))
    sizes = [values.shape[1] for values in found.values()]
    if len(set(sizes)) > 1:
        raise invalid(
            f"Tensors class and score should match in dim_size(1). Got {sizes[0]} vs. {sizes[1]}"
        )
    result = classification_pb2.ClassificationResult()
    for row in range(len(rows)):
        classes = result.classifications.add()
        for column in range(sizes[0]):
            entry = classes.classes.add()
            if _CLASSES in found:
                entry.label = found[_CLASSES][row, column]
            if _SCORES in found:
                entry.score = found[_SCORES][row, column]
    return result


def multi_inference(
    model: Model,
    tasks: Sequence[inference_pb2.InferenceTask],
    rows: np.ndarray,
    timeout: float | None = None,
) -> list[inference_pb2.InferenceResult]:
    """Runs several regressions and classifications on the same examples.

    Args:
        model: The model of all tasks.
        tasks: The tasks, whose signatures must differ.
        rows: The examples, from `serialized`.
        timeout: Maximum time of each run in seconds; None for no limit.

    Returns:
        The result of each task, without its model.

    Raises:
        ServingError: INVALID_ARGUMENT if two tasks have the same signature, UNIMPLEMENTED for
            another method, or the error of a task.
    """
    results, seen = [], set()
    for task in tasks:
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        result = inference_pb2.InferenceResult()
        if task.method_name == REGRESS:
            result.regression_result.CopyFrom(regress(model, name, rows, timeout))
        elif task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(classify(model, name, rows, timeout))
        else:
            raise ServingError(
                Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
            )
        results.append(result)
    return results


def check_models(request: inference_pb2.MultiInferenceRequest) -> None:
    """Checks that all tasks are for one model.

    Raises:
        ServingError: INVALID_ARGUMENT if there is no task, or they are for several models.
    """
    names = [task.model_spec.name for task in request.tasks]
    if not names or not all(names):
        raise invalid("Found ModelSpec with an empty model name.")
    if len(set(names)) > 1:
        raise invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")


def _signature(model: Model, name: str, kind: str) -> Signature:
    signature = model.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    if _INPUT not in signature.feeds:
        raise invalid(f"No {kind} inputs found in SignatureDef: {signature.definition}")
    return signature


def serialized(examples: input_pb2.Input, limits: Limits) -> np.ndarray:
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


def _check(alias: str, values: np.ndarray, dtype: type, size: int) -> None:
    if values.dtype != dtype:
        wanted = "DT_STRING" if dtype is np.object_ else "DT_FLOAT"
        raise invalid(f"Expected {alias} Tensor of {wanted}. Got: {values.dtype}")
    if len(values) != size:
        raise invalid(f"Expected {alias} batch size of {size}. Got: {len(values)}")
