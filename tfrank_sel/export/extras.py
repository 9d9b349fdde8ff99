"""What stands beside the graph of a SavedModel: its manifest, and the requests that warm it up."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.data import stores, wire
from tfrank_sel.version import __version__

FOLDER = "assets.extra"
MANIFEST = f"{FOLDER}/manifest.json"
CARD = f"{FOLDER}/MODEL_CARD.md"
BATCHING = "batching_params.pbtxt"
# No row waits for another, and lists of different lengths are not padded: padding would count as
# documents. Threads are those of the server.
_BATCHING = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 64 }
pad_variable_length_inputs: false
"""
WARM_UP = f"{FOLDER}/tf_serving_warmup_requests"
_CHUNK = 1 << 24  # bytes


def write_manifest(
    saved_model: Path, features: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Writes what a SavedModel expects and where it comes from.

    Args:
        saved_model: Folder of the SavedModel.
        features: What an example holds.
        metadata: What else to tell.
    """
    digest = hashlib.sha256()
    for path in sorted((saved_model / "variables").glob("variables.data-*")):
        with path.open("rb") as file:
            while octets := file.read(_CHUNK):  # at once they may be more than fits
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
    path.write_text(json.dumps(manifest, indent=2) + "\n")


def read_manifest(saved_model: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Reads what `write_manifest` wrote.

    Args:
        saved_model: Folder or URL of the SavedModel.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no manifest.
        tfrank_sel.data.InputError: If a store cannot be reached or refuses.
    """
    path = stores.join(saved_model, MANIFEST)
    found = json.loads(stores.read_text(path))
    if not isinstance(found, dict) or not isinstance(found.get("features"), dict):
        raise ValueError(f"{path} must be a manifest with `features`. Received: no such key")
    return found


def write_batching(saved_model: Path) -> None:
    """Writes how a server puts requests together, where it is told to read that of each version.

    Args:
        saved_model: Folder of the SavedModel.
    """
    (saved_model / BATCHING).write_text(_BATCHING)


def write_warm_up(
    saved_model: Path, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]
) -> None:
    """Writes the requests that a server runs before it serves a version.

    They are a TFRecord file of `tensorflow.serving.PredictionLog`.

    Args:
        saved_model: Folder of the SavedModel.
        requests: Name of the signature and inputs of each request.
    """
    with tf.io.TFRecordWriter(str(saved_model / WARM_UP)) as writer:
        for signature, inputs in requests:
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    request = wire.field(1, wire.field(3, signature.encode()))  # model_spec { signature_name }
    for name, array in inputs.items():
        tensor = tf.make_tensor_proto(array).SerializeToString()
        request += wire.field(2, wire.field(1, name.encode()) + wire.field(2, tensor))
    return wire.field(6, wire.field(1, request))  # predict_log { request }
