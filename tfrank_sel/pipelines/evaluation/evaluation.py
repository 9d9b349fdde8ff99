"""Evaluation of a model against a baseline and a random order, by query and slice."""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import apache_beam as beam
import numpy as np
import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.data import stores
from tfrank_sel.metrics.significance import Resampled, nothing, resampled, splitmix64
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops.ranking import gain_arguments
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.evaluation.slices import OVERALL, Slicing, Surveyor
from tfrank_sel.pipelines.ingestion import stored, tally
from tfrank_sel.pipelines.ingestion.stored import Lists, Ranking, Scorer

PER_SESSION = "clicks per session"
ERROR = "excess error"  # a measure of which less is better


@dataclasses.dataclass(frozen=True)
class Comparison:
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

    def told(self, metric: str, against: str, margin: float = 0.0) -> str:
        """Describes the difference in a sentence.

        Args:
            metric: Name of the metric, with that of the slice if there is one.
            against: Name of the other model.
            margin: Maximum allowed drop below it.

        Example:
            >>> Comparison(0.532, 0.53, -0.017, 0.013, 75).told("NDCG@10", "baseline", 0.02)
            'NDCG@10 0.530, baseline 0.532: no significant loss (-0.017 to +0.013, allowed -0.02)'
        """
        found = "no significant loss" if self.high >= 0.0 else "significant loss"
        if self.low > 0.0:
            found, margin = "significant gain", 0.0
        allowed = f", allowed -{margin:g}" if margin else ""
        values = f"{metric} {self.ours:.3f}, {against} {self.baseline:.3f}"
        return f"{values}: {found} ({self.low:+.3f} to {self.high:+.3f}{allowed})"


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
    """

    slices: Mapping[str, Mapping[str, Comparison]]
    chance: Mapping[str, Comparison]
    against: str = "baseline"
    equal_scores: float = 0.0
    ideal: Mapping[str, Comparison] = dataclasses.field(default_factory=dict)
    simple: Mapping[str, Mapping[str, Comparison]] = dataclasses.field(default_factory=dict)
    clicks: Mapping[str, Comparison] = dataclasses.field(default_factory=dict)

    @property
    def overall(self) -> Mapping[str, Comparison]:
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
        return cls(
            {name: _comparisons(values) for name, values in slices.items()},
            _comparisons(figures["chance"]),
            figures["against"],
            figures.get("equal_scores", 0.0),  # this and the others are absent from older runs
            _comparisons(figures.get("ideal", {})),
            {name: _comparisons(x) for name, x in figures.get("simple", {}).items()},
            _comparisons(figures.get("clicks", {})),
        )


def measures(
    gain: str | float = "exponential", *, has_irrelevant: bool = True
) -> dict[str, metrics.ListwiseMetric]:
    """Returns the metrics of the report, by their name in it, averaged over equal scores.

    Args:
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
        has_irrelevant: Whether some labels are 0: otherwise MRR is 1 for any order, and left out.
    """
    options: dict[str, Any] = {**gain_arguments(gain), "ties": AVERAGED}
    found = [metrics.NDCG(k, **options, name=f"NDCG@{k}") for k in (1, 5, 10)]
    del options["gain"]
    if has_irrelevant:
        found.append(metrics.MRR(**options, name="MRR"))
    if not isinstance(gain, str):
        found.append(metrics.Precision(10, **options, name="P@10"))
        found.append(metrics.ExcessError(gain, name=ERROR))
    return {metric.name: metric for metric in found}


def evaluate(
    ours: Scorer,
    baseline: Scorer | None,
    lists: Lists,
    scratch: str,
    *,
    seed: int,
    against: str = "baseline",
    gain: str | float = "exponential",
    has_irrelevant: bool = True,
    simple: Mapping[str, Ranking] | None = None,
    pipeline: beam.Pipeline | None = None,
) -> Evaluation:
    """Compares two models on a split, with paired bootstrap intervals.

    Args:
        ours: Scoring function of our model.
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
    measured = measures(gain, has_irrelevant=has_irrelevant)
    rivals = ("baseline", "chance", "ideal", *simple)
    parts = (
        Surveyor(lists),
        _Score(ours, baseline, lists, seed, gain, has_irrelevant, list(simple.values())),
        Bootstrap((1 + len(rivals)) * len(measured) + 1, seed),
        functools.partial(_compared, list(measured)),
    )
    found = _here(lists, *parts) if pipeline is None else _by_beam(lists, *parts, scratch, pipeline)
    compared = {name: values for name, *values in found}
    slices = {
        name: _comparisons(compared[name][0][0])
        for name in sorted(compared, key=lambda name: (name != OVERALL, name))
    }
    everywhere, equal_scores = compared[OVERALL]
    _, chance, ideal, *others = map(_comparisons, everywhere)
    return Evaluation(
        slices,
        chance,
        against if baseline else "random order",
        equal_scores,
        ideal,
        dict(zip(simple, others, strict=True)),
    )


def _here(
    lists: Lists, surveyor: Surveyor, score: "_Score", bootstrap: "Bootstrap", compared: "_Compared"
) -> list[Sequence[Any]]:
    """The results of `_compared` for each slice, in this process."""
    survey = surveyor.create_accumulator()
    for serialized in stored.serialized_batches(lists.shards):
        survey = surveyor.add_input(survey, serialized.numpy().tolist())
    slicing = surveyor.extract_output(survey)
    score.setup()
    sums: dict[str, Resampled] = collections.defaultdict(bootstrap.create_accumulator)
    for serialized in stored.serialized_batches(lists.shards):
        for name, element in score.process(serialized.numpy().tolist(), slicing):
            sums[name] = bootstrap.add_input(sums[name], element)
    return [compared(name, found) for name, found in sums.items()]


