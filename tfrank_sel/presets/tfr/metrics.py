"""Metrics with the conventions of `tfr.keras.metrics`.

An item is relevant from label 1 on, precision divides by the number of items of a short list, and
weights are those of `metrics.averaging.ByRelevance`. Each function takes the arguments of the class
in tensorflow-ranking, except `ragged`: every metric takes dense and ragged tensors. Further
keywords are those of `metrics.ListwiseMetric`, such as `name`, `dtype` and `ties`.
"""

from collections.abc import Callable
from typing import Any

from tfrank_sel import metrics
from tfrank_sel.errors import refusal
from tfrank_sel.ops import ranking

Function = Callable[[Any], Any]
BY_RELEVANCE: dict[str, Any] = {"averaging": metrics.averaging.BY_RELEVANCE}
BINARY: dict[str, Any] = {"relevance_level": 1.0, **BY_RELEVANCE}

default_keras_metrics = metrics.tfr


def get(key: str, **arguments: Any) -> metrics.ListwiseMetric:
    """Makes a metric by its key, as `tfr.keras.metrics.get` does.

    Args:
        key: A key of `tfr.keras.metrics.RankingMetricKey`, such as `"ndcg"`.
        **arguments: The arguments of the function of that name in this module. As there, a `topn`
            of `None` is accepted for each key.

    Raises:
        ValueError: If there is no such key.

    Example:
        >>> presets.tfr.metrics.get("ndcg", topn=5).k
        5
    """
    if key not in KEYS:
        raise refusal("No metric has this key", f"{key!r}. Accepted: {[*KEYS]}")
    if arguments.get("topn", key) is None:
        del arguments["topn"]
    return KEYS[key](**arguments)


def mrr(topn: int | None = None, **kwargs: Any) -> metrics.MRR:
    """Makes `tfr.keras.metrics.MRRMetric`."""
    return metrics.MRR(topn, **BINARY, **kwargs)


def hits(topn: int | None = None, **kwargs: Any) -> metrics.Hits:
    """Makes `tfr.keras.metrics.HitsMetric`."""
    return metrics.Hits(topn, **BINARY, **kwargs)


def precision(topn: int | None = None, **kwargs: Any) -> metrics.Precision:
    """Makes `tfr.keras.metrics.PrecisionMetric`."""
    return metrics.Precision(topn, clip_k=True, **BINARY, **kwargs)


def recall(topn: int | None = None, **kwargs: Any) -> metrics.Recall:
    """Makes `tfr.keras.metrics.RecallMetric`."""
    return metrics.Recall(topn, **BINARY, **kwargs)


def mean_average_precision(topn: int | None = None, **kwargs: Any) -> metrics.MAP:
    """Makes `tfr.keras.metrics.MeanAveragePrecisionMetric`."""
    return metrics.MAP(topn, **BINARY, **kwargs)


def precision_ia(topn: int | None = None, **kwargs: Any) -> metrics.PrecisionIA:
    """Makes `tfr.keras.metrics.PrecisionIAMetric`."""
    return metrics.PrecisionIA(topn, clip_k=True, **BINARY, **kwargs)


def alpha_dcg(
    topn: int | None = None,
    alpha: float = 0.5,
    rank_discount_fn: Function = ranking.log2_discount,
    **kwargs: Any,
) -> metrics.AlphaDCG:
    """Makes `tfr.keras.metrics.AlphaDCGMetric`, without `seed`: ties keep their order."""
    return metrics.AlphaDCG(topn, alpha, rank_discount_fn, **BINARY, **kwargs)


def ndcg(
    topn: int | None = None,
    gain_fn: Function = ranking.exponential_gain,
    rank_discount_fn: Function = ranking.log2_discount,
    **kwargs: Any,
) -> metrics.NDCG:
    """Makes `tfr.keras.metrics.NDCGMetric`."""
    return metrics.NDCG(topn, gain_fn, rank_discount_fn, **BY_RELEVANCE, **kwargs)


def dcg(
    topn: int | None = None,
    gain_fn: Function = ranking.exponential_gain,
    rank_discount_fn: Function = ranking.log2_discount,
    **kwargs: Any,
) -> metrics.DCG:
    """Makes `tfr.keras.metrics.DCGMetric`."""
    return metrics.DCG(topn, gain_fn, rank_discount_fn, **BY_RELEVANCE, **kwargs)


def arp(**kwargs: Any) -> metrics.ARP:
    """Makes `tfr.keras.metrics.ARPMetric`."""
    return metrics.ARP(**BY_RELEVANCE, **kwargs)


def ordered_pair_accuracy(**kwargs: Any) -> metrics.OPA:
    """Makes `tfr.keras.metrics.OPAMetric`."""
    return metrics.OPA(**BY_RELEVANCE, **kwargs)


KEYS: dict[str, Callable[..., metrics.ListwiseMetric]] = {
    "mrr": mrr,
    "arp": arp,
    "ndcg": ndcg,
    "dcg": dcg,
    "precision": precision,
    "map": mean_average_precision,
    "precision_ia": precision_ia,
    "ordered_pair_accuracy": ordered_pair_accuracy,
    "alpha_dcg": alpha_dcg,
    "hits": hits,
}
