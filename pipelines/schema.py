"""The schema of the training split, and what other splits hold against it."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipelines import artefacts
from pipelines.statistics import Statistics
from tfrank_sel import data
from tfrank_sel.data import elwc


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """Values of a split that break a rule of the schema.

    Args:
        feature: Name of the feature in the schema.
        rule: The rule, in words.
        count: Number of items (or lists) that break it.
    """

    feature: str
    rule: str
    count: int

    def __str__(self) -> str:
        return f"{self.feature}: expected {self.rule}. Received: {self.count} items that are not"


def infer(statistics: Statistics, spec: data.FeatureSpec, path: Path) -> schema_pb2.Schema:
    """Infers the schema of a split and writes it as a text proto.

    The schema names the parts of an example, and under `features[1]`, `features[2]`, ... the range
    of each of the packed features. The label's range is that of the split, from 0.

    Args:
        statistics: Statistics of the training split.
        spec: Names of the parts and number of features.
        path: File to write.

    Returns:
        The schema, of tensorflow-metadata.
    """
    schema = schema_pb2.Schema()
    packed = schema.feature.add(name=spec.features, type=schema_pb2.FLOAT)
    packed.shape.dim.add(size=spec.num_features)
    highest = max(float(label) for label in statistics.labels)
    _ranged(schema, spec.label, 0.0, highest)
    for name in (spec.doc_id, spec.query_id):
        schema.feature.add(name=name, type=schema_pb2.BYTES).shape.dim.add(size=1)
    bounds = zip(statistics.features["min"], statistics.features["max"], strict=True)
    for index, (low, high) in enumerate(bounds, start=1):
        _ranged(schema, f"{spec.features}[{index}]", low, high)
    artefacts.write_text(path, text_format.MessageToString(schema))
    return schema


def load(path: Path) -> schema_pb2.Schema:
    """Reads the schema that `infer` wrote."""
    return text_format.Parse(path.read_text(), schema_pb2.Schema())


def validate(
    shards: Sequence[str], schema: schema_pb2.Schema, spec: data.FeatureSpec, path: Path
) -> list[Anomaly]:
    """Holds a split against a schema, and writes the anomalies as JSON.

    Args:
        shards: TFRecord files of `ExampleListWithContext`.
        schema: The schema of the training split.
        spec: Names of the parts and number of features.
        path: JSON file to write.

    Returns:
        One anomaly for each rule that is broken, with the number of items that break it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    domains = {f.name: f.float_domain for f in schema.feature if f.HasField("float_domain")}
    names = [spec.label, *(f"{spec.features}[{i}]" for i in range(1, spec.num_features + 1))]
    low = np.array([domains[name].min for name in names], np.float32)
    high = np.array([domains[name].max for name in names], np.float32)
    counts_path = path.with_name(f"{path.name}.counts")
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | beam.Create(shards)
            | beam.io.ReadAllFromTFRecord()
            | beam.BatchElements(min_batch_size=16, max_batch_size=64)
            | beam.CombineGlobally(_Outside(spec, low, high))
            | beam.Map(lambda counts: json.dumps(counts.tolist()))
            | beam.io.WriteToText(str(counts_path), shard_name_template="")
        )
    below, above = json.loads(counts_path.read_text())
    counts_path.unlink()
    anomalies = [
        Anomaly(name, f"{relation} {bound:g} as in training", count)
        for relation, bounds, counts in (("at least", low, below), ("at most", high, above))
        for name, bound, count in zip(names, bounds, counts, strict=True)
        if count
    ]
    artefacts.write_json(path, [dataclasses.asdict(anomaly) for anomaly in anomalies])
    return anomalies


class _Outside(beam.CombineFn):
    """Counts items below and above the bounds of label and features: `[2, 1 + num_features]`."""

    def __init__(self, spec: data.FeatureSpec, low: np.ndarray, high: np.ndarray) -> None:
        self.spec, self.low, self.high = spec, low, high

    def create_accumulator(self) -> np.ndarray:
        return np.zeros([2, len(self.low)], np.int64)

    def add_input(self, accumulator: np.ndarray, serialized: list[bytes]) -> np.ndarray:
        parsed = elwc.parse(tf.constant(serialized), self.spec)
        mask = parsed["mask"].numpy()
        labels = parsed[self.spec.label].numpy()[mask]
        values = np.column_stack([labels, parsed[self.spec.features].numpy()[mask]])
        return accumulator + np.stack([(values < self.low).sum(0), (values > self.high).sum(0)])

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        return accumulator


def _ranged(schema: schema_pb2.Schema, name: str, low: float, high: float) -> None:
    feature = schema.feature.add(name=name, type=schema_pb2.FLOAT)
    feature.float_domain.min, feature.float_domain.max = low, high
