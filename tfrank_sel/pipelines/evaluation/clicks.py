"""Evaluation by the clicks of the test split: the order of the model beside the logged one."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyarrow import parquet

from tfrank_sel import metrics, roads
from tfrank_sel.data import packed
from tfrank_sel.data.table import tell_partners
from tfrank_sel.errors import refusal
from tfrank_sel.metrics.significance import resample
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.evaluation.evaluation import PER_SESSION, MetricComparison, measures
from tfrank_sel.pipelines.ingestion import ingest_counts, stored_lists
from tfrank_sel.pipelines.ingestion.clicks import PROPENSITIES, SHOWN
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer, StoredLists

# Number of queries that are evaluated at once.
_QUERIES = 256


class UnknownValueError(ValueError):
    """The log does not tell what another order would earn."""


def compare(
    scorer: Scorer,
    lists: StoredLists,
    folder: Path,
    settings: Clicks,
    *,
    gain: str | float,
    seed: int,
) -> tuple[dict[str, MetricComparison], float]:
    """Compares the order of a model with that of the log, on the clicks of a split.

    Args:
        scorer: Scoring function of the model.
        lists: The split, whose items have identifiers.
        folder: Folder with the log and its propensities, that ingest wrote.
        settings: The correction.
        gain: Gain of NDCG, as in `ranking.gain_arguments`.
        seed: Seed of the resampling.

    Returns:
        Comparisons with the logged order, the baseline: `PER_SESSION`, the expected number of
        clicks; and each of `measures(gain)` on labels that are corrected, and on shares of clicks
        as they are, whose names end in "of corrected clicks" and "of clicks". And the effective
        share of the impressions.

    Raises:
        UnknownValueError: If the log does not tell the value: it has no sessions, only one or only
            counts, one position, no item at several positions, or a session with two items at one.
        ValueError: If less than half of its rows are items of the split, or a score is not finite.
    """
    scores = pa.concat_tables(_scores(scorer, lists))
    shown = parquet.read_table(folder / SHOWN)
    of_split = shown.filter(pa.compute.is_in(shown["query"], scores["query"].combine_chunks()))
    joined = of_split.join(scores, ["query", "item"], join_type="left outer")
    has_score = joined["score"].is_valid()
    tell_partners("impressions of the split", has_score.to_numpy(), "its items")
    table = joined.filter(has_score)
    score = table["score"].to_numpy()
    if not np.isfinite(score).all():
        raise refusal("the scores of the model must be finite", score[~np.isfinite(score)][0])
    if len(positions := table["position"].unique()) < 2:
        raise UnknownValueError(f"all impressions of the split are at position {positions[0]}")
    clicks = roads.load("clicks", "the section `clicks`")
    log = clicks.Log.of(table, session="session")
    loaded = clicks.Propensities.load(folder / PROPENSITIES).nearest(log.positions)
    least = 0.0 if loaded.are_of_items else settings.least
    try:
        values = clicks.reordered(log, loaded, score, least=least, seed=seed)
    except ValueError as error:
        raise UnknownValueError(str(error)) from error
    difference = values["difference"]
    comparisons = {
        PER_SESSION: MetricComparison(
            values["logged"].value,
            values["new"].value,
            difference.low,
            difference.high,
            log.num_queries,
        )
    }
    rows = np.bincount(log.items)
    ours, logged = np.bincount(log.items, score), -np.bincount(log.items, log.columns)
    measured = measures(gain)
    evaluate = metrics.Evaluator(list(measured.values()))
    sizes = np.bincount(log.query_of_item)
    keys = ingest_counts.hashes_of(map(str.encode, log.query_ids.tolist()))

    def values_of(label: np.ndarray, ranking: np.ndarray) -> np.ndarray:
        """Each measure of each query, `[queries, measures]`."""
        lists = [tf.RaggedTensor.from_row_lengths(x, sizes) for x in (label, ranking)]
        parts = [
            evaluate(*(x[first : first + _QUERIES] for x in lists)).values()
            for first in range(0, len(sizes), _QUERIES)
        ]
        return np.concatenate([np.stack([x.values for x in part], axis=1) for part in parts])

    for name, propensities in (("corrected clicks", loaded), ("clicks", np.ones(len(score)))):
        # labels of training are shrunk, which favours the logged order
        label = clicks.labels(log, propensities, "doubly_robust", least=settings.least)["label"]
        ours_values, other = (values_of(label, x / rows) for x in (ours, logged))
        sums = resample(
            keys, np.concatenate([ours_values, other, ours_values - other], axis=1), seed=seed
        )
        means, (low, high) = sums.mean().tolist(), (x.tolist() for x in sums.interval())
        count = ours_values.shape[1]
        for i, metric in enumerate(measured):
            ends = low[2 * count + i], high[2 * count + i]
            comparisons[f"{metric} of {name}"] = MetricComparison(
                means[count + i], means[i], *ends, queries=len(sizes)
            )
    return comparisons, difference.effective / len(score)


def _scores(scorer: Scorer, lists: StoredLists) -> Iterator[pa.Table]:
    """The score of each item of a split."""
    spec = lists.spec
    for serialized in stored_lists.serialized_batches(lists.shards):
        parsed = packed.parse(serialized, spec)
        mask = parsed["mask"].numpy()
        queries = stored_lists.context(serialized, spec, {})[spec.query_id]
        columns = {
            "query": np.repeat(queries, mask.sum(axis=1)),
            "item": parsed[spec.doc_id].numpy()[mask],
        }
        texts = {name: pa.array(x, pa.binary()).cast(pa.string()) for name, x in columns.items()}
        scores = scorer(stored_lists.inputs(parsed, spec)).numpy()[mask].astype(np.float64)
        yield pa.table({**texts, "score": scores})
