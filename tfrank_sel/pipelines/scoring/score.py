"""Scoring of files of lists by an exported model, and evaluation on new data."""

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel import artefacts, data
from tfrank_sel.data import formats, packed, resumption, stores
from tfrank_sel.data.formats import Columns, Schema, TableReader
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.export.saved_model import read_manifest
from tfrank_sel.features import REFUSE, FeatureTypes
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.configuration import Configuration, Override
from tfrank_sel.pipelines.configuration.data import Data
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation import evaluation
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.saved import RecordScorer, SavedInputs
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import ingest, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import Inputs, expand
from tfrank_sel.pipelines.ingestion.shards import Piece, split_shards
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists, Tensors
from tfrank_sel.pipelines.runners import Options
from tfrank_sel.pipelines.scoring import rankings
from tfrank_sel.version import __version__

DEAD_LETTERS = "_dead_letters.jsonl"  # Spark and Arrow ignore names that begin with `_`
_SPLIT = "data"
# Number of lists that are scored at once.
_BATCH = 64
# Number of features that an explanation names.
_NAMED = 5
# The section `[data]` with its default values.
DATA = Data()


def inputs(
    models: Sequence[str | Path],
    files: Sequence[str],
    named: Data = DATA,
    *,
    label: str | None = None,
    doc_id: str | None = None,
) -> Inputs:
    """Returns the inputs for models: the features that at least one of them takes.

    Args:
        models: Folders or URLs of SavedModels from `tfrank_sel.export`.
        files: Paths, URLs and globs.
        named: Format of the files, names of the query and of other values to keep, and maximum
            number of bad lines.
        label: Name of the relevance label; None to not read it.
        doc_id: Name of the item identifier; None for that of the first model.

    Raises:
        tfrank_sel.data.InputError: If a folder is not such a model, a pattern matches no file, the
            files have different formats, or a name has two roles.
        ValueError: If there is no such format.
    """
    taken = [SavedInputs.read(model) for model in models]
    first = taken[0]
    sources = expand(files)
    reader = formats.reader([source.path for source in sources], None, named.format)
    features: Sequence[str] | FeatureTypes = _features(taken)
    if all(model.names for model in taken):  # finite numbers need no types
        # All numbers of records and LETOR files are read, and each model selects its own.
        features = tuple(features) if isinstance(reader, TableReader) else ()
    try:
        columns = Columns(
            named.query,
            label,
            doc_id or first.inputs.doc_id,
            features,
            tuple(named.slice_by),
            len(first.names) or None,
        )
    except ValueError as error:  # a name has two roles
        raise InputError(sources[0].path, str(error)) from error
    shares, most = {_SPLIT: 1.0}, named.allow_bad_lines
    return Inputs(sources, columns, shares, most, named.adjacent, named.format)


def settings(model: str | Path) -> list[Override]:
    """Returns the gain and the seed of the training of a model, as its manifest tells them.

    Args:
        model: Folder or URL of a SavedModel from `tfrank_sel.export`; of others, nothing is known.
    """
    told: Any = read_manifest(model)
    for part in ("card", "model", "settings"):
        told = told.get(part) if isinstance(told, Mapping) else None
    named = {"gain": "evaluation.gain", "seed": "training.seed"}
    return [
        Override(key, told[x], f"{model}: {x}") for x, key in named.items() if x in (told or ())
    ]


def _features(models: Sequence[SavedInputs]) -> FeatureTypes:
    """The features of all models; a feature is required if one of the models requires it."""
    merged: dict[str, Any] = {}
    for model in sorted(models, key=lambda model: bool(model.names)):
        for name, feature in model.features.items():
            earlier = merged.setdefault(name, feature)
            if earlier.numbers(name) and not feature.may_be_missing:
                merged[name] = dataclasses.replace(earlier, missing=REFUSE)
    return merged


@dataclasses.dataclass(frozen=True)
class ScoredFiles:
    """The result of scoring.

    Args:
        files: Paths or URLs of the files of ranked lists.
        report: Summary of the input, as in `ingest.json` of a run.
    """

    files: Sequence[str]
    report: Mapping[str, Any]


