"""What stands beside the graph of a SavedModel: its manifest, and the requests that warm it up."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfrank_sel
from tfrank_sel.data import wire
from tfrank_sel.data.spec import FeatureSpec

FOLDER = "assets.extra"
MANIFEST = f"{FOLDER}/manifest.json"
WARM_UP = f"{FOLDER}/tf_serving_warmup_requests"


def write_manifest(saved_model: Path, spec: FeatureSpec, metadata: Mapping[str, Any]) -> None:
    """Writes what a SavedModel expects and where it comes from.

    Args:
        saved_model: Folder of the SavedModel.
        spec: Names of the parts of an example and number of features.
        metadata: What else to tell.
    """
    digest = hashlib.sha256()
    for file in sorted((saved_model / "variables").glob("variables.data-*")):
        digest.update(file.read_bytes())
    manifest = {
        "features": spec.get_config(),
        "weights_sha256": digest.hexdigest(),
        "versions": {
            "tfrank_sel": tfrank_sel.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
        **metadata,
    }
    path = saved_model / MANIFEST
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(manifest, indent=2) + "\n")


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
