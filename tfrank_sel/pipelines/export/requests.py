"""Requests of real lists for a server, and the test of an exported model with them."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfrank_sel import data, export as exports
from tfrank_sel.data import packed, typed, writing
from tfrank_sel.data.formats import Schema
from tfrank_sel.errors import refusal
from tfrank_sel.features import MISSING_NUMBER
from tfrank_sel.pipelines.evaluation.saved import RecordScorer
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer

TOLERANCE = 1e-5


def first_lists(shards: Sequence[str], schema: Schema, count: int) -> list[bytes]:
    """Returns the first lists of TFRecord files as requests for a server.

    Args:
        shards: TFRecord files of the packed layout.
        schema: Schema of the lists.
        count: Number of lists.

    Returns:
        Serialized `ExampleListWithContext`.
    """
    lists = itertools.islice(stored_lists.lists(shards, schema.spec), count)
    return [request(item_list, schema) for item_list in lists]


def request(item_list: data.ItemList, schema: Schema) -> bytes:
    """Returns a list as a request, an `ExampleListWithContext`: see `first_lists`."""
    doc_id = schema.spec.doc_id
    values = {doc_id: item_list.doc_ids, **typed.values(item_list, schema.request_features)}
    return writing.serialize_elwc(values, typed.list_features(schema.request_features, doc_id))


def rest_request(item_list: data.ItemList, schema: Schema) -> str:
    """Returns a list as the body of a POST to `:predict` of a server.

    The body is for the signature `predict`, with each feature by name.

    Args:
        item_list: The list.
        schema: Schema of the list.
    """
    inputs = exports.dense_inputs(tf.constant([request(item_list, schema)]), schema)
    lines = [f"  {json.dumps(x)}: {json.dumps(_plain(y.numpy()))}" for x, y in inputs.items()]
    return '{\n "signature_name": "predict",\n "inputs": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _plain(array: np.ndarray) -> list[object]:
    """Values for JSON; a float32 has as few digits as it needs."""
    if array.dtype == object:
        return np.vectorize(bytes.decode, otypes=[object])(array).tolist()
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), MISSING_NUMBER, array.astype(str).astype(float))
    return array.tolist()


def infra_validate(
    exported: RecordScorer,
    model: Scorer,
    schema: Schema,
    shards: Sequence[str],
    *,
    lists: int,
    as_onnx: Path | None = None,
) -> float:
    """Loads an exported model and runs its scoring signatures on real lists.

    Args:
        exported: The exported model.
        model: Scoring function of the original model.
        schema: Schema of the lists.
        shards: TFRecord files of the packed layout, whose first lists are used.
        lists: Number of lists.
        as_onnx: The model as a file of ONNX, to run as well; None if there is none.

    Returns:
        The largest difference between the scores of a signature and of the model.

    Raises:
        ValueError: If a signature's scores differ from the model's by more than 1e-5 (relative for
            scores beyond 1), or `rank_top_k` is not in the order of the scores.
    """
    spec, requests = schema.spec, first_lists(shards, schema, lists)
    records = itertools.chain.from_iterable(stored_lists.blocks(shards))
    parsed = packed.parse(tf.constant(list(itertools.islice(records, lists))), spec)
    mask = parsed["mask"].numpy()
    expected = model(stored_lists.inputs(parsed, spec)).numpy()
    signatures = exported.signatures
    examples = tf.constant(requests)
    dense = exports.dense_inputs(examples, schema)
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
        [served["onnx"]] = session.run(["scores"], {x.name: dense[x.name].numpy() for x in taken})
    ranked = signatures["rank_top_k"](examples=examples, k=tf.constant(mask.shape[1]))
    order = np.argsort(np.where(mask, -expected, np.inf), axis=1, kind="stable")
    by_rank = np.take_along_axis(mask, order, axis=1)
    worst = difference(
        ranked["scores"].numpy()[by_rank], np.take_along_axis(expected, order, 1)[by_rank]
    )
    worst = max(worst, *(difference(scores[mask], expected[mask]) for scores in served.values()))
    if not worst <= TOLERANCE or not np.array_equal(ranked["mask"].numpy(), by_rank):
        reason = f"{exported.folder} must score as the model does, to {TOLERANCE:g}"
        raise refusal(reason, f"a difference of {worst:.3g}")
    return worst


def difference(scores: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference of scores, relative for scores beyond 1."""
    return float(np.max(np.abs(scores - expected) / np.maximum(np.abs(expected), 1.0), initial=0.0))
