"""Metrics with the names and conventions of other evaluators."""

from collections.abc import Sequence
from typing import Any

from tfrank_sel.arguments import Count, Positive, check_arguments
from tfrank_sel.metrics.averaging import BY_RELEVANCE
from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.metrics.correlation import ARP, OPA, BPref
from tfrank_sel.metrics.ranked import DCG, MAP, MRR, NDCG, Hits, Precision, Recall, RPrecision
from tfrank_sel.metrics.ties import REVERSED
from tfrank_sel.ops import ranking

CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)


@check_arguments
def trec_eval(
    cutoffs: Sequence[Count] = CUTOFFS,
    relevance_level: Positive | None = 1.0,
    dtype: str | None = None,
) -> list[ListwiseMetric]:
    """Makes the metrics of trec_eval, under its names and with its conventions.

    Gains are linear, `P_k` divides by `k` also for shorter lists, and a query without a relevant
    document is 0 and counts. Scores are compared in float32, and tied documents rank in reverse
    order of the list: sort lists by ascending document identifier.

    The number of relevant documents, and the ideal ranking, are over all judged documents. Give
    documents that the run did not retrieve a score of -inf: they have no rank, but count.

    `bpref` uses judged documents only: for `bpref`, pass the others as padding (label -1); for the
    other metrics, with label 0.

    Args:
        cutoffs: Where to cut `P`, `recall`, `ndcg_cut`, `map_cut` and `success`.
        relevance_level: Minimum label of a relevant document, as trec_eval's option `-l`.
        dtype: The dtype of the computation. With float64, round scores to float32 beforehand.

    Returns:
        The metrics: `map`, `Rprec`, `bpref`, `recip_rank`, `ndcg`, and for each cut-off `P_5`,
        `recall_5`, `ndcg_cut_5`, `map_cut_5`, `success_5`.

    Example:
        >>> evaluate = metrics.Evaluator(metrics.trec_eval(cutoffs=[2]))
        >>> inf = float("inf")
        >>> y_true = [[0.0, 1.0, 1.0]]
        >>> y_pred = [[1.0, 1.0, -inf]]  # a tie, and a relevant document that was not retrieved
        >>> found = evaluate(y_true, y_pred)
        >>> [float(found[name].mean()) for name in ("map", "recip_rank", "P_2", "recall_2")]
        [0.5, 1.0, 0.5, 0.5]

    Reference:
        [trec_eval](https://github.com/usnistgov/trec_eval).
    """
    ranked: dict[str, Any] = {"ties": REVERSED, "dtype": dtype}
    binary = {"relevance_level": relevance_level, **ranked}
    metrics: list[ListwiseMetric] = [
        MAP(name="map", **binary),
        RPrecision(name="Rprec", **binary),
        BPref(name="bpref", **binary),
        MRR(name="recip_rank", **binary),
        NDCG(gain=ranking.linear_gain, name="ndcg", **ranked),
    ]
    for k in cutoffs:
        metrics += [
            Precision(k, name=f"P_{k}", **binary),
            Recall(k, name=f"recall_{k}", **binary),
            NDCG(k, gain=ranking.linear_gain, name=f"ndcg_cut_{k}", **ranked),
            MAP(k, name=f"map_cut_{k}", **binary),
            Hits(k, name=f"success_{k}", **binary),
        ]
    return metrics


@check_arguments
def tfr(cutoffs: Sequence[Count] = (1, 3, 5, 10)) -> list[ListwiseMetric]:
    """Makes the metrics of `tfr.keras.metrics.default_keras_metrics`, with their conventions.

    An item is relevant if its label is at least 1, precision divides a short list by its size, and
    weights have the same meaning (`metrics.averaging.ByRelevance`). There are two differences: ties
    keep the order of the list, but tensorflow-ranking shuffles them; a list without a valid item is
    not counted, but is 0 in tensorflow-ranking.

    Args:
        cutoffs: Where to cut NDCG.

    Returns:
        The metrics, under their names in tensorflow-ranking: `metric/ndcg_1` and so on,
        `metric/arp`, `metric/ordered_pair_accuracy`, `metric/mrr`, `metric/precision`,
        `metric/map`, `metric/dcg` and `metric/ndcg`.

    Example:
        >>> [ndcg, *_] = metrics.tfr()
        >>> float(ndcg([[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]))
        0.5

    Reference:
        [tensorflow-ranking](https://github.com/tensorflow/ranking), version 0.5.5.
    """
    weighs: dict[str, Any] = {"averaging": BY_RELEVANCE}
    binary = {"relevance_level": 1.0, **weighs}
    return [
        *(NDCG(k, name=f"metric/ndcg_{k}", **weighs) for k in cutoffs),
        ARP(name="metric/arp", **weighs),
        OPA(name="metric/ordered_pair_accuracy", **weighs),
        MRR(name="metric/mrr", **binary),
        Precision(clip_k=True, name="metric/precision", **binary),
        MAP(name="metric/map", **binary),
        DCG(name="metric/dcg", **weighs),
        NDCG(name="metric/ndcg", **weighs),
    ]
