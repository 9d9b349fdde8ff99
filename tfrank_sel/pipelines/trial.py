"""The step `export`, and the trial of an exported model with requests of real lists."""

import base64
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import data, export as exports, models
from tfrank_sel.data import elwc, letor, packed, typed, writing
from tfrank_sel.data.formats import Schema
from tfrank_sel.export.saved_model import CARD
from tfrank_sel.pipelines import interrupts
from tfrank_sel.pipelines.analysis.statistics import Split
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.saved import RecordScorer, TracedScorer
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored
from tfrank_sel.pipelines.ingestion.job import Job
from tfrank_sel.pipelines.ingestion.stored import Scorer
from tfrank_sel.pipelines.reporting import card
from tfrank_sel.training.fitting import Trained

WARM_UP_LISTS = 4
TRIED_LISTS = 16  # by the signatures of an export
TOLERANCE = 1e-5


def export(
    job: Job,
    progress: Progress,
    folder: Path,
    ours: Trained,
    score: Scorer,
    splits: Mapping[str, Split],
    measured: Evaluation,
    facts: Mapping[str, Any],
) -> RecordScorer:
    """Exports and tests a model: `saved_model/`, and a query of the test split, also for REST.

    Args:
        job: The job.
        progress: Progress display.
        folder: Folder to write to.
        ours: The model.
        score: Its scoring function, as a graph.
        splits: The splits.
        measured: The evaluation of the model.
        facts: Facts for the model card, as from `card.facts`.

    Returns:
        The exported model, loaded.
    """
    configuration, test, held_out = job.configuration, splits["test"], splits["validation"]
    schema, saved_model = test.layout, folder / "saved_model"
    with progress.step("export") as step, interrupts.deferred():
        if method := configuration.serving.recalibration:
            model = _recalibrated(ours.model, held_out.batches(), method)
            ours = dataclasses.replace(ours, model=model)
            score = TracedScorer(ours.scores, test.inputs)
            step.tell(f"scores are expected labels: {method}")
        exports.export(
            ours.model,
            schema.types or schema.spec,
            saved_model,
            doc_id=schema.spec.doc_id,
            examples=first_lists(held_out.shards, schema, WARM_UP_LISTS),
            metadata={
                "metrics": {name: x.ours for name, x in measured.overall.items()},
                "feature_names": schema.names,
                "card": facts,
            },
            score=score,
        )
        folders.write_text(saved_model / CARD, card.text(facts))
        as_onnx = folder / "model.onnx" if configuration.export.onnx else None
        if as_onnx is not None:
            try:
                exports.onnx(ours.model, as_onnx)
            except ValueError as error:
                raise configuration.error("export.onnx", str(error)) from error
    with progress.step("infra validation") as step, interrupts.deferred():
        exported = RecordScorer(str(saved_model), schema.features)
        gap = infra_validate(
            exported, score, schema, test.shards, lists=TRIED_LISTS, as_onnx=as_onnx
        )
        step.tell(f"every signature scores as the model does, to {gap:.1g}")
    # the first list with two different labels
    lists = stored.lists(test.shards, schema.spec)
    first = next(x for x in lists if x.labels.min() < x.labels.max())
    one_query = "one_query.txt" if schema.types is None else "one_query.jsonl"
    text = letor.text(first) if schema.types is None else typed.text(first, schema.types)
    folders.write_text(folder / one_query, text)
    folders.write_text(folder / folders.REQUEST, rest_request(first, schema))
    return exported


def _recalibrated(
    model: keras.Model, lists: tf.data.Dataset, method: Literal["isotonic", "platt"]
) -> models.Recalibrated:
    """The model, with expected labels by the validation split in place of scores."""
    try:
        return models.recalibrate(model, lists, method)
    except ValueError as error:
        raise data.InputError("validation", f"serving.recalibration: {error}") from error


def first_lists(shards: Sequence[str], schema: Schema, count: int) -> list[bytes]:
    """Returns the first lists of TFRecord files as requests for a server.

    Args:
        shards: TFRecord files of the packed layout.
        schema: Schema of the lists.
        count: Number of lists.

    Returns:
        Serialized `ExampleListWithContext`.
    """
    found = itertools.islice(stored.lists(shards, schema.spec), count)
    return [request(one, schema) for one in found]


def request(one: data.ItemList, schema: Schema) -> bytes:
    """Returns a list as a request, an `ExampleListWithContext`: see `first_lists`."""
    spec, types = schema.spec, schema.types
    if types is None:
        return elwc.serialize(
            one.features,
            spec,
            labels=one.labels,
            doc_ids=[doc_id.encode() for doc_id in one.doc_ids],
            query_id=one.query_id.encode(),
        )
    values = {spec.doc_id: one.doc_ids, **typed.values(one, types)}
    return writing.serialize_elwc(values, typed.list_features(types, spec.doc_id))


def rest_request(one: data.ItemList, schema: Schema) -> str:
    """Returns a list as the body of a POST to `:predict` of a server.

    The body is for the signature `predict`, with each feature by name. A list with a missing
    number, for which JSON has no text, is for `rank_top_k`: a serialized example.

    Args:
        one: The list.
        schema: Schema of the list.
    """
    example = request(one, schema)
    arrays = {name: x.numpy() for name, x in _dense([example], schema).items()}
    if any(x.dtype.kind == "f" and np.isnan(x).any() for x in arrays.values()):
        examples = [{"b64": base64.b64encode(example).decode()}]
        body = {"signature_name": "rank_top_k", "inputs": {"examples": examples, "k": [10]}}
        return json.dumps(body, indent=1) + "\n"
    lines = [f"  {json.dumps(name)}: {json.dumps(_plain(x))}" for name, x in arrays.items()]
    return '{\n "signature_name": "predict",\n "inputs": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _dense(examples: Sequence[bytes], schema: Schema) -> dict[str, tf.Tensor]:
    """The inputs of the signature `predict`, by name."""
    taken, doc_id = schema.types or schema.spec, schema.spec.doc_id
    return exports.dense_inputs(tf.constant(examples), taken, doc_id=doc_id)


def _plain(array: np.ndarray) -> list[object]:
    """Values for JSON; a float32 has as few digits as it needs."""
    if array.dtype == object:
        return np.vectorize(bytes.decode, otypes=[object])(array).tolist()
    if array.dtype.kind == "f":
        array = array.astype(str).astype(float)
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
    records = itertools.chain.from_iterable(map(stored.records, shards))
    parsed = packed.parse(tf.constant(list(itertools.islice(records, lists))), spec)
    mask = parsed["mask"].numpy()
    expected = model(stored.inputs(parsed, spec)).numpy()
    signatures = exported.signatures
    examples, dense = tf.constant(requests), _dense(requests, schema)
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
            f"{exported.folder} must score as the model does, to {TOLERANCE:g}. "
            f"Received: a difference of {worst:.3g}"
        )
    return worst


def difference(scores: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference of scores, relative for scores beyond 1."""
    return float(np.max(np.abs(scores - expected) / np.maximum(np.abs(expected), 1.0), initial=0.0))
