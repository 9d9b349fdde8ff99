"""Top-k losses of one list, by going through all sets of k items."""

import itertools
import math
from collections.abc import Sequence

Floats = Sequence[float]


def log_symmetric(x: Floats, degree: int) -> float:
    """The logarithm of the sum over all sets of the product of their exp(x)."""
    sums = [math.fsum(chosen) for chosen in itertools.combinations(x, degree)]
    return largest(sums, 1.0)


def largest(values: Floats, tau: float) -> float:
    """The largest value, or the soft one: tau * log sum exp(value / tau)."""
    top = max(values, default=-math.inf)
    if tau == 0.0 or top == -math.inf:
        return top
    return top + tau * math.log(math.fsum(math.exp((v - top) / tau) for v in values))


def excess(rivals: Floats, targets: Floats, tau: float) -> float:
    """By how much the best of all is above the best target."""
    if not rivals or not targets:
        return 0.0
    return largest([*rivals, *targets], tau) - largest(targets, tau)


def mean_over_relevant(
    labels: Floats, scores: Floats, weights: Floats, k: int, tau: float, margin: float
) -> float:
    total = 0.0
    others = [s for s, y in zip(scores, labels, strict=True) if y <= 0]
    for y, s, w in zip(labels, scores, weights, strict=True):
        if y > 0:
            rivals = [margin + sum(c) / k for c in itertools.combinations(others, k)]
            targets = [(sum(c) + s) / k for c in itertools.combinations(others, k - 1)]
            total += w * y / sum(labels) * excess(rivals, targets, tau)
    return total


def hit_at_k(
    labels: Floats, scores: Floats, weights: Floats, k: int, tau: float, margin: float
) -> float:
    rivals, targets = [], []
    for chosen in itertools.combinations(range(len(labels)), k):
        mean = sum(scores[i] for i in chosen) / k
        if any(labels[i] > 0 for i in chosen):
            targets.append(mean)
        else:
            rivals.append(mean + margin)
    return mean_weight(labels, weights) * excess(rivals, targets, tau)


def recall_structured(
    labels: Floats, scores: Floats, weights: Floats, k: int, tau: float, margin: float
) -> float:
    rivals, targets = [], []
    most = min(k, sum(y > 0 for y in labels))
    for chosen in itertools.combinations(range(len(labels)), k):
        mean = sum(scores[i] for i in chosen) / k
        found = sum(labels[i] > 0 for i in chosen)
        if found == most:
            targets.append(mean)
        else:
            rivals.append(mean + margin * (most - found) / most)
    return mean_weight(labels, weights) * excess(rivals, targets, tau)


def mean_weight(labels: Floats, weights: Floats) -> float:
    if not any(labels):
        return 0.0
    return sum(w * y for w, y in zip(weights, labels, strict=True)) / sum(labels)


def memberships(scores: Floats, k: float) -> list[float]:
    """The chance of each score to exceed, with Laplace noise, a threshold that k of them exceed."""
    if len(scores) <= k:
        return [1.0] * len(scores)
    low, high = min(scores) - 800.0, max(scores) + 800.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if math.fsum(laplace(s - middle) for s in scores) > k:
            low = middle
        else:
            high = middle
    return [laplace(s - low) for s in scores]


def laplace(x: float) -> float:
    return math.exp(x) / 2.0 if x < 0.0 else 1.0 - math.exp(-x) / 2.0


def cross_entropy(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    k: Sequence[int],
    probabilities: Floats,
    temperature: float,
) -> float:
    each = [memberships([s / temperature for s in scores], top) for top in k]
    total = 0.0
    for i, (y, w) in enumerate(zip(labels, weights, strict=True)):
        if y > 0:
            p = math.fsum(
                share * found[i] for share, found in zip(probabilities, each, strict=True)
            )
            total -= w * y / sum(labels) * math.log(p)
    return total
