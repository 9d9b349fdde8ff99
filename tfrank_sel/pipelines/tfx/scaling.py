"""Scaling: what the model has to know of the data before it is trained, summed up by Beam."""

import functools
import json
import os

import apache_beam as beam
from tfx.types import standard_artifacts
from tfx.v1.dsl.components import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    Parameter,
    component,
)

from tfrank_sel import models
from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.analysis.statistics import Statistics, Summary
from tfrank_sel.pipelines.preparation import prepared
from tfrank_sel.pipelines.splits import Split
from tfrank_sel.pipelines.tfx import base_models
from tfrank_sel.pipelines.tfx.lists import PARSED_AT_ONCE, Layout, pattern


@component(use_beam=True)
def Scaling(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    scaling: OutputArtifact[standard_artifacts.HyperParameters],
    columns: Parameter[str],
    base_model: InputArtifact[standard_artifacts.Model] = None,
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Writes the config of the `models.Preparation` of the split `train`, as JSON.

    `columns` is the config of the `Columns` of the lists, as JSON. The vocabularies of
    `base_model`, if there is one, are kept, and new values follow them.
    """
    layout = Layout.load(schema.uri, Columns.from_config(json.loads(columns)))
    before = base_model and base_models.preparation(base_model.uri, layout.features)
    with beam_pipeline as pipeline:
        found = {
            split: pipeline
            | f"Read[{split}]" >> beam.io.ReadFromTFRecord(pattern(examples, split))
            | f"Batch[{split}]" >> beam.BatchElements(max_batch_size=PARSED_AT_ONCE)
            | f"Sum[{split}]" >> beam.CombineGlobally(Summary(layout.inputs, layout.features))
            | f"Described[{split}]"
            >> beam.Map(functools.partial(described, split, layout, before=before))
            for split in ("train", "eval")
        }
        path = os.path.join(scaling.uri, "scaling.json")
        found["train"] | beam.io.WriteToText(path, shard_name_template="")


def described(
    split: str, layout: Layout, found: Statistics, before: models.Preparation | None = None
) -> str:
    """Returns what `Scaling` writes.

    Args:
        split: Name of the split.
        layout: What its lists hold.
        found: Its statistics.
        before: As in `preparation.prepared`.

    Raises:
        tfrank_sel.data.InputError: If the split has no item, or a vocabulary would be empty.
    """
    if not found.items:
        raise ValueError(f"the split {split!r} must hold a list with items. Received: none")
    preparation = prepared(Split((), found), layout, True, before)
    return json.dumps(preparation.get_config())
