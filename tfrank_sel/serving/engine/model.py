"""Loaded SavedModel and its signatures."""

import dataclasses
import os
import pathlib
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import loader_impl

from tfrank_sel.arguments import StrPath
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.status import Code, ServingError, invalid

T = TypeVar("T")
Declared = tuple[tuple[type, ...], int | None, Sequence[tuple[int, int]]]

DEFAULT_SIGNATURE = "serving_default"
_NODES = re.compile(r"\{\{function_node [^}]*\}\} ?|\s*\[\[\{\{.*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Signature:
    """A named function of a model.

    Args:
        name: Name of the signature.
        definition: Its declaration in the SavedModel.
        feeds: Handle in the session of each input.
        declared: Types, rank, and axes and sizes that each input must have, as far as known; of
            Booleans the types, since masks are broadcast.
        fetches: Handle in the session of each output.
        defaults: Values of the inputs that a gRPC request may leave out.
    """

    name: str
    definition: meta_graph_pb2.SignatureDef
    feeds: Mapping[str, Any]
    declared: Mapping[str, Declared]
    fetches: Mapping[str, Any]
    defaults: Arrays


class Model:
    """A version of a model, a SavedModel in memory, ready to run; safe to call from many threads.

    It runs through the session's own call, as TensorFlow Serving does. `Session.run` would cast
    inputs to the signature's types and check shapes in Python, and take longer.

    Args:
        path: Folder of the SavedModel.
        version: Version of the model.
        session: Threads and memory of the model; None for the defaults of TensorFlow.

    Attributes:
        definitions: Declarations of all its signatures.
        signatures: Those that can be run.

    Raises:
        Exception: Of various types, if the SavedModel cannot be loaded.
    """

    def __init__(
        self,
        path: StrPath,
        version: int,
        session: config_pb2.ConfigProto | None = None,
    ) -> None:
        self.path = pathlib.Path(path)
        self.version = version
        self._graph = graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=session)
        try:
            with graph.as_default():
                loader = loader_impl.SavedModelLoader(os.fspath(path))
                loaded = loader.load(self._session, [tf.saved_model.SERVING])
            self.definitions = dict(loaded.signature_def)
            self.signatures = {
                name: _signature(graph, name, definition)
                for name, definition in self.definitions.items()
                if name != "__saved_model_init_op"
            }
        except Exception:
            self.close()
            raise

    def run(
        self,
        signature: Signature,
        inputs: Arrays,
        outputs: Sequence[str],
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        """Runs a signature.

        Args:
            signature: One of `signatures`.
            inputs: Every input by name, as the signature declares them; bytes are in arrays of
                objects.
            outputs: Names of the requested outputs.
            timeout: Maximum time of the run in seconds; None for no limit.

        Returns:
            The outputs, in the order of `outputs`.

        Raises:
            ServingError: With the code and text of the operation that failed.
        """
        feeds = {signature.feeds[name]: value for name, value in inputs.items()}
        fetches = [signature.fetches[name] for name in outputs]
        options = None
        if timeout is not None:
            run_options = config_pb2.RunOptions(timeout_in_ms=max(1, int(timeout * 1000)))
            options = pywrap_tf_session.TF_NewBufferFromString(run_options.SerializeToString())
        try:
            values: list[np.ndarray] = self._session._call_tf_sessionrun(
                options, feeds, fetches, [], None
            )
        except tf.errors.DataLossError as error:  # of an example that cannot be parsed
            raise invalid(_line(error.message)) from error
        except tf.errors.OpError as error:
            raise ServingError(Code(error.error_code), _line(error.message)) from error
        except UnicodeDecodeError as error:  # a message with bytes of the request
            raise invalid(_line(error.object.decode("utf-8", "backslashreplace"))) from error
        finally:
            if options is not None:
                pywrap_tf_session.TF_DeleteBuffer(options)
        return values

    def close(self) -> None:
        """Frees the model's memory; the model cannot run afterwards."""
        self._session.close()
        self.definitions, self.signatures = {}, {}
        del self._session
        # A graph and its operations refer to each other, so Python would free them late.
        ops.dismantle_graph(self._graph)


def per_model(function: Callable[[Model], T]) -> Callable[[Model], T]:
    """Wraps a function of a model, which then is called once for each version in memory."""
    values: weakref.WeakKeyDictionary[Model, T] = weakref.WeakKeyDictionary()

    def call(model: Model) -> T:
        described = getattr(model, "described", model)  # of models that it borrows
        if described not in values:
            values[described] = function(described)
        return values[described]

    return call


def _line(message: str) -> str:
    """The message of an operation, without the names of nodes and functions."""
    return _NODES.sub("", message).strip()


def _declaration(info: meta_graph_pb2.TensorInfo) -> Declared:
    # The graph broadcasts masks, so their shape is free.
    is_mask = info.dtype == tf.bool.as_datatype_enum
    shape = tf.TensorShape(None if is_mask else info.tensor_shape)
    sizes = [(axis, x) for axis, x in enumerate(shape if shape.rank else []) if x is not None]
    kind = np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype).type
    kinds = (kind, np.bytes_, np.str_) if kind is np.object_ else (kind,)
    return kinds, shape.rank, sizes


def _signature(graph: tf.Graph, name: str, definition: meta_graph_pb2.SignatureDef) -> Signature:
    def handles(tensors: Mapping[str, meta_graph_pb2.TensorInfo]) -> dict[str, Any]:
        return {
            alias: graph.get_tensor_by_name(info.name)._as_tf_output()
            for alias, info in tensors.items()
        }

    return Signature(
        name,
        definition,
        handles(definition.inputs),
        {alias: _declaration(info) for alias, info in definition.inputs.items()},
        handles(definition.outputs),
        {alias: tf.make_ndarray(value) for alias, value in definition.defaults.items()},
    )
