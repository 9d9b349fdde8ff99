"""Listwise losses of one list, as the papers write them: floats and loops, no masks."""

import itertools
import math
from collections.abc import Callable, Sequence

Floats = Sequence[float]
Smooth = Callable[[float], float]


def weight_of_list(labels: Floats, weights: Floats) -> float:
    """The mean weight of the items, each as much as it is relevant."""
    if sum(labels) == 0:
        return 0.0
    return sum(w * y for w, y in zip(weights, labels, strict=True)) / sum(labels)


def log_softmax(scores: Floats) -> list[float]:
    top = max(scores)
    log_sum = top + math.log(sum(math.exp(s - top) for s in scores))
    return [s - log_sum for s in scores]


def calibrated_softmax(
    labels: Floats, scores: Floats, weights: Floats, virtual_label: float, temperature: float
) -> float:
    if len(labels) == 0:
        return 0.0
    labels, weights = [*labels, virtual_label], [*weights, 1.0]
    logs = log_softmax([s / temperature for s in [*scores, 0.0]])
    total = sum(labels)
    return -sum(w * y * p for w, y, p in zip(weights, labels, logs, strict=True)) / (total or 1.0)


def poly_one_softmax(
    labels: Floats, scores: Floats, weights: Floats, epsilon: float, temperature: float
) -> float:
    if sum(labels) == 0:
        return 0.0
    loss = 0.0
    logs = log_softmax([s / temperature for s in scores])
    for w, y, p in zip(weights, labels, logs, strict=True):
        loss += w * y / sum(labels) * (-p + epsilon * (1 - math.exp(p)))
    return loss


