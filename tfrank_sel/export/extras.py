"""Extra files of a SavedModel: its manifest, warm-up requests and batching parameters."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.data import elwc, stores
from tfrank_sel.version import __version__

FOLDER = "assets.extra"
MANIFEST = f"{FOLDER}/manifest.json"
CARD = f"{FOLDER}/MODEL_CARD.md"
BATCHING = "batching_params.pbtxt"
# No row waits for another, and lists of different lengths are not padded, because padding would #
# count as documents. The number of threads is the server's.
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
    path.write_text(json.dumps(manifest, indent=2) + "\n")


def read_manifest(saved_model: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Reads a manifest written by `write_manifest`.

    Args:
        saved_model: Folder or URL of the SavedModel.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a manifest.
        tfrank_sel.data.InputError: If a store cannot be reached or denies access.
    """
    path = stores.join(saved_model, MANIFEST)
    found = json.loads(stores.read_text(path))
    if not isinstance(found, dict) or not isinstance(found.get("features"), dict):
        raise ValueError(f"{path} must be a manifest with `features`. Received: no such key")
    return found


def write_batching(saved_model: Path) -> None:
    """Writes the batching parameters, for servers that read them from each version.

    Args:
        saved_model: Folder of the SavedModel.
    """
    (saved_model / BATCHING).write_text(_BATCHING)


def write_warm_up(
    saved_model: Path, requests: Iterable[tuple[str, Mapping[str, np.ndarray]]]
) -> None:
    """Writes the warm-up requests that a server runs before it serves a version.

    The file is a TFRecord of `tensorflow.serving.PredictionLog`.

    Args:
        saved_model: Folder of the SavedModel.
        requests: Name of the signature and inputs of each request.
    """
    with tf.io.TFRecordWriter(str(saved_model / WARM_UP)) as writer:
        for signature, inputs in requests:
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    request = elwc.field(1, elwc.field(3, signature.encode()))  # model_spec { signature_name }
    for name, array in inputs.items():
        tensor = tf.make_tensor_proto(array).SerializeToString()
        request += elwc.field(2, elwc.field(1, name.encode()) + elwc.field(2, tensor))
    return elwc.field(6, elwc.field(1, request))  # predict_log { request }
