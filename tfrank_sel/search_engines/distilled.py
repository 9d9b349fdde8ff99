"""Rankers of runs as files of engines: as ONNX, or as trees that learned their scores."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrank_sel import export as exports, losses, models
from tfrank_sel.data import Cache, Schema
from tfrank_sel.errors import refusal
from tfrank_sel.features import Bool, Number
from tfrank_sel.locks import atomic_path
from tfrank_sel.pipelines import Run, open_run
from tfrank_sel.search_engines.elastic import queries_of_file
from tfrank_sel.search_engines.trees import Absent, ways_of
from tfrank_sel.training import trees

METRIC = "NDCG@10"


def export(
    folder: str, output: Path, engine: str, version: str | None, missing: float, features: str
) -> None:
    """Writes the file of an engine, and prints what the trees lose on the test split.

    The trees learn the differences of the ranker's scores within each list of the training split,
    until the NDCG@10 of the validation split gets no better. They are also written as a Keras
    model, with the suffix `.keras`. The file for Vespa is the ranker itself, as ONNX.

    Args:
        folder: Folder or URL of a run whose model is exported.
        output: File to write.
        engine: As in `export.search_engine`, and so is `version`.
        version: Version of the engine.
        missing: Value that the trees learn from in place of NaN in the table of the run. If it is
            NaN, and the engine takes an absent feature for 0, they learn from 0.
        features: For Elasticsearch, the file of the queries of features.

    Raises:
        tfrank_sel.data.InputError: If the folder is not such a run.
        ValueError: If a feature is no number of its own, or there is no file for this version.
    """
    run = open_run(folder)
    if engine == "vespa":
        exports.onnx(run.trained_models["ours"].model, output)
        return
    names = _names(run.output, run.records.layout)
    stored = _queries(features, names) if engine == "elasticsearch" else names
    if Absent.IS_ZERO in ways_of(engine, version) and math.isnan(missing):
        missing = 0.0
    with atomic_path(output) as written, atomic_path(output.with_suffix(".keras")) as model:
        boosted = _distill(run, missing)
        exports.search_engine(boosted, written, engine, stored, version=version, missing=missing)
        with tempfile.TemporaryDirectory() as scratch:  # Keras saves by the name's end
            saved = Path(scratch, "trees.keras")
            boosted.save(saved)
            model.write_bytes(saved.read_bytes())


def _names(folder: Path, schema: Schema) -> Sequence[str]:
    others = {x: y.type for x, y in schema.features.items() if not isinstance(y, Number | Bool)}
    if others:
        expected = "engines compute numbers with a name each: its features must be numbers"
        raise refusal(f"{folder}: {expected}", ", ".join(f"{x}, a {y}" for x, y in others.items()))
    return schema.names


def _queries(path: str, names: Sequence[str]) -> dict[str, Any]:
    queries = queries_of_file(path)
    if lacking := [name for name in names if name not in queries]:
        expected = f"{path} must have the features of the run: it lacks {', '.join(lacking)}"
        raise refusal(expected, ", ".join(queries))
    return {name: queries[name] for name in names}


def _distill(run: Run, missing: float) -> models.BoostedTrees:
    """Trees that learned the ranker's scores, whose loss it tells."""
    train, held_out, test = (run.splits[x] for x in ("train", "validation", "test"))
    gain, seed = run.settings.gain, run.settings.seed

    def fill_missing(inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        x = inputs["features"]
        return tf.where(tf.math.is_nan(x), missing, x)

    def batches(
        lists: Iterable[tuple[Any, ...]], ranker: Callable[..., tf.Tensor] | None
    ) -> Iterator[tuple[Any, ...]]:
        for inputs, *labels in lists:
            if ranker is not None:
                labels = [tf.where(inputs["mask"], ranker(inputs), math.nan)]
            yield {"features": fill_missing(inputs), "mask": inputs["mask"]}, *labels

    with tempfile.TemporaryDirectory() as scratch:
        with run.progress.step("trees") as step:
            step.reads(train.shards, times=2)
            measured = Cache.write(batches(held_out.batches(), None), f"{scratch}/validation")
            learned = Cache.write(batches(train.batches(), run.exported_model), f"{scratch}/scores")
            binned = trees.Binned(learned, measured, {})
            boosted, *_ = trees.train(losses.MarginMSELoss(), binned, seed, gain=gain)
            step.tell(f"{boosted.num_trees} trees learned the scores of the ranker")
            learned = Cache.write(batches(train.batches(), None), f"{scratch}/labels")
            binned = trees.Binned(learned, measured, {})
            of_labels, *_ = trees.train(trees.LAMBDARANK, binned, seed, gain=gain)
        with run.progress.step("evaluation") as step:
            evaluated = run.compare(
                lambda inputs: boosted(fill_missing(inputs)),
                {"trees of the labels": lambda inputs: of_labels(fill_missing(inputs))},
            )
            step.tell(f"{test.statistics.lists} queries of the test split")
            against = {evaluated.against: evaluated.overall, **evaluated.simple}
            for name, compared in against.items():
                step.tell(compared[METRIC].describe(f"trees: {METRIC}", name))
    return boosted
