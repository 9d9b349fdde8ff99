"""Regress on `tf.Example`s, as in TensorFlow Serving.

The input is called `inputs`, the output `outputs`. The declared method of a signature is ignored.
"""

import numpy as np
from tensorflow_serving.apis import input_pb2, regression_pb2

from tfrank_sel.serving.engine.model import DEFAULT_SIGNATURE, Model
from tfrank_sel.serving.limits import Limits
from tfrank_sel.serving.status import invalid

_INPUT, _OUTPUT = "inputs", "outputs"


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
    signature = model.signatures.get(name or DEFAULT_SIGNATURE)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}")
    if _INPUT not in signature.feeds:
        raise invalid(f"No regression inputs found in SignatureDef: {signature.definition}")
    if _OUTPUT not in signature.fetches:
        raise invalid(f"No regression outputs found in SignatureDef: {signature.definition}")
    [values] = model.run(signature, {_INPUT: rows}, [_OUTPUT], timeout)
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
