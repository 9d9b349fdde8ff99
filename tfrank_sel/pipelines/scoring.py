"""Scoring of files of lists by an exported model, and the evaluation of one on new data."""

import dataclasses
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data
from tfrank_sel.data import formats, packed, stores
from tfrank_sel.data.formats import Columns, Layout, TableReader
from tfrank_sel.data.lists import InputError
from tfrank_sel.features import REFUSE, Feature, Number
from tfrank_sel.pipelines import artefacts, folders, outputs, rankings, runners
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation import evaluation
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.lists import PackedLists
from tfrank_sel.pipelines.evaluation.saved import RecordScorer, Takes
from tfrank_sel.pipelines.ingestion import ingest, pieces, stored
from tfrank_sel.pipelines.ingestion.inputs import Inputs, expand
from tfrank_sel.pipelines.ingestion.pieces import Piece
from tfrank_sel.version import __version__

DEAD_LETTERS = "_dead_letters.jsonl"  # what begins with `_` is no table to Spark and Arrow
_SPLIT = "data"
_BATCH = 64  # lists scored at once
_SEED = 42


def inputs(
    models: Sequence[str | Path],
    files: Sequence[str],
    *,
    query: str = Columns.query,
    label: str | None = None,
    doc_id: str | None = None,
    slice_by: Sequence[str] = (),
    format: str | None = None,
    adjacent: bool = False,
    allow_bad_lines: int = 0,
) -> Inputs:
    """Returns what to read for models: the features that one of them takes.

    Args:
        models: Folders or URLs of SavedModels that `tfrank_sel.export` wrote.
        files: Paths, URLs and globs.
        query: Name of the query's identifier.
        label: Name of the relevance; None if it is not to be read.
        doc_id: Name of the item's identifier; None for that of the first model.
        slice_by: Names of what else to keep of a query.
        format: As in `Inputs`, as all others.
        adjacent: Whether the rows of a query stand together.
        allow_bad_lines: How many lines, rows or records may be left out.

    Raises:
        tfrank_sel.data.InputError: If a folder is of no such model, a pattern names no file, the
            files are not of one format, or a name has two roles.
        ValueError: If there is no such format.
    """
    known = [Takes.read(model) for model in models]
    sources = expand(files)
    reader = formats.reader([source.path for source in sources], None, format)
    is_typed = any(model.types for model in known)
    # Of records and LETOR files, all numbers are read, and a model takes its own.
    is_named = is_typed or isinstance(reader, TableReader)
    try:
        columns = Columns(
            query,
            label,
            doc_id or known[0].doc_id,
            _features(known, is_typed) if is_named else (),
            tuple(slice_by),
            len(known[0].names) or None,
        )
    except ValueError as error:  # a name has two roles
        raise InputError(sources[0].path, str(error)) from error
    return Inputs(sources, columns, {_SPLIT: 1.0}, allow_bad_lines, adjacent, format)


def _features(models: Sequence[Takes], is_typed: bool) -> Sequence[str] | Mapping[str, Feature]:
    """The features of all models; one that may not be missing for one of them may not at all."""
    if not is_typed:
        return tuple(dict.fromkeys(name for model in models for name in model.names))
    found: dict[str, Any] = {}
    for model in sorted(models, key=lambda model: not model.types):
        types = model.types or dict.fromkeys(model.names, Number(missing=REFUSE))
        for name, feature in types.items():
            known = found.setdefault(name, feature)
            if known.numbers(name) and not feature.may_be_missing:
                found[name] = dataclasses.replace(known, missing=REFUSE)
    return found


