"""The softmax family of one list, as the papers write it: floats and loops, no masks."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.references.metrics import dcg, ranked

Floats = Sequence[float]
Rows = Sequence[Floats]


def cross_entropy(targets: Floats, logits: Floats, weights: Floats) -> float:
    top = max(logits)
    partition = sum(math.exp(x - top) for x in logits)
    return -sum(
        w * t * (x - top - math.log(partition))
        for t, x, w in zip(targets, logits, weights, strict=True)
    )


def softmax_towards_gains(labels: Floats, scores: Floats, weights: Floats) -> float:
    gains = [2**y - 1 for y in labels]
    total = sum(gains)
    return cross_entropy([g / total for g in gains], scores, weights) if total else 0.0


def softmax_towards_softmax(
    labels: Floats, scores: Floats, weights: Floats, target_temperature: float
) -> float:
    exp = [math.exp(y / target_temperature) for y in labels]
    return cross_entropy([e / sum(exp) for e in exp], scores, weights)


def infonce(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    positives = [i for i, y in enumerate(labels) if y > 0]
    total = 0.0
    for i in positives:
        contrast = [math.exp(s / temperature) for s, y in zip(scores, labels, strict=True) if not y]
        own = math.exp(scores[i] / temperature)
        total -= weights[i] * math.log(own / (own + sum(contrast)))
    return total / len(positives) if positives else 0.0


def cosface(c: float) -> float:
    return c - 0.25


def arcface(c: float) -> float:
    """cos(theta + 0.5), or below -1 - 0.5 * sin(0.5); beyond 1, where rounding goes, sine is 0."""
    if c < math.cos(math.pi - 0.5):
        return c - 0.5 * math.sin(0.5)
    if c > 1.0:
        return c * math.cos(0.5)
    return math.cos(math.acos(c) + 0.5)


def margin_softmax(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    margin: Callable[[float], float],
    scale: float,
) -> float:
    if not sum(labels):
        return 0.0
    logits = [scale * (margin(c) if y > 0 else c) for y, c in zip(labels, scores, strict=True)]
    return cross_entropy([y / sum(labels) for y in labels], logits, weights)


def zlpr(labels: Floats, scores: Floats, weights: Floats, threshold: float) -> float:
    holds = fails = 1.0
    for t, s, w in zip(labels, scores, weights, strict=True):
        holds += w * t * math.exp(threshold - s)
        fails += w * (1 - t) * math.exp(s - threshold)
    return math.log(holds) + math.log(fails)


def soft_rank(
    labels: Floats, scores: Floats, weights: Floats, sigma: float, k: int | None
) -> float:
    """Goes through all outcomes of the comparisons of each item with the others."""
    gains = [w * (2**y - 1) for y, w in zip(labels, weights, strict=True)]
    ideal = dcg(gains, ranked(gains), k)
    expected = 0.0
    for j, s in enumerate(scores):
        ahead = [0.5 * math.erfc((s - t) / (2 * sigma)) for i, t in enumerate(scores) if i != j]
        for outcome in itertools.product([False, True], repeat=len(ahead)):
            p = math.prod(a if won else 1 - a for a, won in zip(ahead, outcome, strict=True))
            rank = 1 + sum(outcome)
            if k is None or rank <= k:
                expected += p * gains[j] / math.log2(1 + rank)
    return 1 - expected / ideal if ideal else 0.0


def direct_ap(labels: Floats, scores: Floats, weights: Floats, epsilon: float) -> float:
    """Goes through all ways to merge the relevant items with the others, each sorted by score."""
    order = ranked(scores)
    positives = [i for i in order if labels[i] > 0]
    negatives = [i for i in order if labels[i] <= 0]
    if not positives or not negatives:
        return 0.0
    plain, direct = -math.inf, -math.inf
    for places in itertools.combinations(range(len(labels)), len(positives)):
        by_scores = lost = 0.0
        for n, (i, place) in enumerate(zip(positives, places, strict=True), start=1):
            for m, j in enumerate(negatives):
                sign = -1 if m < place + 1 - n else 1
                by_scores += weights[i] * sign * (scores[i] - scores[j])
            lost += weights[i] * (1 - n / (place + 1))
        by_scores /= len(positives) * len(negatives)
        plain = max(plain, by_scores)
        direct = max(direct, by_scores + epsilon * lost / len(positives))
    return (direct - plain) / epsilon


def in_batch_infonce(
    identities: Sequence[Any],
    scores: Rows,
    weights: Floats,
    temperature: float,
    symmetric: bool,
    log_q: Floats | None,
) -> float:
    """The mean over the pairs of a batch."""
    total, n = 0.0, len(scores)
    q = [1.0 if log_q is None else math.exp(log_q[int(item)]) for item in identities]
    odds = [[math.exp(s / temperature) / q[j] for j, s in enumerate(row)] for row in scores]
    for matrix in (odds, list(zip(*odds, strict=True)))[: 1 + symmetric]:
        for i, row in enumerate(matrix):
            others = [x for j, x in enumerate(row) if j == i or identities[i] != identities[j]]
            total -= weights[i] * math.log(row[i] / sum(others))
    return total / n / (1 + symmetric)


def n_way(labels: Rows, scores: Rows, weights: Floats, inside: Callable[..., float]) -> float:
    """sum_j log(1 + sum_i w_i * t_ij * inside(s_i, j))."""
    total = 0.0
    for j in range(len(labels[0])):
        rows = zip(labels, scores, weights, strict=True)
        total += math.log(1 + sum(w * t[j] * inside(s, j) for t, s, w in rows))
    return total


def n_way_joint(labels: Rows, scores: Rows, weights: Floats) -> float:
    def inside(s: Floats, j: int) -> float:
        return sum(math.exp(x - s[j]) for k, x in enumerate(s) if k != j)

    return n_way(labels, scores, weights, inside)


def n_way_mean(labels: Rows, scores: Rows, weights: Floats) -> float:
    return n_way(labels, scores, weights, lambda s, j: math.exp(sum(s) / len(s) - s[j]))


def n_way_pairwise(
    labels: Rows, scores: Rows, weights: Floats, scale: float, class_weights: Floats
) -> float:
    total = 0.0
    for j, k in itertools.permutations(range(len(class_weights)), 2):
        rows = zip(labels, scores, weights, strict=True)
        inside = (w * t[j] * math.exp((s[k] - s[j]) / scale) for t, s, w in rows)
        total += math.log(1 + class_weights[j] * sum(inside))
    return total