def score(
    model: str | Path,
    inputs: Inputs,
    output: str | Path,
    progress: Progress,
    *,
    format: str = "parquet",
    lists_per_file: int = 10_000,
    explain: int = 0,
    options: Options = None,
) -> ScoredFiles:
    """Ranks the lists of files, and writes them with ranks and scores.

    If the call is interrupted after ingest, the folder `.NAME.partial` next to the output is kept.
    The same call then continues: it does not repeat records or complete files. On disk, the output
    appears when it is complete. In a store, complete files appear one by one, and an empty
    `_SUCCESS` marks the end.

    Args:
        model: Folder or URL of a SavedModel from `tfrank_sel.export`.
        inputs: Input files: see `inputs`.
        output: Folder or URL to create; new or empty. It gets `scores-00000-of-00012.parquet` and
            so on, with the columns of `rankings.SCHEMA`: the items of a list are adjacent, in the
            order of their ranks from 1.
        progress: Progress display.
        format: Format of the files: a key of `rankings.WRITERS`.
        lists_per_file: Number of lists in a file.
        explain: Number of first items of each list that are explained against the next item. If
            positive, the files have the column `contributions`: the five features that contribute
            most to the difference of the two scores, as JSON, the largest first.
        options: Options of Beam; None for this process.

    Raises:
        tfrank_sel.data.InputError: If the input, the model or the output folder is invalid.
    """
    target = str(output).rstrip("/") if stores.is_remote(output) else os.path.abspath(output)
    scorer = RecordScorer(str(model), (layout := inputs.schema()).features)
    state = {
        "version": __version__,
        "model": _version(str(model)),
        "files": [_version(source.path) for source in inputs.sources],
        "inputs": [inputs.columns.get_config(), inputs.adjacent, inputs.allow_bad_lines],
        "output": [format, lists_per_file, explain],
    }
    if explain:
        scorer.check_explains()
    with resumption.resume(target, state) as folder:
        with progress.step("ingest") as step, folders.room_for(target):
            step.reads(source.path for source in inputs.sources)
            report = _ingest(inputs, layout, folder, state, options)
            counted = report["splits"][_SPLIT]
            step.tell(f"{counted['lists']} lists, {counted['items']} items")
            if report["rejected"]["count"]:
                left_out = stores.join(target, DEAD_LETTERS)
                step.tell(f"{report['rejected']['count']} left out: see {left_out}")
        with progress.step("scoring") as step, folders.room_for(target):
            made = target
            if not stores.is_remote(target):
                made = stores.join(folder, "scores")
                os.makedirs(made, exist_ok=True)
            records = folders.shards(stores.join(folder, "records", _SPLIT))
            pieces = split_shards(records, lists_per_file)
            todo = {
                stores.join(made, f"scores-{i:05d}-of-{len(pieces):05d}.{format}"): piece
                for i, piece in enumerate(pieces)
            }
            left = sorted(todo.keys() - set(stores.find(made)))
            complete = len(todo) - len(left)
            step.tell(f"{len(todo)} files" + (f", {complete} of them found" if complete else ""))
            step.reads(path for file in left for path, _, _ in todo[file].spans)
            task = _Score(scorer, layout.spec, explain)
            runners.each([(todo[file], file) for file in left], task, options)
            _finish(folder, made, target)
    return ScoredFiles([x.replace(made, target, 1) for x in todo], report)


def _finish(folder: str, made: str, output: str) -> None:
    """Moves the results to the output folder, and completes it."""
    letters = stores.join(folder, "told", "dead_letters.jsonl")
    if stores.is_file(letters):
        stores.copy(letters, stores.join(made, DEAD_LETTERS))
    if not stores.is_remote(output):
        for partial in Path(made).glob(".*"):  # left by a killed worker
            # The worker may still finish, so its file may be gone.
            partial.unlink(missing_ok=True)
    resumption.finish(folder, made, output)


