"""Evaluation of a model against a baseline and a random order, by query and slice."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pydantic
import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.metrics.significance import Resampled, resampled_parts, splitmix64
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.evaluation.slices import OVERALL, Slicing, Surveyor
from tfrank_sel.pipelines.ingestion import ingest_counts, stored_lists
from tfrank_sel.pipelines.ingestion.stored_lists import Ranking, Scorer, StoredLists, Tensors

if TYPE_CHECKING:
    import apache_beam as beam

PER_SESSION = "clicks per session"
ERROR = "excess error"  # a measure of which less is better
# The ranks of the curves.
CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20)
CURVES = "curves"  # in the place of a slice: NDCG at the cut-offs on all queries
_BATCH = 64  # lists that are scored at once


@dataclasses.dataclass(frozen=True)
class MetricComparison:
    """A metric of two models on the same queries.

    Args:
        baseline: Mean over the queries for the baseline, or for a random order.
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

    @property
    def difference(self) -> float:
        """By how much our value is above the other."""
        return self.ours - self.baseline

    def describe(self, metric: str, against: str, margin: float = 0.0) -> str:
        """Describes the difference in a sentence.

        Args:
            metric: Name of the metric, with that of the slice if there is one.
            against: Name of the other model.
            margin: Maximum allowed drop below it.

        Example:
            >>> compared = MetricComparison(0.532, 0.53, -0.017, 0.013, 75)
            >>> compared.describe("NDCG@10", "baseline", 0.02)
            'NDCG@10 0.530, baseline 0.532: no significant loss (-0.017 to +0.013, allowed -0.02)'
        """
        verdict = "no significant loss" if self.high >= 0.0 else "significant loss"
        if self.low > 0.0:
            verdict, margin = "significant gain", 0.0
        allowed = f", allowed -{margin:g}" if margin else ""
        values = f"{metric} {self.ours:.3f}, {against} {self.baseline:.3f}"
        return f"{values}: {verdict} ({self.low:+.3f} to {self.high:+.3f}{allowed})"


Comparisons: TypeAlias = Mapping[str, MetricComparison]  # by the metric


