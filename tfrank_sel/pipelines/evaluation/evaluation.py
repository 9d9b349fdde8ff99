"""Evaluation: a model against a baseline and against chance, query by query, slice by slice."""

import collections
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import keras
import numpy as np
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data, metrics
from tfrank_sel.data import packed
from tfrank_sel.pipelines import artefacts
from tfrank_sel.pipelines.evaluation.bootstrap import Bootstrap, Resampled, mixed
from tfrank_sel.pipelines.evaluation.slices import OVERALL, Slicing, Surveyor
from tfrank_sel.pipelines.ingestion import census, stored


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric of two models on the same queries.

    Args:
        baseline: Mean over the queries for the baseline.
        ours: Mean over the queries for our model.
        low: Lower end of the bootstrap interval of `ours - baseline`.
        high: Upper end of that interval.
        queries: Number of queries.
    """

    baseline: float
    ours: float
    low: float
    high: float
    queries: int


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How good our model is.

    Args:
        slices: Our model against the baseline, for each slice and metric; all queries are in the
            first, `OVERALL`.
        chance: Our model against a random order of the same lists, for each metric.
    """

    slices: Mapping[str, Mapping[str, Comparison]]
    chance: Mapping[str, Comparison]

    @property
    def overall(self) -> Mapping[str, Comparison]:
        """Our model against the baseline on all queries."""
        return self.slices[OVERALL]


def measures() -> dict[str, metrics.ListwiseMetric]:
    """Returns the metrics of the report, by the name they have there."""
    ndcgs = [metrics.NDCG(k, name=f"NDCG@{k}") for k in (1, 5, 10)]
    return {metric.name: metric for metric in (*ndcgs, metrics.MRR(name="MRR"))}


def evaluate(
    baseline: keras.Model,
    ours: keras.Model,
    spec: data.FeatureSpec,
    shards: Sequence[str],
    scratch: Path,
    *,
    context: Mapping[str, bool] | None = None,
    seed: int,
    options: PipelineOptions | None = None,
) -> Evaluation:
    """Compares two models on a split, with paired bootstrap intervals.

    Args:
        baseline: The model to compare with.
        ours: The model.
        spec: Names of the parts and number of features.
        shards: TFRecord files of the packed layout. They stream through: sums are kept, and 8 bytes
            a query.
        scratch: A folder to write to meanwhile.
        context: What is known of a query, and whether it is a number: one slice for each quartile
            of a number, and for each of the ten most frequent values of a text.
        seed: Seed of the resampling and of the random order.
        options: Of the Beam pipelines.

    Returns:
        The comparisons for each of `measures()`.
    """
    context = context or {}
    num_values = 3 * len(measures())
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        found = Path(folder) / "slices"
        with beam.Pipeline(options=options) as pipeline:
            # Read twice: what waits for a side input would be kept in memory.
            slicing = (
                pipeline
                | "Read to survey" >> stored.Read(shards)
                | beam.CombineGlobally(Surveyor(spec, context))
            )
            score = _Score({"baseline": baseline, "ours": ours}, spec, context, seed)
            sums = (
                pipeline
                | "Read to score" >> stored.Read(shards)
                | beam.ParDo(score, beam.pvalue.AsSingleton(slicing))
                | beam.CombinePerKey(Bootstrap(num_values, seed))
            )
            artefacts.tell(sums | beam.MapTuple(_compared), found)
        compared = {name: values for name, *values in artefacts.told(found)}
    slices = {
        name: {metric: Comparison(**one) for metric, one in compared[name][0].items()}
        for name in sorted(compared, key=lambda name: (name != OVERALL, name))
    }
    chance = {metric: Comparison(**one) for metric, one in compared[OVERALL][1].items()}
    return Evaluation(slices, chance)


class _Score(beam.DoFn):
    """Batches of serialized lists to `(slice, (keys, values))`.

    The values of a query are those of all measures, for ours, less the baseline, less chance.
    """

    def __init__(
        self,
        models: Mapping[str, keras.Model],
        spec: data.FeatureSpec,
        context: Mapping[str, bool],
        seed: int,
    ) -> None:
        self.models, self.spec, self.context, self.seed = dict(models), spec, dict(context), seed

    def setup(self) -> None:
        # Shapes change from batch to batch: XLA would compile for each.
        evaluate = metrics.Evaluator(list(measures().values()), jit_compile=False)

        @tf.function(
            input_signature=[
                stored.inputs_spec(self.spec),
                tf.TensorSpec([None, None]),
                tf.TensorSpec([None, None]),
            ]
        )
        def values(inputs: dict[str, tf.Tensor], labels: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
            ours, baseline = (
                self.models[name](inputs, training=False) for name in ("ours", "baseline")
            )
            own, *others = (
                tf.stack([one.values for one in evaluate(labels, scores).values()], axis=1)
                for scores in (ours, baseline, chance)
            )
            return tf.concat([own, *(own - other for other in others)], axis=1)

        self.values = values

    def process(
        self, serialized: list[bytes], slicing: Slicing
    ) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
        lists = tf.constant(serialized)
        parsed = packed.parse(lists, self.spec)
        known = stored.context(lists, self.spec, self.context)
        queries = [census.hash_of(query.decode()) for query in known[self.spec.query_id]]
        keys = np.array(queries, np.uint64)
        labels = parsed[self.spec.label]
        places = np.arange(1, labels.shape[1] + 1, dtype=np.uint64)
        chance = mixed(mixed(keys[:, None] + np.uint64(self.seed)) + places) * 2.0**-64
        inputs = stored.inputs(parsed, self.spec)
        values = self.values(inputs, labels, chance.astype(np.float32)).numpy()
        members = collections.defaultdict(list)
        for i, size in enumerate(parsed["mask"].numpy().sum(axis=1).tolist()):
            context = {name: known[name][i] for name in self.context}
            for name in slicing.names(queries[i], size, context):
                members[name].append(i)
        for name, rows in members.items():
            yield name, (keys[rows], values[rows])


def _compared(name: str, sums: Resampled) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What is to be told of a slice: against the baseline, and against chance."""
    means, (lows, highs) = sums.mean(), sums.interval()
    count = len(measures())
    against = []
    for start in (count, 2 * count):
        compared = {}
        for i, metric in enumerate(measures()):
            ours, gap = float(means[i]), float(means[start + i])
            low, high = float(lows[start + i]), float(highs[start + i])
            compared[metric] = Comparison(ours - gap, ours, low, high, sums.queries)
        against.append({metric: dataclasses.asdict(one) for metric, one in compared.items()})
    return name, against[0], against[1]
