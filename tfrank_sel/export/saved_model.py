"""A SavedModel for servers: check of its graph, manifest, warm-up requests, batching parameters."""

import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrank_sel import artefacts, lazy
from tfrank_sel.arguments import StrPath
from tfrank_sel.data import stores
from tfrank_sel.data.writing import field
from tfrank_sel.errors import refusal
from tfrank_sel.version import __version__

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
else:
    keras, tf = lazy.Module("keras"), lazy.Module("tensorflow")

FOLDER = "assets.extra"
MANIFEST = f"{FOLDER}/manifest.json"
CARD = f"{FOLDER}/MODEL_CARD.md"
BATCHING = "batching_params.pbtxt"
# No row waits for another, and lists of different lengths are not padded, because padding would
# count as documents. The number of threads is the server's.
_BATCHING = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 64 }
pad_variable_length_inputs: false
"""
WARM_UP = f"{FOLDER}/tf_serving_warmup_requests"
WARM_UP_REQUESTS = 1000  # at most, in all servers
# Number of bytes that are read at once.
_CHUNK = 1 << 24
# The oldest server for exported models, and the operations of TensorFlow 2.20 and 2.21 that it does
# not have: the difference of `dir(tf.raw_ops)`.
_SERVER = "2.19.1"
_NEWER = re.compile("DecodeJxl|DecodeWebP|TPUDummyInput|XlaSparseDenseMatmulCustomCombiner.*")


def check_servable(saved_model: StrPath) -> None:
    """Raises an error for a SavedModel that a stock server can load but not run.

    Such a server has only the operations of TensorFlow 2.19.1 and TensorFlow Text, no Python, and
    runs with XLA compilation disabled.

    Args:
        saved_model: Folder of the SavedModel.

    Raises:
        ValueError: If the graph calls Python, has an operation that is not TensorFlow's, or
            requires compilation by XLA; the message lists all of them.
    """
    from tensorflow.core.protobuf import saved_model_pb2

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
                yield f"{node.op} is newer than TensorFlow {_SERVER}, which servers may run"
            if node.attr["_XlaMustCompile"].b:
                yield f"{node.name} requires XLA (jit_compile=True)"


def check_shapes(
    endpoint: Callable[..., dict[str, "tf.Tensor"]], taken: Sequence[Any]
) -> Callable[..., dict[str, "tf.Tensor"]]:
    """Returns an endpoint whose graph refuses tensors of other shapes than it declares.

    A server does not compare a request with the signature, and some operations end its process.

    Args:
        endpoint: Function of tensors, of features by name, which `ModelInputs.check` checks, and of
            masks, which it broadcasts.
        taken: The `tf.TensorSpec` of each argument.
    """

    @functools.wraps(endpoint)
    def call(*arguments: Any) -> dict[str, "tf.Tensor"]:
        # Arguments beyond the declared ones have defaults.
        pairs = zip(arguments, taken, strict=False)
        shaped = [
            x if isinstance(x, dict) or x.dtype == tf.bool else tf.ensure_shape(x, spec.shape)
            for x, spec in pairs
        ]
        return endpoint(*shaped)

    return call


def write_manifest(
    saved_model: Path, features: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Writes the manifest of a SavedModel: its expected inputs and its provenance.

    Args:
        saved_model: Folder of the SavedModel.
        features: Description of an example.
        metadata: Additional content.
    """
    digest = hashlib.sha256()
    for path in sorted((saved_model / "variables").glob("variables.data-*")):
        with path.open("rb") as file:
            while octets := file.read(_CHUNK):  # together they may not fit in memory
                digest.update(octets)
    manifest = {
        "features": features,
        "weights_sha256": digest.hexdigest(),
        "versions": {
            "tfrank_sel": __version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
        **metadata,
    }
    path = saved_model / MANIFEST
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(saved_model: StrPath) -> Mapping[str, Any]:
    """Reads a manifest written by `write_manifest`.

    Args:
        saved_model: Folder or URL of the SavedModel, or of the manifest itself.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a manifest.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    is_file = os.fspath(saved_model).endswith(".json")
    path = os.fspath(saved_model) if is_file else stores.join(saved_model, MANIFEST)
    with artefacts.name_file_in_errors(path, "a manifest with `features`"):
        found = json.loads(stores.read_text(path))
        if not isinstance(found, dict) or not isinstance(found.get("features"), dict):
            raise ValueError("no such key")
    return found


def write_batching(saved_model: Path) -> None:
    """Writes the batching parameters, for servers that read them from each version.

    Args:
        saved_model: Folder of the SavedModel.
    """
    (saved_model / BATCHING).write_text(_BATCHING, encoding="utf-8")


def write_warm_up(
    saved_model: Path, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]
) -> None:
    """Writes the warm-up requests that a server runs before it serves a version.

    The file is a TFRecord of `tensorflow.serving.PredictionLog`.

    Args:
        saved_model: Folder of the SavedModel.
        requests: Name of the signature and inputs of each request.

    Raises:
        ValueError: If they are more than a server takes.
    """
    with tf.io.TFRecordWriter(str(saved_model / WARM_UP)) as writer:
        for number, (signature, inputs) in enumerate(requests, 1):
            if number > WARM_UP_REQUESTS:
                raise refusal(
                    f"`examples` must make at most {WARM_UP_REQUESTS} warm-up requests, several "
                    "for each list: servers load no version with more",
                    "more",
                )
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    # In the text format: `model_spec { signature_name }`.
    request = field(1, field(3, signature.encode()))
    for name, array in inputs.items():
        tensor = tf.make_tensor_proto(array).SerializeToString()
        request += field(2, field(1, name.encode()) + field(2, tensor))
    # In the text format: `predict_log { request }`.
    return field(6, field(1, request))
