"""The gate: what a stock TensorFlow Serving server could not answer is not let through."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2


def check_servable(saved_model: str | os.PathLike[str]) -> None:
    """Refuses a SavedModel that loads in a stock server but cannot answer there.

    Such a server knows the operations of TensorFlow and TensorFlow Text alone, has no Python, and
    runs with XLA compilation disabled.

    Args:
        saved_model: Folder of the SavedModel.

    Raises:
        ValueError: If the graph calls Python, holds an operation that is not TensorFlow's, or
            demands compilation by XLA; the message names them all.
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
    """Yields what in a graph a stock server cannot run."""
    functions = {function.signature.name: function for function in graph.library.function}
    for name, function in functions.items():
        if function.attr["_XlaMustCompile"].b:
            yield f"{name} demands XLA (jit_compile=True)"
    for nodes in (graph.node, *(function.node_def for function in functions.values())):
        for node in nodes:
            if node.op in ("PyFunc", "PyFuncStateless", "EagerPyFunc"):
                yield f"{node.op} calls Python"
            elif not (
                # Not the registry of this process, which also holds what libraries have loaded.
                hasattr(tf.raw_ops, node.op)
                or node.op.startswith("TFText>")
                or node.op in functions
            ):
                yield f"{node.op} is not an operation of TensorFlow"
            if node.attr["_XlaMustCompile"].b:
                yield f"{node.name} demands XLA (jit_compile=True)"
