"""Metrics of one list, as the papers write them: floats and loops, no masks."""

import math
from collections.abc import Sequence

from tests.references import links

Floats = Sequence[float]


def ranked(scores: Floats) -> list[int]:
    """Indices by descending score; ties keep their order."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def dcg(gains: Floats, order: list[int], k: int | None) -> float:
    return sum(gains[i] / math.log2(rank + 1) for rank, i in enumerate(order[:k], start=1))


def ndcg(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    gains = [w * (2**y - 1) for y, w in zip(labels, weights, strict=True)]
    ideal = dcg(gains, ranked(gains), k)
    return dcg(gains, ranked(scores), k) / ideal if ideal else 0.0


def reciprocal_rank(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    for rank, i in enumerate(ranked(scores)[:k], start=1):
        if labels[i] > 0 and weights[i] > 0:
            return weights[i] / rank
    return 0.0


def discounted_gain(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    gains = [w * (2**y - 1) for y, w in zip(labels, weights, strict=True)]
    return dcg(gains, ranked(scores), k)


def precision(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    found = sum(weights[i] for i in ranked(scores)[:k] if labels[i] > 0)
    return found / (len(labels) if k is None else k)


def recall(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    found = sum(weights[i] for i in ranked(scores)[:k] if labels[i] > 0)
    relevant = sum(w for y, w in zip(labels, weights, strict=True) if y > 0)
    return found / relevant if relevant else 0.0


def average_precision(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    found, total = 0, 0.0
    for rank, i in enumerate(ranked(scores)[:k], start=1):
        if labels[i] > 0 and weights[i] > 0:
            found += 1
            total += weights[i] * found / rank
    relevant = sum(w for y, w in zip(labels, weights, strict=True) if y > 0)
    return total / relevant if relevant else 0.0


def region_divergence(
    labels: Floats, scores: Floats, weights: Floats, link: links.Formula, lower: float, upper: float
) -> float:
    """The weighted mean of the scalar matching losses of the items of a region."""
    items = [x for x in zip(labels, scores, weights, strict=True) if lower <= x[0] < upper]
    total = sum(w * links.divergence(link, z, s) for s, z, w in items)
    return total / sum(w for _, _, w in items) if items else 0.0


def region_absolute_error(
    labels: Floats, scores: Floats, weights: Floats, lower: float, upper: float
) -> float:
    items = [x for x in zip(labels, scores, weights, strict=True) if lower <= x[0] < upper]
    total = sum(w * abs(z - s) for s, z, w in items)
    return total / sum(w for _, _, w in items) if items else 0.0
