"""Trial of an exported model: requests of real lists, and the scores that they must give."""

import base64
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfrank_sel import data, export
from tfrank_sel.data import elwc, packed, typed, writing
from tfrank_sel.features import Feature
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.ingestion import stored

TOLERANCE = 1e-5


def first_lists(
    shards: Sequence[str],
    spec: data.FeatureSpec,
    count: int,
    features: Mapping[str, Feature] | None = None,
) -> list[bytes]:
    """Returns the first lists of TFRecord files as requests for a server.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        count: Number of lists.
        features: Type of each feature, if the server takes them by name.

    Returns:
        Serialized `ExampleListWithContext`.
    """
    found = itertools.islice(stored.lists(shards, spec), count)
    return [request(one, spec, features) for one in found]


def request(
    one: data.ItemList, spec: data.FeatureSpec, features: Mapping[str, Feature] | None = None
) -> bytes:
    """Returns a list as a request, an `ExampleListWithContext`: see `first_lists`."""
    if features is None:
        return elwc.serialize(
            one.features,
            spec,
            labels=one.labels,
            doc_ids=[doc_id.encode() for doc_id in one.doc_ids],
            query_id=one.query_id.encode(),
        )
    values = {spec.doc_id: one.doc_ids, **typed.values(one, features)}
    return writing.serialize_elwc(values, typed.list_features(features, spec.doc_id))


def rest_request(
    one: data.ItemList, spec: data.FeatureSpec, features: Mapping[str, Feature] | None = None
) -> str:
    """Returns a list as the body of a POST to `:predict` of a server.

    The body is for the signature `predict`, with each feature by name. A list with a missing
    number, for which JSON has no text, is for `rank_top_k`: a serialized example.

    Args:
        one: The list.
        spec: Names of the parts and number of features.
        features: Type of each feature, if the server takes them by name.
    """
    example = request(one, spec, features)
    inputs = export.dense_inputs(
        tf.constant([example]), spec if features is None else features, doc_id=spec.doc_id
    )
    arrays = {name: x.numpy() for name, x in inputs.items()}
    if any(x.dtype.kind == "f" and np.isnan(x).any() for x in arrays.values()):
        examples = [{"b64": base64.b64encode(example).decode()}]
        body = {"signature_name": "rank_top_k", "inputs": {"examples": examples, "k": [10]}}
        return json.dumps(body, indent=1) + "\n"
    lines = [f"  {json.dumps(name)}: {json.dumps(_plain(x))}" for name, x in arrays.items()]
    return '{\n "signature_name": "predict",\n "inputs": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _plain(array: np.ndarray) -> list[object]:
    """Values for JSON; a float32 has as few digits as it needs."""
    if array.dtype == object:
        return np.vectorize(bytes.decode, otypes=[object])(array).tolist()
    if array.dtype.kind == "f":
        array = array.astype(str).astype(float)
    return array.tolist()


def infra_validate(
    saved_model: Path,
    model: Scorer,
    spec: data.FeatureSpec,
    shards: Sequence[str],
    *,
    lists: int,
    features: Mapping[str, Feature] | None = None,
    as_onnx: Path | None = None,
) -> float:
    """Loads a SavedModel and runs its scoring signatures on real lists.

    Args:
        saved_model: Folder of the SavedModel.
        model: Scoring function of the original model.
        spec: Names of the parts and number of features.
        shards: TFRecord files of the packed layout, whose first lists are used.
        lists: Number of lists.
        features: Type of each feature, if the server takes them by name.
        as_onnx: The model as a file of ONNX, to run as well; None if there is none.

    Returns:
        The largest difference between the scores of a signature and of the model.

    Raises:
        ValueError: If a signature's scores differ from the model's by more than 1e-5 (relative for
            scores beyond 1), or `rank_top_k` is not in the order of the scores.
    """
    examples = tf.constant(first_lists(shards, spec, lists, features))
    records = itertools.chain.from_iterable(map(stored.records, shards))
    parsed = packed.parse(tf.constant(list(itertools.islice(records, lists))), spec)
    mask = parsed["mask"].numpy()
    expected = model(stored.inputs(parsed, spec)).numpy()
    signatures = tf.saved_model.load(str(saved_model)).signatures
    dense = export.dense_inputs(
        examples, spec if features is None else features, doc_id=spec.doc_id
    )
    served = {
        "serving_default": signatures["serving_default"](examples=examples)["scores"].numpy(),
        "predict": signatures["predict"](**dense)["scores"].numpy(),
        "tensorflow/serving/predict": signatures["tensorflow/serving/predict"](inputs=examples)[
            "outputs"
        ].numpy(),
    }
    if as_onnx is not None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns that the mask may be left out
        session = onnxruntime.InferenceSession(as_onnx, options)
        taken = (*session.get_inputs(), *session.get_overridable_initializers())
        sent = {x.name: dense[x.name].numpy() for x in taken}
        [served["onnx"]] = session.run(["scores"], sent)
    k = mask.shape[1]
    ranked = signatures["rank_top_k"](examples=examples, k=tf.constant(k))
    order = np.argsort(np.where(mask, -expected, np.inf), axis=1, kind="stable")
    by_rank = np.take_along_axis(mask, order, axis=1)
    worst = difference(
        ranked["scores"].numpy()[by_rank], np.take_along_axis(expected, order, 1)[by_rank]
    )
    worst = max(worst, *(difference(scores[mask], expected[mask]) for scores in served.values()))
    if not worst <= TOLERANCE or not np.array_equal(ranked["mask"].numpy(), by_rank):
        raise ValueError(
            f"{saved_model} must score as the model does, to {TOLERANCE:g}. "
            f"Received: a difference of {worst:.3g}"
        )
    return worst


def difference(scores: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference of scores, relative for scores beyond 1."""
    return float(np.max(np.abs(scores - expected) / np.maximum(np.abs(expected), 1.0), initial=0.0))
