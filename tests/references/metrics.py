"""Metrics of one list, as the papers write them: floats and loops, no masks."""

import math
from collections.abc import Callable, Sequence

from tests.references import links

Floats = Sequence[float]


def ranked(scores: Floats) -> list[int]:
    """Indices by descending score; ties keep their order."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def exponential(label: float) -> float:
    return 2**label - 1


def log2(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def dcg(
    gains: Floats, order: list[int], k: int | None, discount: Callable[[int], float] = log2
) -> float:
    return sum(gains[i] * discount(rank) for rank, i in enumerate(order[:k], start=1))


def ndcg(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    k: int | None,
    gain: Callable[[float], float] = exponential,
    discount: Callable[[int], float] = log2,
) -> float:
    gains = [w * gain(y) for y, w in zip(labels, weights, strict=True)]
    ideal = dcg(gains, ranked(gains), k, discount)
    return dcg(gains, ranked(scores), k, discount) / ideal if ideal else 0.0


def reciprocal_rank(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    for rank, i in enumerate(ranked(scores)[:k], start=1):
        if labels[i] > 0 and weights[i] > 0:
            return weights[i] / rank
    return 0.0


def discounted_gain(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    k: int | None,
    gain: Callable[[float], float] = exponential,
    discount: Callable[[int], float] = log2,
) -> float:
    gains = [w * gain(y) for y, w in zip(labels, weights, strict=True)]
    return dcg(gains, ranked(scores), k, discount)


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


def excess_error(labels: Floats, scores: Floats, weights: Floats, above: float) -> float:
    items = zip(labels, scores, weights, strict=True)
    total = sum(w * (max(z, above) - max(s, above)) ** 2 for s, z, w in items)
    return math.sqrt(total / sum(weights))


def hits(labels: Floats, scores: Floats, weights: Floats, k: int | None) -> float:
    for i in ranked(scores)[:k]:
        if labels[i] > 0 and weights[i] > 0:
            return weights[i]
    return 0.0


def r_precision(labels: Floats, scores: Floats, weights: Floats) -> float:
    relevant = sum(y > 0 for y in labels)
    found = sum(weights[i] for i in ranked(scores)[:relevant] if labels[i] > 0)
    return found / relevant if relevant else 0.0


def position_weighted_average(
    labels: Floats, scores: Floats, weights: Floats, k: int | None
) -> float:
    top = list(enumerate(ranked(scores)[:k], start=1))
    total = sum(weights[i] * labels[i] / rank for rank, i in top)
    return total / sum(1 / rank for rank, _ in top)


def expected_reciprocal_rank(
    labels: Floats, scores: Floats, weights: Floats, k: int | None, max_label: float = 4.0
) -> float:
    reaches, total = 1.0, 0.0
    for rank, i in enumerate(ranked(scores)[:k], start=1):
        stops = min(weights[i] * (2 ** min(labels[i], max_label) - 1) / 2**max_label, 1.0)
        total += reaches * stops / rank
        reaches *= 1 - stops
    return total


def rank_biased_precision(
    labels: Floats, scores: Floats, weights: Floats, persistence: float
) -> float:
    order = ranked(scores)
    found = sum(weights[i] * persistence**r for r, i in enumerate(order) if labels[i] > 0)
    return (1 - persistence) * found


def average_relevance_position(labels: Floats, scores: Floats, weights: Floats) -> float:
    total = sum(w * y for w, y in zip(weights, labels, strict=True))
    ranks = enumerate(ranked(scores), start=1)
    return sum(r * weights[i] * labels[i] for r, i in ranks) / total if total else 0.0


def ordered_pair_accuracy(labels: Floats, scores: Floats, weights: Floats) -> float:
    n = range(len(labels))
    pairs = [(i, j) for i in n for j in n if labels[i] > labels[j]]
    found = sum(weights[i] for i, j in pairs if scores[i] > scores[j])
    return found / sum(weights[i] for i, _ in pairs) if pairs else 0.0


def area_under_curve(labels: Floats, scores: Floats, weights: Floats) -> float:
    n = range(len(labels))
    found = total = 0.0
    for i, j in [(i, j) for i in n for j in n if labels[i] > 0 and labels[j] <= 0]:
        weight = weights[i] * weights[j]
        total += weight
        found += weight * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return found / total if total else 0.0


def binary_preference(
    labels: Floats, scores: Floats, weights: Floats, k: int | None, of_relevant: bool = False
) -> float:
    relevant = sum(y > 0 for y in labels)
    irrelevant = len(labels) - relevant
    limit = relevant if of_relevant else min(relevant, irrelevant)
    ahead, total = 0, 0.0
    for i in ranked(scores)[:k]:
        if labels[i] > 0:
            total += weights[i] * (1 - (min(ahead, relevant) / limit if limit else 0.0))
        else:
            ahead += 1
    return total / relevant if relevant else 0.0


def kendall_tau(labels: Floats, scores: Floats, weights: Floats) -> float:
    def sign(x: float) -> int:
        return int(x > 0) - int(x < 0)

    both = of_labels = of_scores = 0.0
    for i in range(len(labels)):
        for j in range(i):
            weight = weights[i] * weights[j]
            y, s = sign(labels[i] - labels[j]), sign(scores[i] - scores[j])
            both += weight * y * s
            of_labels += weight * y * y
            of_scores += weight * s * s
    return both / math.sqrt(of_labels * of_scores) if of_labels and of_scores else 0.0


def spearman_rho(labels: Floats, scores: Floats, weights: Floats) -> float:
    def centred(x: Floats) -> list[float]:
        ranks = [sum(u < v for u in x) + (x.count(v) + 1) / 2 for v in x]
        mean = sum(w * r for w, r in zip(weights, ranks, strict=True)) / sum(weights)
        return [r - mean for r in ranks]

    a, b = centred(list(labels)), centred(list(scores))
    both, of_labels, of_scores = (
        sum(w * u * v for w, u, v in zip(weights, p, q, strict=True))
        for p, q in ((a, b), (a, a), (b, b))
    )
    tied = len(set(labels)) == 1 or len(set(scores)) == 1
    return 0.0 if tied else both / math.sqrt(of_labels * of_scores)


def precision_ia(labels: Sequence[Floats], scores: Floats, weights: Floats, k: int | None) -> float:
    subtopics = [t for t in range(len(labels[0])) if any(y[t] > 0 for y in labels)]
    if not subtopics:
        return 0.0
    top = ranked(scores)[:k]
    found = sum(weights[i] for t in subtopics for i in top if labels[i][t] > 0)
    return found / (len(subtopics) * (len(labels) if k is None else k))


def alpha_dcg(
    labels: Sequence[Floats],
    scores: Floats,
    weights: Floats,
    k: int | None,
    alpha: float = 0.5,
    discount: Callable[[int], float] = log2,
) -> float:
    seen, total = [0.0] * len(labels[0]), 0.0
    for rank, i in enumerate(ranked(scores)[:k], start=1):
        gain = sum(y * (1 - alpha) ** s for y, s in zip(labels[i], seen, strict=True))
        total += weights[i] * gain * discount(rank)
        seen = [s + y for s, y in zip(seen, labels[i], strict=True)]
    return total


def alpha_ndcg(
    labels: Sequence[Floats], scores: Floats, weights: Floats, k: int | None, alpha: float = 0.5
) -> float:
    seen, free, greedy = [0.0] * len(labels[0]), list(range(len(labels))), []
    while free:
        gains = [
            weights[i] * sum(y * (1 - alpha) ** s for y, s in zip(labels[i], seen, strict=True))
            for i in free
        ]
        best = free.pop(gains.index(max(gains)))
        greedy.append(best)
        seen = [s + y for s, y in zip(seen, labels[best], strict=True)]
    places = [-float(greedy.index(i)) for i in range(len(labels))]
    ideal = alpha_dcg(labels, places, weights, k, alpha)
    return alpha_dcg(labels, scores, weights, k, alpha) / ideal if ideal else 0.0


def subtopic_recall(
    labels: Sequence[Floats], scores: Floats, weights: Floats, k: int | None
) -> float:
    subtopics = [t for t in range(len(labels[0])) if any(y[t] > 0 for y in labels)]
    top = ranked(scores)[:k]
    found = sum(max([weights[i] for i in top if labels[i][t] > 0], default=0.0) for t in subtopics)
    return found / len(subtopics) if subtopics else 0.0


def predicted(scores: Floats, from_logits: bool) -> list[float]:
    return [1.0 / (1.0 + math.exp(-s)) if from_logits else s for s in scores]


def brier_score(labels: Floats, scores: Floats, weights: Floats, from_logits: bool = True) -> float:
    p = predicted(scores, from_logits)
    return sum(w * (x - y) ** 2 for w, x, y in zip(weights, p, labels, strict=True)) / sum(weights)


def pcoc(labels: Floats, scores: Floats, weights: Floats, from_logits: bool = True) -> float:
    p = predicted(scores, from_logits)
    expected = sum(w * x for w, x in zip(weights, p, strict=True))
    return expected / sum(w * y for w, y in zip(weights, labels, strict=True))


def expected_calibration_error(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    edges: Floats = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    from_logits: bool = True,
) -> float:
    gaps: dict[int, float] = {}
    for x, y, w in zip(predicted(scores, from_logits), labels, weights, strict=True):
        place = sum(x >= edge for edge in edges)
        gaps[place] = gaps.get(place, 0.0) + w * (x - y)
    return sum(map(abs, gaps.values())) / sum(weights)