@dataclasses.dataclass
class _Score:
    """Writes pieces of records to files of ranked lists, one path or URL for each piece.

    See `runners.Task`.
    """

    scorer: RecordScorer
    spec: data.FeatureSpec
    explain: int

    def setup(self) -> None:
        query = {self.spec.query_id: tf.io.FixedLenFeature([], tf.string)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def score_records(records: tf.Tensor) -> tuple[Any, ...]:
            parsed = packed.parse(records, self.spec)
            [queries] = tf.io.parse_example(records, query).values()
            inputs = stored_lists.inputs(parsed, self.spec)
            return (queries, parsed[self.spec.doc_id], self.scorer(inputs), parsed["mask"]), inputs

        self.scored = score_records

    def process(self, element: tuple[Piece, str]) -> None:
        piece, path = element
        records = piece.records()
        schema = rankings.EXPLAINED if self.explain else rankings.SCHEMA
        with rankings.open_writer(path, schema) as write:
            while batch := list(itertools.islice(records, _BATCH)):
                outputs, inputs = self.scored(tf.constant(batch))
                queries, doc_ids, scores, mask = (x.numpy() for x in outputs)
                ranked, order = rankings.table(queries, doc_ids, scores, mask)
                if self.explain:
                    contributions = self._contributions(inputs, order, mask)
                    ranked = ranked.append_column(schema[-1], [contributions])
                write(ranked)

    def _contributions(
        self, inputs: Tensors, order: np.ndarray, mask: np.ndarray
    ) -> list[str | None]:
        """What puts the first items of lists above the next, for each row of ranked lists."""
        ranks, sizes = np.arange(mask.shape[1]), mask.sum(axis=1, keepdims=True)
        lists, places = np.nonzero((ranks < self.explain) & (ranks < sizes - 1))
        texts = np.full(mask.shape, None, object)
        if len(lists):
            pairs = np.stack([order[lists, places], order[lists, places + 1]], axis=1)
            taken = {name: tf.gather(x, lists) for name, x in inputs.items()}
            names, values = self.scorer.explain(taken, tf.constant(pairs, tf.int32))
            for i, index, parts in zip(lists, places, values.tolist(), strict=True):
                largest = sorted(zip(names, parts, strict=True), key=lambda x: -abs(x[1]))[:_NAMED]
                texts[i, index] = json.dumps({name: float(f"{x:.6g}") for name, x in largest if x})
        return texts[ranks < sizes].tolist()


def judge(
    model: str | Path,
    inputs: Inputs,
    configuration: Configuration,
    progress: Progress,
    *,
    against: str | Path | None = None,
    metrics: str | Path | None = None,
    options: Options = None,
) -> Evaluation:
    """Evaluates a model on new lists, by slice and with intervals.

    Args:
        model: Folder or URL of a SavedModel from `tfrank_sel.export`.
        inputs: Input files for both models: see `inputs`.
        configuration: Its `evaluation.gain`, `training.seed` and `blessing.metric`: MRR is left out
            if it is another and all labels are above 0.
        progress: Progress display.
        against: Folder or URL of another model to compare with; a random order if None.
        metrics: Path or URL of a file for the metrics, as JSON.
        options: Options of Beam; None for this process.

    Raises:
        tfrank_sel.data.InputError: If the input or a model is invalid.
    """
    layout = inputs.schema()
    ours = RecordScorer(str(model), layout.features)
    baseline = None if against is None else RecordScorer(str(against), layout.features)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with progress.step("ingest") as step:
            ingested = ingest.ingest(inputs, layout, folder, options=options)
            for line in ingest.summary(ingested.report):
                step.tell(line)
        with progress.step("evaluation") as step:
            lists = StoredLists(ingested.shards[_SPLIT], layout.spec, layout.context)
            evaluated = evaluation.evaluate(
                ours,
                baseline,
                lists,
                str(folder),
                seed=configuration.training.seed,
                gain=configuration.evaluation.gain,
                has_irrelevant=configuration.blessing.metric == "MRR" or lists.has_irrelevant,
                pipeline=runners.pipeline(options),
            )
            step.tell(f"{ingested.report['splits'][_SPLIT]['lists']} queries")
    if metrics is not None:
        folders.write_json(metrics, evaluated.figures())
    return evaluated


def _ingest(
    inputs: Inputs,
    layout: Schema,
    folder: str,
    state: Mapping[str, Any],
    options: Options,
) -> Mapping[str, Any]:
    """Writes records, unless an earlier call has; returns a summary of the input."""
    if not resumption.can_resume(folder):
        near = None if stores.is_remote(folder) else folder
        with tempfile.TemporaryDirectory(dir=near) as here:
            records = stores.join(folder, "records")
            ingest.ingest(inputs, layout, Path(here), records=records, options=options)
            folders.link(here, stores.join(folder, "told"))
        resumption.save(folder, state)
    return json.loads(stores.read_text(stores.join(folder, "told", "ingest.json")))


def _version(path: str) -> list[tuple[str, int, str]]:
    """The state of a file, or of the files of a folder, to detect changes."""
    try:
        states = stores.states(path) if stores.is_dir(path) else {path: stores.state(path)}
    except OSError as error:
        raise rejection(path, "expected a readable file", error) from error
    where = str if stores.is_remote(path) else os.path.abspath
    return sorted((artefacts.address(where(name)), *state) for name, state in states.items())
