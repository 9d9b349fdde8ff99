"""Scaling: what the model has to know of the data before it is trained, summed up by Beam."""

import collections
import functools
import json
import os
from collections.abc import Iterable
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.types import standard_artifacts
from tfx.v1.dsl.components import (
    BeamComponentParameter,
    InputArtifact,
    OutputArtifact,
    component,
)

from tfrank_sel.models.summary import compressed, told_apart
from tfrank_sel.pipelines.tfx.lists import PARSED_AT_ONCE, Layout, pattern


class Totals(NamedTuple):
    """What has been seen of the lists.

    Attributes:
        moments: Of each feature, compressed as `models.ListScorer` does: how many values of the
            training split there are, their sum, and that of their squares, `[3, num_features]`.
        lists: How many lists each split has; empty ones do not count.
    """

    moments: np.ndarray
    lists: collections.Counter[str]


@component(use_beam=True)
def Scaling(  # noqa: N802
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    scaling: OutputArtifact[standard_artifacts.HyperParameters],
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Writes mean and variance of the compressed features as JSON.

    Compressed values are below 90, so that their squares may be summed up.
    """
    layout = Layout.load(schema.uri)
    with beam_pipeline as pipeline:
        totals = [
            pipeline
            | f"Read[{split}]" >> beam.io.ReadFromTFRecord(pattern(examples, split))
            | f"Batch[{split}]" >> beam.BatchElements(max_batch_size=PARSED_AT_ONCE)
            | f"Total[{split}]" >> beam.Map(functools.partial(_totals, layout=layout, split=split))
            for split in ("train", "eval")
        ]
        (
            totals
            | beam.Flatten()
            | beam.CombineGlobally(functools.partial(_sum, num_features=len(layout.features)))
            | beam.Map(functools.partial(described, names=list(layout.features)))
            | beam.io.WriteToText(os.path.join(scaling.uri, "scaling.json"), shard_name_template="")
        )


def _totals(serialized: list[bytes], layout: Layout, split: str) -> Totals:
    features, labels, sizes = (x.numpy() for x in layout.parse(tf.constant(serialized)))
    counted = collections.Counter({split: int(np.count_nonzero(sizes))})
    if split != "train":
        return _sum([], len(layout.features))._replace(lists=counted)
    rows = features[~np.isnan(labels)].astype(np.float64)
    values = compressed(rows)
    moments = np.stack([np.ones_like(values), values, np.square(values)]).sum(axis=1)
    return Totals(moments, counted)


def _sum(parts: Iterable[Totals], num_features: int) -> Totals:
    total = Totals(np.zeros([3, num_features]), collections.Counter())
    for part in parts:
        total = Totals(total.moments + part.moments, total.lists + part.lists)
    return total


def described(totals: Totals, names: list[str]) -> str:
    """Returns what `Scaling` writes.

    Args:
        totals: What has been seen.
        names: The features.

    Raises:
        ValueError: If a split has no item, or a feature is not finite throughout.
    """
    counts = {split: totals.lists[split] for split in ("train", "eval")}
    if not all(counts.values()):
        raise ValueError(f"each split must hold a list with items. Received lists: {counts}")
    count, values, squares = totals.moments
    if faulty := [name for name, value in zip(names, squares, strict=True) if not value < np.inf]:
        raise ValueError(f"features must be finite. Received others in {', '.join(faulty)}")
    mean = values / count
    variance = np.maximum(squares / count - np.square(mean), 0.0)
    found = {
        "features": names,
        "mean": mean.tolist(),
        "variance": told_apart(mean, variance).tolist(),
    }
    return json.dumps(found)