@dataclasses.dataclass(frozen=True)
class Scored:
    """What was scored.

    Args:
        files: Paths or URLs of the files of ranked lists.
        report: What was read, as in `ingest.json` of a run.
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
    options: PipelineOptions | None = None,
) -> Scored:
    """Ranks the lists of files, and writes them with ranks and scores.

    The folder `.NAME.partial` beside the output is kept if this is interrupted after ingest. The
    same call then goes on there: records are not made again, nor files that are whole. On disk, the
    output is there when all of it is. In a store it fills file by file, each of them whole, and is
    complete when it holds an empty `_SUCCESS`.

    Args:
        model: Folder or URL of a SavedModel that `tfrank_sel.export` wrote.
        inputs: What to read: see `inputs`.
        output: Folder or URL to make; new or empty. It gets `scores-00000-of-00012.parquet` and so
            on, of the columns of `rankings.SCHEMA`: the items of a list stand together, by rank
            from 1.
        progress: Told of each step.
        format: Format of the files: a key of `rankings.WRITERS`.
        lists_per_file: Number of lists in a file.
        options: Of the Beam pipelines.

    Raises:
        tfrank_sel.data.InputError: If the input, the model or the output folder cannot be used.
    """
    place = str(output).rstrip("/") if stores.is_remote(output) else os.path.abspath(output)
    scorer = RecordScorer(str(model), (layout := inputs.layout()).features)
    state = {
        "version": __version__,
        "model": _version(str(model)),
        "files": [_version(source.path) for source in inputs.sources],
        "inputs": [inputs.columns.get_config(), inputs.adjacent, inputs.allow_bad_lines],
        "output": [format, lists_per_file],
    }
    with outputs.resumed(place, state) as folder:
        with progress.step("ingest") as step, artefacts.room_for(place):
            step.reads(source.path for source in inputs.sources)
            report = _ingested(inputs, layout, folder, state, options)
            counted = report["splits"][_SPLIT]
            step.tell(f"{counted['lists']} lists, {counted['items']} items")
            if report["rejected"]["count"]:
                left_out = stores.join(place, DEAD_LETTERS)
                step.tell(f"{report['rejected']['count']} left out: see {left_out}")
        with progress.step("scoring") as step, artefacts.room_for(place):
            made = place if stores.is_remote(place) else stores.join(folder, "scores")
            records = artefacts.shards(stores.join(folder, "records", _SPLIT))
            todo = {
                stores.join(made, f"{x}.{format}"): y
                for x, y in _todo(records, lists_per_file).items()
            }
            left = sorted(todo.keys() - set(stores.find(made)))
            found = len(todo) - len(left)
            step.tell(f"{len(todo)} files" + (f", {found} of them found" if found else ""))
            step.reads(path for one in left for path, _, _ in todo[one].spans)
            _rank([(todo[one], one) for one in left], _Score(scorer, inputs.spec(layout)), options)
            _finish(folder, made, place)
    return Scored([x.replace(made, place, 1) for x in todo], report)


def _finish(folder: str, made: str, output: str) -> None:
    """Puts what is made in its place, and what else belongs there."""
    letters = stores.join(folder, "told", "dead_letters.jsonl")
    if stores.is_file(letters):
        stores.copy(letters, stores.join(made, DEAD_LETTERS))
    if stores.is_remote(output):
        folders.write_text(stores.join(output, outputs.SUCCESS), "")
    else:
        for partial in Path(made).glob(".*"):  # of a worker that was killed
            partial.unlink(missing_ok=True)  # it may yet finish
        os.rename(made, output)
    stores.remove(stores.join(folder, outputs.STATE))


def _todo(shards: Sequence[str], lists_per_file: int) -> dict[str, Piece]:
    """The records of each file, by its name without the end."""
    cut = pieces.cut(shards, lists_per_file)
    return {f"scores-{i:05d}-of-{len(cut):05d}": piece for i, piece in enumerate(cut)}


def _rank(
    left: Sequence[tuple[Piece, str]], score: beam.DoFn, options: PipelineOptions | None
) -> None:
    with runners.pipeline(options) as pipeline:
        pipeline | beam.Create(left) | beam.Reshuffle() | beam.ParDo(score)


class _Score(beam.DoFn):
    """Pieces of records, and the path or URL of a file for each, to files of ranked lists."""

    def __init__(self, scorer: RecordScorer, spec: data.FeatureSpec) -> None:
        self.scorer, self.spec = scorer, spec

    def setup(self) -> None:
        query = {self.spec.query_id: tf.io.FixedLenFeature([], tf.string)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def scored(records: tf.Tensor) -> tuple[tf.Tensor, ...]:
            parsed = packed.parse(records, self.spec)
            [queries] = tf.io.parse_example(records, query).values()
            scores = self.scorer(stored.inputs(parsed, self.spec))
            return queries, parsed[self.spec.doc_id], scores, parsed["mask"]

        self.scored = scored

    def process(self, element: tuple[Piece, str]) -> None:
        piece, path = element
        records = piece.records()
        with rankings.written(path) as write:
            while batch := list(itertools.islice(records, _BATCH)):
                found = self.scored(tf.constant(batch))
                write(rankings.table(*(x.numpy() for x in found)))


def judge(
    model: str | Path,
    inputs: Inputs,
    progress: Progress,
    *,
    against: str | Path | None = None,
    metrics: str | Path | None = None,
    options: PipelineOptions | None = None,
) -> Evaluation:
    """Evaluates a model on new lists, by slice and with intervals.

    Args:
        model: Folder or URL of a SavedModel that `tfrank_sel.export` wrote.
        inputs: What to read, for both models: see `inputs`.
        progress: Told of each step.
        against: Folder or URL of another model to compare with; a random order takes its place if
            None.
        metrics: Path or URL of a file to write the metrics to, as JSON.
        options: Of the Beam pipelines.

    Raises:
        tfrank_sel.data.InputError: If the input or a model cannot be used.
    """
    layout = inputs.layout()
    ours = RecordScorer(str(model), layout.features)
    baseline = None if against is None else RecordScorer(str(against), layout.features)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with progress.step("ingest") as step:
            ingested = ingest.ingest(inputs, layout, folder, options=options)
            for line in ingest.summary(ingested.report):
                step.tell(line)
        with progress.step("evaluation") as step:
            lists = PackedLists(ingested.shards[_SPLIT], inputs.spec(layout), layout.context)
            pipeline = runners.pipeline(options)
            found = evaluation.evaluate(
                ours, baseline, lists, str(folder), seed=_SEED, pipeline=pipeline
            )
            step.tell(f"{ingested.report['splits'][_SPLIT]['lists']} queries")
    if metrics is not None:
        folders.write_json(metrics, found.figures())
    return found


def _ingested(
    inputs: Inputs,
    layout: Layout,
    folder: str,
    state: Mapping[str, Any],
    options: PipelineOptions | None,
) -> Mapping[str, Any]:
    """Makes records, unless an earlier call has; returns what was read."""
    if not stores.is_file(stores.join(folder, outputs.STATE)):
        told, is_remote = stores.join(folder, "told"), stores.is_remote(folder)
        with tempfile.TemporaryDirectory(dir=None if is_remote else folder) as here:
            records = stores.join(folder, "records")
            ingest.ingest(inputs, layout, Path(here), records=records, options=options)
            if is_remote:
                stores.send(here, told, last="ingest.json")
            else:
                shutil.copytree(here, told, copy_function=stores.copy)
        folders.write_json(stores.join(folder, outputs.STATE), state)
    return json.loads(stores.read_text(stores.join(folder, "told", "ingest.json")))


def _version(path: str) -> list[tuple[str, int, str]]:
    """The file, or the files of a folder, with what tells whether they have changed."""
    try:
        known = stores.states(path) if stores.is_dir(path) else {path: stores.state(path)}
    except OSError as error:
        raise InputError(path, f"expected a readable file. Received: {error}") from error
    where = str if stores.is_remote(path) else os.path.abspath
    return sorted((where(name), *found) for name, found in known.items())
