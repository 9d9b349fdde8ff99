"""Scaling component: statistics and preparation for training, computed by Beam."""

import dataclasses
import functools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts
from tfx.utils import io_utils
from tfx.v1.dsl.components import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    Parameter,
    component,
)

from tfrank_sel import models
from tfrank_sel.data import Lists
from tfrank_sel.data.schema import Schema
from tfrank_sel.errors import refusal
from tfrank_sel.pipelines import (
    GateError,
    Gates,
    Statistics,
    Summary,
    anomalies,
    check_named,
    failures,
    fit_preparation,
)
from tfrank_sel.pipelines.runners import beams
from tfrank_sel.pipelines.tfx import base_models
from tfrank_sel.pipelines.tfx.sequences import PARSED_AT_ONCE, SequenceSchema, pattern

SPLITS = ("train", "eval", "test")

_log = logging.getLogger(__name__)


@component(use_beam=True)
def Scaling(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    scaling: OutputArtifact[standard_artifacts.HyperParameters],
    columns: Parameter[str],
    champion: InputArtifact[standard_artifacts.Model] = None,
    warm_start: Parameter[int] = 0,
    gates: Parameter[str] = "{}",
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Writes the preparation of the split `train`, if the data passes the gates.

    `scaling` gets the result of `trainer_inputs`, as JSON. `columns` is the config of the `Columns`
    of the lists, and `gates` the section `Gates`, both as JSON. `champion` is the latest blessed
    model, if there is one. With `warm_start`, its vocabularies are kept, and new values are
    appended.
    """
    layout = SequenceSchema.load(schema.uri, columns)
    before = None
    if champion and warm_start:
        before = base_models.preparation(champion.uri, layout.features)
    scratch = os.path.join(scaling.uri, ".statistics")
    summary = beams.Combine(Summary(functools.partial(items, layout=layout), layout.features))
    with beam_pipeline as pipeline:
        for split in SPLITS:
            values = (
                pipeline
                | f"Read[{split}]" >> beam.io.ReadFromTFRecord(pattern(examples, split))
                | f"Batch[{split}]" >> beam.BatchElements(max_batch_size=PARSED_AT_ONCE)
                | f"Sum[{split}]" >> beam.CombineGlobally(summary)
                | f"Values[{split}]" >> beam.Map(dataclasses.asdict)
            )
            beams.gather(values, os.path.join(scratch, split))
    summaries = {split: next(beams.read_gathered(os.path.join(scratch, split))) for split in SPLITS}
    fileio.rmtree(scratch)
    statistics = {split: Statistics.of(values) for split, values in summaries.items()}
    config = trainer_inputs(statistics, layout, before)
    reference = base_models.statistics(champion.uri) if champion else None
    check(statistics, reference, layout.columns.measures["label"], Gates.model_validate_json(gates))
    io_utils.write_string_file(os.path.join(scaling.uri, base_models.SCALING), json.dumps(config))


def items(serialized: Sequence[bytes], layout: SequenceSchema) -> Lists:
    """Returns the items of serialized lists."""
    inputs, labels, *_ = layout.inputs(tf.constant(serialized))
    arrays = {name: x.numpy() for name, x in inputs.items()}
    mask = arrays["mask"]
    texts = arrays["texts"][mask] if "texts" in arrays else np.zeros([mask.sum(), 0], object)
    return Lists.of(mask.sum(axis=1), arrays["features"][mask], texts, label=labels.numpy()[mask])


def trainer_inputs(
    by_split: Mapping[str, Statistics], schema: Schema, before: models.Preparation | None = None
) -> dict[str, Any]:
    """Returns the inputs for Trainer, as JSON-ready values.

    Args:
        by_split: The statistics of the splits, by name.
        schema: Schema of their lists.
        before: As in `preparation.fit_preparation`.

    Returns:
        The config of the `models.Preparation` of `train` as `preparation`, and its statistics as
        `statistics`.

    Raises:
        ValueError: If a split has no item.
        tfrank_sel.data.InputError: If a vocabulary would be empty.
    """
    for split, statistics in by_split.items():
        if not statistics.items:
            raise refusal(f"the split {split!r} must hold a list with items", "none")
    train = by_split["train"]
    preparation = fit_preparation(train, schema, True, before)
    return {"preparation": preparation.get_config(), "statistics": dataclasses.asdict(train)}


def check(
    by_split: Mapping[str, Statistics], reference: Statistics | None, label: str, gates: Gates
) -> None:
    """Logs the anomalies of splits, and checks them against the gates.

    Args:
        by_split: The statistics of the splits, by name; the others are compared with `train`.
        reference: Training statistics of the champion, to compare `train` with.
        label: Name of the label.
        gates: The gates.

    Raises:
        GateError: If an anomaly fails.
        tfrank_sel.data.InputError: If a gate names an unknown feature.
    """
    train = by_split["train"]
    check_named(gates, label, [x for x in (train, reference) if x])
    by_name = {
        split: anomalies(train, statistics, label=label, gates=gates)
        for split, statistics in by_split.items()
        if split != "train"
    }
    if reference is not None:
        of = "the champion's training"
        by_name["train"] = anomalies(reference, train, of=of, label=label, gates=gates)
    for split, of_split in by_name.items():
        for anomaly in of_split:
            _log.info("%s: %s", split, anomaly)
    if lines := failures(by_name):
        raise GateError(lines)