def _by_beam(
    lists: Lists,
    surveyor: Surveyor,
    score: "_Score",
    bootstrap: "Bootstrap",
    compared: "_Compared",
    scratch: str,
    pipeline: beam.Pipeline,
) -> list[Sequence[Any]]:
    """The results of `_compared` for each slice, by a Beam pipeline."""
    folder = stores.join(scratch, ".slices")
    with pipeline as root:
        # Read twice, because elements that wait for a side input would be kept in memory.
        slicing = (
            root | "Read to survey" >> stored.Read(lists.shards) | beam.CombineGlobally(surveyor)
        )
        sums = (
            root
            | "Read to score" >> stored.Read(lists.shards)
            | beam.ParDo(score, beam.pvalue.AsSingleton(slicing))
            | beam.CombinePerKey(bootstrap)
        )
        runners.gather(sums | beam.MapTuple(compared), stores.join(folder, "told"))
    found = list(runners.gathered(stores.join(folder, "told")))
    stores.drop(folder)
    return found


class Bootstrap(beam.CombineFn):
    """Beam combiner from `(keys, values)` of some queries to `Resampled` of all.

    Args:
        num_values: Number of values per query.
        seed: Seed of the weights.
    """

    def __init__(self, num_values: int, seed: int) -> None:
        self.num_values, self.seed = num_values, seed

    def create_accumulator(self) -> Resampled:
        return nothing(self.num_values)

    def add_input(
        self, accumulator: Resampled, element: tuple[np.ndarray, np.ndarray]
    ) -> Resampled:
        return accumulator + resampled(*element, seed=self.seed)

    def merge_accumulators(self, accumulators: Iterable[Resampled]) -> Resampled:
        return sum(accumulators, self.create_accumulator())

    def extract_output(self, accumulator: Resampled) -> Resampled:
        return accumulator


def _comparisons(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Comparison]:
    return {metric: Comparison(**one) for metric, one in values.items()}


class _Score(beam.DoFn):
    """Beam transform from batches of serialized lists to `(slice, (keys, values))`.

    The values of a query are all measures of our model, then of ours less those of each rival: the
    baseline, a random order, the order of the labels, and the simple rankings. The last value is 1
    if our model gives several items one score, and 0 if the scores differ.
    """

    def __init__(
        self,
        ours: Scorer,
        baseline: Scorer | None,
        lists: Lists,
        seed: int,
        gain: str | float,
        has_irrelevant: bool,
        simple: Sequence[Ranking],
    ) -> None:
        self.ours, self.baseline, self.lists = ours, baseline, lists
        self.seed, self.gain, self.simple = seed, gain, simple
        self.has_irrelevant = has_irrelevant

    def setup(self) -> None:
        measured = measures(self.gain, has_irrelevant=self.has_irrelevant)
        evaluate = metrics.Evaluator(list(measured.values()))

        @tf.function(
            input_signature=[
                dict(self.lists.inputs),
                tf.TensorSpec([None, None]),
                tf.TensorSpec([2 + len(self.simple), None, None]),
            ],
            autograph=False,
        )
        def values(inputs: dict[str, tf.Tensor], labels: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
            chance, *_ = others = tf.unstack(others)
            # as one batch, so that the metrics are traced once
            ours = self.ours(inputs)
            models = [ours, self.baseline(inputs) if self.baseline else chance, *others]
            found = evaluate(tf.tile(labels, [len(models), 1]), tf.concat(models, axis=0))
            by_metric = tf.stack([x.values for x in found.values()], axis=1)
            own, *others = tf.split(by_metric, len(models))
            return tf.concat(
                [own, *(own - other for other in others), _are_equal(ours, labels == labels)],
                axis=1,
            )

        self.values = values

    def process(
        self, serialized: list[bytes], slicing: Slicing
    ) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
        records = tf.constant(serialized)
        inputs, labels = self.lists.parse(records)
        context = self.lists.queries(records)
        ids = context.pop(self.lists.spec.query_id)
        queries = [tally.hash_of(query.decode()) for query in ids]
        keys = np.array(queries, np.uint64)
        places = np.arange(1, labels.shape[1] + 1, dtype=np.uint64)
        chance = splitmix64(splitmix64(keys[:, None] + np.uint64(self.seed)) + places) * 2.0**-64
        ideal = np.nan_to_num(labels)  # padding is of no account
        orders = [chance, *(ranking(records) for ranking in self.simple)]
        if not isinstance(self.gain, str):  # their error is that of no score in the region
            orders = [_at_most(self.gain, x) for x in orders]
        others = np.stack([orders[0], ideal, *orders[1:]])
        values = self.values(inputs, labels, others.astype(np.float32)).numpy()
        members = collections.defaultdict(list)
        for i, size in enumerate(inputs["mask"].numpy().sum(axis=1).tolist()):
            known = {name: values[i] for name, values in context.items()}
            for name in slicing.names(queries[i], size, known):
                members[name].append(i)
        for name, rows in members.items():
            yield name, (keys[rows], values[rows])


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


_Compared = Callable[[str, Resampled], tuple[str, list[dict[str, Any]], float]]


def _compared(
    metrics: Sequence[str], name: str, sums: Resampled
) -> tuple[str, list[dict[str, Any]], float]:
    """The comparisons of a slice with each rival, and the share of lists of equal scores."""
    means, (lows, highs) = sums.mean().tolist(), (x.tolist() for x in sums.interval())
    count = len(metrics)
    against = [
        {
            metric: dataclasses.asdict(
                Comparison(means[i] - means[j], means[i], lows[j], highs[j], sums.queries)
            )
            for i, metric in enumerate(metrics)
            for j in [start + i]
        }
        for start in range(count, len(means) - 1, count)
    ]
    return name, against, means[-1]