@dataclasses.dataclass(frozen=True)
class Curve:
    """NDCG of a model by cut-off.

    Args:
        cutoffs: The cut-offs.
        mean: Mean over the queries at each cut-off.
        low: Lower ends of the 95 % intervals.
        high: Upper ends of the 95 % intervals.
    """

    cutoffs: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    def first(self, longest: int) -> Self:
        """Returns the curve up to the longest list."""
        count = sum(k <= longest for k in self.cutoffs)
        return type(self)(*(x[:count] for x in dataclasses.astuple(self)))


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Evaluation of our model.

    Args:
        slices: Our model against the baseline, for each slice and metric; the first slice,
            `OVERALL`, has all queries.
        chance: Our model against a random order of the same lists, for each metric.
        against: Name of the other model, such as "baseline"; "random order" if there is none.
        equal_scores: Share of the lists of several items to all of which our model gives the same
            score.
        ideal: Our model against the order of the labels, for each metric: the highest possible
            values, which are below 1 if there are lists without a relevant item.
        simple: Our model against each of the simple rankings, by their name and metric.
        clicks: Our model against the order of the log, if there is one, as `clicks.compare`.
        curves: NDCG at `CUTOFFS` of our model, `ours`, and of the other one, `baseline`.
    """

    slices: Mapping[str, Comparisons]
    chance: Comparisons
    against: str = "baseline"
    equal_scores: float = 0.0
    ideal: Comparisons = dataclasses.field(default_factory=dict)
    simple: Mapping[str, Comparisons] = dataclasses.field(default_factory=dict)
    clicks: Comparisons = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Curve] = dataclasses.field(default_factory=dict)

    @property
    def overall(self) -> Comparisons:
        """Our model against the baseline on all queries."""
        return self.slices[OVERALL]

    def figures(self) -> dict[str, Any]:
        """Returns JSON-ready values, with all queries as `metrics`."""
        figures = dataclasses.asdict(self)
        return {"metrics": figures["slices"].pop(OVERALL), **figures}

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Self:
        """Returns the evaluation from its `figures`."""
        slices = {OVERALL: figures["metrics"], **figures["slices"]}
        # Runs of earlier versions lack some of the figures.
        values = {**figures, "against": figures["against"], "slices": slices}
        return pydantic.TypeAdapter(cls).validate_python(values)


def measures(
    gain: str | float = "exponential", *, has_irrelevant: bool = True
) -> dict[str, metrics.ListwiseMetric]:
    """Returns the metrics of the report, by their name in it, averaged over equal scores.

    Args:
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
        has_irrelevant: Whether some labels are 0: otherwise MRR is 1 for any order, and left out.
    """
    options: dict[str, Any] = {**gain_arguments(gain), "ties": AVERAGED}
    chosen: list[metrics.ListwiseMetric] = [
        metrics.NDCG(k, **options, name=f"NDCG@{k}") for k in (1, 5, 10)
    ]
    del options["gain"]
    if has_irrelevant:
        chosen.append(metrics.MRR(**options, name="MRR"))
    if not isinstance(gain, str):
        chosen.append(metrics.Precision(10, **options, name="P@10"))
        chosen.append(metrics.ExcessError(gain, name=ERROR))
    return {metric.name: metric for metric in chosen}


def evaluate(
    ours: Scorer,
    baseline: Scorer | None,
    lists: StoredLists,
    scratch: str,
    *,
    seed: int,
    against: str = "baseline",
    gain: str | float = "exponential",
    has_irrelevant: bool = True,
    simple: Mapping[str, Ranking] | None = None,
    pipeline: "beam.Pipeline | None" = None,
) -> Evaluation:
    """Compares two models on a split, with paired bootstrap intervals.

    Args:
        ours: Scoring function of our model, which is called with lists of similar sizes. It should
            be a graph of any shape.
        baseline: Scoring function of the model to compare with; a random order if None.
        lists: The split. It is streamed: memory holds sums, and 8 bytes per query. Its context has
            one slice for each quartile of a number, and for each of the ten most frequent values of
            a text.
        scratch: Temporary folder of the pipeline, by path or URL.
        seed: Seed of the resampling and of the random order.
        against: Name of the other model.
        gain: As in `measures`.
        has_irrelevant: As in `measures`.
        simple: Simple rankings to compare with too, by name.
        pipeline: Beam pipeline to compose and run; by default this process reads the lists one
            after another, without Beam.

    Returns:
        The comparisons for each of `measures`.

    Raises:
        ValueError: If there is no list.
    """
    simple = simple or {}
    comparisons = runners.totals_by_key(
        lists.shards,
        stored_lists.blocks,
        Surveyor(lists),
        Scored(ours, baseline, lists, seed, gain, has_irrelevant, list(simple.values())),
        functools.partial(_slice_results, list(measures(gain, has_irrelevant=has_irrelevant))),
        scratch,
        pipeline,
    )
    compared = {name: values for name, *values in comparisons}
    [curves] = compared.pop(CURVES)
    everywhere, equal_scores = compared.pop(OVERALL)
    overall, chance, ideal, *others = everywhere
    return Evaluation.of(
        {
            "metrics": overall,
            "slices": {name: compared[name][0][0] for name in sorted(compared)},
            "chance": chance,
            "against": against if baseline else "random order",
            "equal_scores": equal_scores,
            "ideal": ideal,
            "simple": dict(zip(simple, others, strict=True)),
            "curves": curves,
        }
    )


@dataclasses.dataclass
class Scored:
    """Task (`runners.Task`) from serialized lists to sums, plain and resampled, for each slice.

    The values of a query are all measures of our model, then of ours less those of each rival: the
    baseline, a random order, the order of the labels, and the simple rankings. The last value is 1
    if our model gives several items one score, and 0 if the scores differ. `CURVES` has other
    values: NDCG of our model at each of `CUTOFFS`, and that of the baseline if there is one.

    Args:
        ours: As in `evaluate`, and so are the others.
    """

    ours: Scorer
    baseline: Scorer | None
    lists: StoredLists
    seed: int
    gain: str | float
    has_irrelevant: bool
    simple: Sequence[Ranking]

    def setup(self) -> None:
        """Makes the graph, which cannot be sent, of what is measured of the scores of lists."""
        measured = measures(self.gain, has_irrelevant=self.has_irrelevant).values()
        # each metric is traced: all cut-offs of NDCG as one
        others = metrics.Evaluator([x for x in measured if not isinstance(x, metrics.NDCG)])
        ndcg = metrics.NDCG(**gain_arguments(self.gain), ties=AVERAGED)
        models = 4 + len(self.simple)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([models, None, None])],
            autograph=False,
        )
        def values(labels: tf.Tensor, scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            both = tf.tile(labels, [models, 1]), tf.concat(tf.unstack(scores), axis=0)
            plain, curves = others(*both), ndcg.curve(*both, CUTOFFS)
            columns = [
                curves[:, CUTOFFS.index(x.k)]
                if isinstance(x, metrics.NDCG)
                else plain[x.name].values
                for x in measured
            ]
            first, *rivals = tf.split(tf.stack(columns, axis=1), models)
            equal = _are_equal(scores[0], labels == labels)
            return (
                tf.concat([first, *(first - rival for rival in rivals), equal], axis=1),
                tf.concat(tf.split(curves, models)[: 2 if self.baseline else 1], axis=1),
            )

        self._measured = values

    def process(
        self, serialized: Sequence[bytes], slicing: Slicing
    ) -> Iterator[tuple[str, Resampled]]:
        """Yields the sums of some lists for each slice, and for `CURVES`."""
        ordered = sorted(serialized, key=len)  # lists of similar sizes need little padding
        for start in range(0, len(ordered), _BATCH):
            yield from self._of_batch(tf.constant(ordered[start : start + _BATCH]), slicing)

    def _of_batch(self, records: tf.Tensor, slicing: Slicing) -> Iterator[tuple[str, Resampled]]:
        inputs, labels = self.lists.parse(records)
        context = self.lists.queries(records)
        keys = ingest_counts.hashes_of(context.pop(self.lists.spec.query_id))
        scores = self._scores(records, inputs, labels, keys)
        values, curves = (x.numpy() for x in self._measured(labels, scores))
        members = collections.defaultdict(list)
        for i, size in enumerate(inputs["mask"].numpy().sum(axis=1).tolist()):
            of_list = {name: values[i] for name, values in context.items()}
            for name in slicing.names(int(keys[i]), size, of_list):
                members[name].append(i)
        parts = {name: (np.array(rows), values[rows]) for name, rows in members.items()}
        parts[CURVES] = np.arange(len(keys)), curves
        yield from resampled_parts(keys, parts, seed=self.seed).items()

    def _scores(
        self, records: tf.Tensor, inputs: Tensors, labels: tf.Tensor, keys: np.ndarray
    ) -> tf.Tensor:
        """The scores of our model and of each rival, `[models, batch_size, list_size]`."""
        places = np.arange(1, labels.shape[1] + 1, dtype=np.uint64)
        chance = splitmix64(splitmix64(keys[:, None] + np.uint64(self.seed)) + places) * 2.0**-64
        ideal = np.nan_to_num(labels)  # padding is of no account
        orders = [chance, *(ranking(records, inputs) for ranking in self.simple)]
        if not isinstance(self.gain, str):  # their error is that of no score in the region
            orders = [_at_most(self.gain, x) for x in orders]
        chance, *simple = orders
        baseline = self.baseline(inputs) if self.baseline else chance
        models = [self.ours(inputs), baseline, chance, ideal, *simple]
        return tf.stack([tf.cast(x, tf.float32) for x in models])


def _at_most(top: float, scores: np.ndarray) -> np.ndarray:
    """Scores of the same order in each list, none above a number."""
    places = np.stack([np.unique(row, return_inverse=True)[1] for row in scores])
    return top + (places - places.shape[1]) * max(1.0, 2.0 * np.spacing(np.float32(abs(top))))


def _are_equal(scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns 1 for a list of several items with one score, `[batch_size, 1]`, else 0."""
    highest = tf.reduce_max(tf.where(mask, scores, scores.dtype.min), axis=1, keepdims=True)
    is_equal = tf.reduce_all((scores == highest) | ~mask, axis=1, keepdims=True)
    is_list = tf.math.count_nonzero(mask, axis=1, keepdims=True) > 1
    return tf.cast(is_equal & is_list, scores.dtype)


def _slice_results(metrics: Sequence[str], name: str, sums: Resampled) -> tuple[Any, ...]:
    """The name and the JSON-ready results of a slice, or of `CURVES`.

    Those of a slice are the comparisons with each rival, and the share of lists of equal scores.
    """
    means, (lows, highs) = sums.mean().tolist(), (x.tolist() for x in sums.interval())
    if name == CURVES:
        ends = [np.reshape(x, [-1, len(CUTOFFS)]).tolist() for x in (means, lows, highs)]
        drawn = (dataclasses.asdict(Curve(CUTOFFS, *x)) for x in zip(*ends, strict=True))
        return name, dict(zip(("ours", "baseline"), drawn, strict=False))
    count = len(metrics)
    against = [
        {
            metric: dataclasses.asdict(
                MetricComparison(means[i] - means[j], means[i], lows[j], highs[j], sums.queries)
            )
            for i, metric in enumerate(metrics)
            for j in [start + i]
        }
        for start in range(count, len(means) - 1, count)
    ]
    return name, against, means[-1]
