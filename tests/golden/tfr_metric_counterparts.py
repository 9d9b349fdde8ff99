"""Counterparts of the metrics of tensorflow-ranking, with their arguments.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another metric.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests.references import metrics as reference
from tfrank_sel import metrics
from tfrank_sel.ops import ranking


def at_least_one(label: Any) -> float:
    return float(max(label, default=0.0) >= 1.0 if isinstance(label, list) else label >= 1.0)


class Ours(NamedTuple):
    """A metric of this package that stands for one of tensorflow-ranking.

    Attributes:
        make: Makes the metric; takes `averaging` and `ties`.
        worth: What a label is worth, in the weight of a list.
        reference: The value of a list of labels, scores and weights, of metrics whose value we mean
            to differ from.
    """

    make: Callable[..., Any]
    worth: Callable[[Any], float] = at_least_one
    reference: Callable[..., float] | None = None


# of tensors, and of the reference
GAINS: dict[str, tuple[Callable[[Any], Any], Callable[[float], float]]] = {
    "2**label-1": (ranking.exponential_gain, reference.exponential),
    "identity": (ranking.linear_gain, float),
    "label+1": (lambda y: y + 1.0, lambda y: y + 1.0),
}
DISCOUNTS: dict[str, tuple[Callable[[Any], Any], Callable[[int], float]]] = {
    "ln2/log1p(rank)": (ranking.log2_discount, reference.log2),
    "1/rank": (lambda r: 1.0 / r, lambda r: 1.0 / r),
    "1": (tf.ones_like, lambda r: 1.0),
}


def of(case: dict[str, Any]) -> Ours:
    """Our counterpart of the metric of a golden case."""
    arguments = {k: v for k, v in case["kwargs"].items() if k != "ragged"}  # ours take any input
    return METRICS[case["metric"]](**arguments)


def binary(make: Callable[..., Any], topn: int | None = None, **own: Any) -> Ours:
    return Ours(functools.partial(make, topn, relevance_level=1.0, **own))


def gain(
    make: Callable[..., Any],
    formula: Callable[..., float],
    topn: int | None = None,
    gain_fn: str = "2**label-1",
    rank_discount_fn: str = "ln2/log1p(rank)",
) -> Ours:
    gain, discount = GAINS[gain_fn], DISCOUNTS[rank_discount_fn]
    return Ours(
        functools.partial(make, topn, gain[0], discount[0]),
        gain[1],
        functools.partial(formula, k=topn, gain=gain[1], discount=discount[1]),
    )


def alpha_dcg(
    topn: int | None = None,
    alpha: float = 0.5,
    rank_discount_fn: str = "ln2/log1p(rank)",
    seed: int | None = None,
) -> Ours:
    discount = DISCOUNTS[rank_discount_fn]
    return Ours(
        functools.partial(metrics.AlphaDCG, topn, alpha, discount[0], relevance_level=1.0),
        at_least_one,
        functools.partial(reference.alpha_dcg, k=topn, alpha=alpha, discount=discount[1]),
    )


def precision_ia(topn: int | None = None) -> Ours:
    return Ours(
        functools.partial(metrics.PrecisionIA, topn, clip_k=True, relevance_level=1.0),
        at_least_one,
        functools.partial(reference.precision_ia, k=topn),
    )


def bpref(topn: int | None = None, use_trec_version: bool = True) -> Ours:
    return binary(metrics.BPref, topn, of_relevant=not use_trec_version)


METRICS: dict[str, Callable[..., Ours]] = {
    "MRRMetric": functools.partial(binary, metrics.MRR),
    "HitsMetric": functools.partial(binary, metrics.Hits),
    "PrecisionMetric": functools.partial(binary, metrics.Precision, clip_k=True),
    "RecallMetric": functools.partial(binary, metrics.Recall),
    "MeanAveragePrecisionMetric": functools.partial(binary, metrics.MAP),
    "NDCGMetric": functools.partial(gain, metrics.NDCG, reference.ndcg),
    "DCGMetric": functools.partial(gain, metrics.DCG, reference.discounted_gain),
    "ARPMetric": lambda: Ours(metrics.ARP),
    "OPAMetric": lambda: Ours(metrics.OPA),
    "PrecisionIAMetric": precision_ia,
    "AlphaDCGMetric": alpha_dcg,
    "metrics_impl.BPrefMetric": bpref,
    "metrics_impl.PWAMetric": lambda topn=5: Ours(functools.partial(metrics.PWA, topn), float),
}
