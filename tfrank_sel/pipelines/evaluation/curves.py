"""NDCG curves: NDCG at each cut-off, with intervals."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrank_sel import data, metrics
from tfrank_sel.data import packed
from tfrank_sel.metrics import significance
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import GAINS
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.ingestion import stored

DEEPEST = 20
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Curve:
    """NDCG of a model at the cut-offs 1, 2, ...

    Args:
        mean: Mean over the queries, `[cut-offs]`.
        low: Lower ends of the 95 % intervals.
        high: Upper ends of the 95 % intervals.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def ndcg(
    models: Mapping[str, Scorer],
    spec: data.FeatureSpec,
    shards: Sequence[str],
    *,
    longest: int,
    seed: int,
    gain: str = "exponential",
) -> dict[str, Curve]:
    """Measures NDCG at each cut-off, up to 20 or the longest list.

    Args:
        models: Scoring function of each model, by name.
        spec: Names of the parts and number of features.
        shards: TFRecord files of the packed layout. They are streamed: only sums are kept.
        longest: Number of items of the longest list.
        seed: Seed of the significance.
        gain: Name of the gain, in `ranking.GAINS`.
    """
    depth = min(DEEPEST, longest)
    evaluate = metrics.Evaluator(
        [metrics.NDCG(k, GAINS[gain], name=f"{k}", ties=AVERAGED) for k in range(1, depth + 1)],
    )

    signature = [stored.inputs_spec(spec), tf.TensorSpec([None, None])]

    @tf.function(input_signature=signature, autograph=False)
    def values(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        # as one batch, so that the metrics are traced once
        scores = tf.concat([model(inputs) for model in models.values()], axis=0)
        found = evaluate(tf.tile(labels, [len(models), 1]), scores)
        of_models = tf.split(tf.stack([x.values for x in found.values()], axis=1), len(models))
        return tf.concat(of_models, axis=1)

    total, seen = None, 0
    for serialized in stored.serialized_batches(shards):
        parsed = packed.parse(serialized, spec)
        found = values(stored.inputs(parsed, spec), parsed[spec.label]).numpy()
        keys = np.arange(seen, seen + len(found), dtype=np.uint64)
        part, seen = significance.resampled(keys, found, seed=seed), seen + len(found)
        total = part if total is None else total + part
    if total is None:
        raise ValueError(f"expected a list in {', '.join(shards)}. Received: none")
    ends = (total.mean(), *total.interval())
    by_model = zip(*(np.split(end, len(models)) for end in ends), strict=True)
    return {name: Curve(*curve) for name, curve in zip(models, by_model, strict=True)}