def unique_softmax(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    x = [s / temperature for s in scores]
    loss = 0.0
    for i, y in enumerate(labels):
        against = [x[i], *(t for z, t in zip(labels, x, strict=True) if z < y)]
        loss -= (2**y - 1) * log_softmax(against)[0]
    return weight_of_list(labels, weights) * loss


def circle(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    gamma: float,
    margin: float,
    held: Floats | None = None,
) -> float:
    """The factors of the distances are those of the scores `held`, if there are such."""
    s, held = (
        [min(max(x, 0.0), 1.0) for x in y] for y in (scores, scores if held is None else held)
    )
    exponents = [0.0]
    for i, j in itertools.permutations(range(len(labels)), 2):
        if labels[i] > labels[j]:
            above = max(1 + margin - held[i], 0.0) * (1 - margin - s[i])
            below = max(held[j] + margin, 0.0) * (s[j] - margin)
            exponents.append(gamma * (above + below))
    return -weight_of_list(labels, weights) * log_softmax(exponents)[0]


def list_mle(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    position_weight: Callable[[float], float] | None,
    temperature: float,
) -> float:
    """Goes through the groups of equal labels; their items share the places of the group."""
    x = [s / temperature for s in scores]
    loss, position = 0.0, 0
    for label in sorted(set(labels), reverse=True):
        group = [t for y, t in zip(labels, x, strict=True) if y == label]
        behind = [t for y, t in zip(labels, x, strict=True) if y < label]
        top = max(group + behind)  # else an exponential may be too large
        for passed in range(len(group)):
            position += 1
            left = 1 - passed / len(group)
            rest = left * sum(math.exp(t - top) for t in group)
            rest += sum(math.exp(t - top) for t in behind)
            c = 1.0 if position_weight is None else float(position_weight(float(position)))
            loss += c * (top + math.log(rest) - sum(group) / len(group))
    return weight_of_list(labels, weights) * loss


def sigmoid(x: float) -> float:
    return 0.5 + 0.5 * math.tanh(x / 2)


def soft_ranks(scores: Floats, temperature: float, h: Smooth = sigmoid) -> list[float]:
    """Each rank is 1/2 and the sum of `h` of all differences, the item's own included."""
    x = [s / temperature for s in scores]
    return [0.5 + sum(h(t - s) for t in x) for s in x]


def mean_ranks(labels: Floats) -> list[float]:
    return [0.5 + sum((z > y) + (z == y) / 2 for z in labels) for y in labels]


def spearman(
    labels: Floats, scores: Floats, weights: Floats, temperature: float, h: Smooth = sigmoid
) -> float:
    n = len(labels)
    if n < 2:
        return 0.0
    both = zip(weights, soft_ranks(scores, temperature, h), mean_ranks(labels), strict=True)
    return 6 / (n * (n**2 - 1)) * sum(w * (r - a) ** 2 for w, r, a in both)


def adr_mse(
    labels: Floats, scores: Floats, weights: Floats, temperature: float, h: Smooth = sigmoid
) -> float:
    both = zip(weights, soft_ranks(scores, temperature, h), mean_ranks(labels), strict=True)
    return sum(w / math.log2(1 + a) * (r - a) ** 2 for w, r, a in both) / len(labels)


def approx_dcg(
    labels: Floats, scores: Floats, weights: Floats, temperature: float, h: Smooth = sigmoid
) -> float:
    ranks = soft_ranks(scores, temperature, h)
    dcg = sum((2**y - 1) / math.log2(1 + r) for y, r in zip(labels, ranks, strict=True))
    return -weight_of_list(labels, weights) * dcg


def approx_ndcg(
    labels: Floats, scores: Floats, weights: Floats, temperature: float, h: Smooth = sigmoid
) -> float:
    best = sorted(labels, reverse=True)
    ideal = sum((2**y - 1) / math.log2(1 + r) for r, y in enumerate(best, start=1))
    return approx_dcg(labels, scores, weights, temperature, h) / ideal if ideal else 0.0


def approx_mrr(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    if sum(labels) == 0:
        return 0.0
    ranks = soft_ranks(scores, temperature)
    mrr = sum(y / r for y, r in zip(labels, ranks, strict=True)) / sum(labels)
    return -weight_of_list(labels, weights) * mrr


def approx_ap(
    labels: Floats, scores: Floats, weights: Floats, temperature: float, h: Smooth = sigmoid
) -> float:
    relevant = [i for i, y in enumerate(labels) if y > 0]
    if not relevant:
        return 0.0
    ranks = soft_ranks(scores, temperature, h)
    among_relevant = soft_ranks([scores[i] for i in relevant], temperature, h)
    ap = sum(r / ranks[i] for r, i in zip(among_relevant, relevant, strict=True)) / len(relevant)
    return -weight_of_list(labels, weights) * ap


def approx_hits(labels: Floats, scores: Floats, k: int, temperature: float) -> float:
    """How many relevant items have a rank up to k, softly."""
    ranks = soft_ranks(scores, temperature)
    return sum(1 / (1 + math.exp(r - k - 0.5)) for y, r in zip(labels, ranks, strict=True) if y > 0)


def approx_precision(
    labels: Floats, scores: Floats, weights: Floats, k: int, temperature: float
) -> float:
    hits = approx_hits(labels, scores, k, temperature)
    return -weight_of_list(labels, weights) * hits / k


def approx_recall(
    labels: Floats, scores: Floats, weights: Floats, k: int, temperature: float
) -> float:
    relevant = sum(y > 0 for y in labels)
    hits = approx_hits(labels, scores, k, temperature)
    return -weight_of_list(labels, weights) * hits / relevant if relevant else 0.0


def neural_sort(x: Floats) -> list[list[float]]:
    """The logarithm of the soft permutation: a row for each rank."""
    spread = [sum(abs(s - t) for t in x) for s in x]
    n = len(x)
    return [
        log_softmax([(n - 1 - 2 * r) * s - a for s, a in zip(x, spread, strict=True)])
        for r in range(n)
    ]


def neural_sort_cross_entropy(
    labels: Floats, scores: Floats, weights: Floats, temperature: float
) -> float:
    wanted = neural_sort(labels)
    found = neural_sort([s / temperature for s in scores])
    total = 0.0
    for target, row in zip(wanted, found, strict=True):
        total -= sum(math.exp(t) * p for t, p in zip(target, row, strict=True))
    return weight_of_list(labels, weights) * total / max(len(labels), 1)


def neural_sort_ndcg(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    dcg = ideal = 0.0
    best = sorted(labels, reverse=True)
    for r, row in enumerate(neural_sort([s / temperature for s in scores])):
        gain = sum(math.exp(p) * (2**y - 1) for p, y in zip(row, labels, strict=True))
        dcg += gain / math.log2(2 + r)
        ideal += (2 ** best[r] - 1) / math.log2(2 + r)
    return -weight_of_list(labels, weights) * dcg / ideal if ideal else 0.0


def gumbel(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    noise: Sequence[Floats],
    inner: Callable[[Floats, Floats, Floats], float],
    temperature: float,
) -> float:
    total = 0.0
    for sample in noise:
        noisy = [(s + g) / temperature for s, g in zip(scores, sample, strict=True)]
        total += inner(labels, noisy, weights)
    return total / len(noise)


def coupled_rank_distil(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    noise: Sequence[Floats],
    k: int | None,
    temperature: float,
) -> float:
    total = 0.0
    for sample in noise:
        noisy = [y + g for y, g in zip(labels, sample, strict=True)]
        order = sorted(range(len(labels)), key=lambda i: -noisy[i])
        x = [scores[i] / temperature for i in order]
        for r in range(len(x) if k is None else min(k, len(x))):
            total -= log_softmax(x[r:])[0]
    return weight_of_list(labels, weights) * total / len(noise)


def cross_entropy(p: float, s: float) -> float:
    return max(s, 0.0) + math.log1p(math.exp(-abs(s))) - p * s


def click_em(
    labels: Floats,
    scores: Sequence[Floats],
    weights: Floats,
    exam_weight: float,
    relevance_weight: float,
    held: Sequence[Floats] | None = None,
) -> float:
    """The posteriors are those of the scores `held`, if there are such."""
    total = 0.0
    held = scores if held is None else held
    for y, (e, r), (at_e, at_r), w in zip(labels, scores, held, weights, strict=True):
        exam, relevance = sigmoid(at_e), sigmoid(at_r)
        no_click = 1 - exam * relevance
        p = 1.0 if y >= 1 else exam * (1 - relevance) / no_click
        q = 1.0 if y >= 1 else relevance * (1 - exam) / no_click
        total += w * (exam_weight * cross_entropy(p, e) + relevance_weight * cross_entropy(q, r))
    return total / max(len(labels), 1)


def mixture_em(
    labels: Floats,
    scores: Sequence[Floats],
    weights: Floats,
    alpha: float,
    held: Sequence[Floats] | None = None,
) -> float:
    """The shares of the models are those of the scores `held`, if there are such."""

    def costs(scores: Sequence[Floats]) -> list[float]:
        return [
            sum(cross_entropy(y, s) for y, s in zip(labels, model, strict=True))
            for model in zip(*scores, strict=True)
        ]

    if sum(labels) == 0:
        return 0.0
    shares = log_softmax([-alpha * c for c in costs(scores if held is None else held)])
    loss = sum(math.exp(p) * c for p, c in zip(shares, costs(scores), strict=True))
    return weight_of_list(labels, weights) * loss
