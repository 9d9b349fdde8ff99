"""Counterparts of the metrics of tensorflow-ranking, with their arguments.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another metric.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.ops import ranking

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "2**label-1": ranking.exponential_gain,
    "identity": ranking.linear_gain,
    "label+1": lambda label: label + 1.0,
    "ln2/log1p(rank)": ranking.log2_discount,
    "1/rank": ranking.inverse_discount,
    "1": tf.ones_like,
}


def of(case: dict[str, Any]) -> Callable[..., Any]:
    """Makes our counterpart of the metric of a golden case; takes `averaging` and `ties`."""
    arguments = {k: v for k, v in case["kwargs"].items() if k != "ragged"}  # ours take any input
    return METRICS[case["metric"]](**arguments)


def binary(make: Callable[..., Any], topn: int | None = None, **own: Any) -> Callable[..., Any]:
    return functools.partial(make, topn, relevance_level=1.0, **own)


def gain(
    make: Callable[..., Any],
    topn: int | None = None,
    gain_fn: str = "2**label-1",
    rank_discount_fn: str = "ln2/log1p(rank)",
) -> Callable[..., Any]:
    return functools.partial(make, topn, FUNCTIONS[gain_fn], FUNCTIONS[rank_discount_fn])


def alpha_dcg(
    topn: int | None = None,
    alpha: float = 0.5,
    rank_discount_fn: str = "ln2/log1p(rank)",
    seed: int | None = None,
) -> Callable[..., Any]:
    options = {"alpha": alpha, "discount": FUNCTIONS[rank_discount_fn]}
    return binary(metrics.AlphaDCG, topn, **options)


def bpref(topn: int | None = None, use_trec_version: bool = True) -> Callable[..., Any]:
    return binary(metrics.BPref, topn, of_relevant=not use_trec_version)


METRICS: dict[str, Callable[..., Callable[..., Any]]] = {
    "MRRMetric": functools.partial(binary, metrics.MRR),
    "HitsMetric": functools.partial(binary, metrics.Hits),
    "PrecisionMetric": functools.partial(binary, metrics.Precision, clip_k=True),
    "RecallMetric": functools.partial(binary, metrics.Recall),
    "MeanAveragePrecisionMetric": functools.partial(binary, metrics.MAP),
    "NDCGMetric": functools.partial(gain, metrics.NDCG),
    "DCGMetric": functools.partial(gain, metrics.DCG),
    "ARPMetric": lambda: metrics.ARP,
    "OPAMetric": lambda: metrics.OPA,
    "PrecisionIAMetric": functools.partial(binary, metrics.PrecisionIA, clip_k=True),
    "AlphaDCGMetric": alpha_dcg,
    "metrics_impl.BPrefMetric": bpref,
    "metrics_impl.PWAMetric": lambda topn=5: functools.partial(metrics.PWA, topn),
}
