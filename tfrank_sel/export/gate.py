"""Check that a stock TensorFlow Serving server can run a SavedModel."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

# The server of the deployments' image, and the operations of TensorFlow 2.20 and 2.21 that it does
# not have: the difference of `dir(tf.raw_ops)`.
_SERVER = "2.19.1"
_NEWER = re.compile("DecodeJxl|DecodeWebP|TPUDummyInput|XlaSparseDenseMatmulCustomCombiner.*")


def check_servable(saved_model: str | os.PathLike[str]) -> None:
    """Raises an error for a SavedModel that a stock server can load but not run.

    Such a server has only the operations of TensorFlow 2.19.1 and TensorFlow Text, no Python, and
    runs with XLA compilation disabled.

    Args:
        saved_model: Folder of the SavedModel.

    Raises:
        ValueError: If the graph calls Python, has an operation that is not TensorFlow's, or
            requires compilation by XLA; the message lists all of them.
    """
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((Path(saved_model) / "saved_model.pb").read_bytes())
    found = {problem for graph in message.meta_graphs for problem in _problems(graph.graph_def)}
    if found:
        raise ValueError(
            f"{saved_model} must run in a stock TensorFlow Serving server. "
            f"Received: {'; '.join(sorted(found))}"
        )


def _problems(graph: Any) -> Iterator[str]:
    """Yields the problems of a graph on a stock server."""
    functions = {function.signature.name: function for function in graph.library.function}
    for name, function in functions.items():
        if function.attr["_XlaMustCompile"].b:
            yield f"{name} requires XLA (jit_compile=True)"
    for nodes in (graph.node, *(function.node_def for function in functions.values())):
        for node in nodes:
            if node.op in ("PyFunc", "PyFuncStateless", "EagerPyFunc"):
                yield f"{node.op} calls Python"
            elif not (
                # Not the registry of this process, which also holds operations loaded by libraries.
                hasattr(tf.raw_ops, node.op)
                or node.op.startswith("TFText>")
                or node.op in functions
            ):
                yield f"{node.op} is not an operation of TensorFlow"
            elif _NEWER.fullmatch(node.op):
                yield f"{node.op} is newer than TensorFlow {_SERVER}, which the server runs"
            if node.attr["_XlaMustCompile"].b:
                yield f"{node.name} requires XLA (jit_compile=True)"
