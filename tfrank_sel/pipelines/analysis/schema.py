"""The schema of the training split, and what other splits hold against it."""

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.features import Feature, Vector
from tfrank_sel.models import preparation
from tfrank_sel.pipelines import artefacts
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.ingestion import stored


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """Values of a split that break a rule of the schema.

    Args:
        feature: Name of the feature in the schema.
        rule: The rule, in words.
        count: Number of items (or lists) that break it, or that were compared.
        distance: How far they are from the reference, where that is the rule.
    """

    feature: str
    rule: str
    count: int
    distance: float | None = None

    def __str__(self) -> str:
        if self.distance is None:
            received = f"{self.count} items that are not"
        else:
            received = f"a distance of {self.distance:.3f}"
        return f"{self.feature}: expected {self.rule}. Received: {received}"


def infer(statistics: Statistics, spec: data.FeatureSpec, path: Path) -> schema_pb2.Schema:
    """Infers the schema of a split and writes it as a text proto.

    The schema names the parts of a list, with the range of the label, from 0, and of each feature.

    Args:
        statistics: Statistics of the training split.
        spec: Names of the parts and number of features.
        path: File to write.

    Returns:
        The schema, of tensorflow-metadata.
    """
    schema = schema_pb2.Schema()
    features = schema.feature.add(name=spec.features, type=schema_pb2.FLOAT)
    features.shape.dim.add(size=spec.num_features)
    highest = max(float(label) for label in statistics.labels)
    _ranged(schema, spec.label, 0.0, highest)
    for name in (spec.doc_id, spec.query_id):
        schema.feature.add(name=name, type=schema_pb2.BYTES).shape.dim.add(size=1)
    lows, highs = statistics.features["min"], statistics.features["max"]
    for name, low, high in zip(statistics.names, lows, highs, strict=True):
        _ranged(schema, name, low, high)
    for name in statistics.texts:
        schema.feature.add(name=name, type=schema_pb2.BYTES)
    artefacts.write_text(path, text_format.MessageToString(schema))
    return schema


def load(path: Path) -> schema_pb2.Schema:
    """Reads the schema that `infer` wrote."""
    return text_format.Parse(path.read_text(), schema_pb2.Schema())


def validate(
    shards: Mapping[str, Sequence[str]],
    schema: schema_pb2.Schema,
    spec: data.FeatureSpec,
    scratch: Path,
    *,
    features: Mapping[str, Feature] | None = None,
    options: PipelineOptions | None = None,
) -> dict[str, list[Anomaly]]:
    """Holds splits against a schema.

    Args:
        shards: TFRecord files of the packed layout, of each split.
        schema: The schema of the training split.
        spec: Names of the parts and number of features.
        scratch: A folder to write to meanwhile.
        features: Type of each feature; by default all are numbers.
        options: Of the Beam pipeline.

    Returns:
        For each split, one anomaly for each rule that is broken, with the number of items that
        break it.
    """
    features = features or {spec.features: Vector(size=spec.num_features)}
    ranged = [feature for feature in schema.feature if feature.HasField("float_domain")]
    low = np.array([feature.float_domain.min for feature in ranged], np.float32)
    high = np.array([feature.float_domain.max for feature in ranged], np.float32)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        with beam.Pipeline(options=options) as pipeline:
            for split, files in shards.items():
                counts = (
                    pipeline
                    | f"Read {split}" >> stored.Read(files)
                    | f"Compare {split}"
                    >> beam.CombineGlobally(_Outside(spec, features, low, high))
                    | f"As list {split}" >> beam.Map(np.ndarray.tolist)
                )
                artefacts.tell(counts, Path(folder) / split)
        found = {split: next(artefacts.told(Path(folder) / split)) for split in shards}
    return {
        split: [
            Anomaly(feature.name, f"{relation} {bound:g} as in training", count)
            for relation, bounds, counts in (("at least", low, below), ("at most", high, above))
            for feature, bound, count in zip(ranged, bounds, counts, strict=True)
            if count
        ]
        for split, (below, above) in found.items()
    }


def write(anomalies: Sequence[Anomaly], path: Path) -> None:
    """Writes anomalies as JSON."""
    artefacts.write_json(path, [dataclasses.asdict(anomaly) for anomaly in anomalies])


class _Outside(beam.CombineFn):
    """Counts items below and above the bounds of label and numbers: `[2, 1 + numbers]`."""

    def __init__(
        self,
        spec: data.FeatureSpec,
        features: Mapping[str, Feature],
        low: np.ndarray,
        high: np.ndarray,
    ) -> None:
        self.spec, self.features, self.low, self.high = spec, features, low, high

    def create_accumulator(self) -> np.ndarray:
        return np.zeros([2, len(self.low)], np.int64)

    def add_input(self, accumulator: np.ndarray, serialized: list[bytes]) -> np.ndarray:
        parsed = packed.parse(tf.constant(serialized), self.spec)
        mask = parsed["mask"].numpy()
        labels = parsed[self.spec.label].numpy()[mask]
        numbers = tf.constant(parsed[self.spec.features].numpy()[mask], tf.float64)
        rows = preparation.columns(self.features, numbers).numpy().astype(np.float32)
        values = np.column_stack([labels, rows])
        return accumulator + np.stack([(values < self.low).sum(0), (values > self.high).sum(0)])

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        return accumulator


def _ranged(schema: schema_pb2.Schema, name: str, low: float, high: float) -> None:
    feature = schema.feature.add(name=name, type=schema_pb2.FLOAT)
    feature.float_domain.min, feature.float_domain.max = low, high
