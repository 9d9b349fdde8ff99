"""Pairwise and pointwise losses of one list, as the papers write them: floats and loops."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.references.losses import softmax
from tests.references.metrics import ranked

Floats = Sequence[float]
Surrogate = Callable[[float, float], float]  # of the differences of scores and of labels
Weights = Callable[[Floats, list[int], int, int], float]  # of labels, ranks, both items


def logistic(x: float, y: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(0.0, -x)


def hinge(x: float, y: float) -> float:
    return max(0.0, 1.0 - x)


def soft_zero_one(x: float, y: float) -> float:
    return 0.5 - 0.5 * math.tanh(0.5 * x)


def squared(x: float, y: float) -> float:
    return (x - y) ** 2


def quantile(tau: float, power: int) -> Surrogate:
    return lambda x, y: (tau if x < y else 1 - tau) * abs(x - y) ** power


def ranks(scores: Floats) -> list[int]:
    order = ranked(scores)
    return [order.index(i) + 1 for i in range(len(scores))]


def pairwise(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    surrogate: Surrogate,
    ordered: bool = True,
    weigh: Weights | None = None,
    temperature: float = 1.0,
    is_sum: bool = False,
    held: Floats | None = None,
) -> float:
    """Ranks are those of the scores `held`, if there are such."""
    total, count, r = 0.0, 0, ranks(scores if held is None else held)
    for i, y in enumerate(labels):
        for j, other in enumerate(labels):
            if y > other if ordered else i != j:
                factor = weigh(labels, r, i, j) if weigh else 1.0
                loss = surrogate((scores[i] - scores[j]) / temperature, y - other)
                total += weights[i] * factor * loss
                count += 1
    return total / (1 if is_sum else max(count, 1))


def yeti(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    noise: Sequence[Floats],
    gumbel_temperature: float,
    **arguments: Any,
) -> float:
    total = 0.0
    for sample in noise:
        noisy = [(s + g) / gumbel_temperature for s, g in zip(scores, sample, strict=True)]
        total += pairwise(labels, noisy, weights, is_sum=True, **arguments)
    return total / len(noise)


def label_difference(labels: Floats, r: list[int], i: int, j: int) -> float:
    return abs(labels[i] - labels[j])


def inverse(rank: float) -> float:
    return 1 / rank


def log2_inverse(rank: float) -> float:
    return 1 / math.log2(1 + rank)


def linear(y: float) -> float:
    return y


def exponential(y: float) -> float:
    return 2**y - 1


def gain_difference(
    pair: Callable[[int, int], float],
    gain: Callable[[float], float],
    discount: Callable[[float], float],
    normalized: bool,
    k: int | None,
) -> Weights:
    """The difference of the gains of a pair, by a function of its ranks."""

    def weigh(labels: Floats, r: list[int], i: int, j: int) -> float:
        ideal = 1.0
        if normalized:
            best = sorted(map(gain, labels), reverse=True)[:k]
            ideal = sum(g * discount(rank) for rank, g in enumerate(best, start=1))
        return abs(gain(labels[i]) - gain(labels[j])) / ideal * pair(r[i], r[j]) if ideal else 0.0

    return weigh


def swap(
    gain: Callable[[float], float],
    discount: Callable[[float], float],
    normalized: bool,
    smooth_fraction: float = 0.0,
    k: int | None = None,
) -> Weights:
    def pair(a: int, b: int) -> float:
        top = k or math.inf
        if min(a, b) > top:
            return 0.0
        old = abs((discount(a) if a <= top else 0.0) - (discount(b) if b <= top else 0.0))
        new = discount(abs(a - b)) - discount(abs(a - b) + 1)
        return smooth_fraction * old + (1 - smooth_fraction) * new

    return gain_difference(pair, gain, discount, normalized, k)


def item_weights(
    labels: Floats,
    scores: Floats,
    gain: Callable[[float], float],
    discount: Callable[[float], float],
    normalized: bool,
    k: int | None = None,
) -> list[float]:
    """The gain of each item at its rank."""
    best = sorted(map(gain, labels), reverse=True)[:k]
    ideal = sum(g * discount(rank) for rank, g in enumerate(best, start=1)) if normalized else 1.0
    return [
        gain(y) * discount(r) / ideal if ideal else 0.0
        for y, r in zip(labels, ranks(scores), strict=True)
    ]


def lambda_softmax(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    temperature: float,
    normalized: bool,
    **weight: Any,
) -> float:
    gains = item_weights(labels, scores, normalized=normalized, **weight)
    return softmax(gains, scores, weights, temperature)


def lambda_loss(
    k: int | None = None,
    normalized: bool = True,
    neighbours_alone: bool = False,
    gain: Callable[[float], float] = exponential,
    discount: Callable[[float], float] = log2_inverse,
) -> Weights:
    def pair(a: int, b: int) -> float:
        if neighbours_alone and abs(a - b) != 1:
            return 0.0
        step = discount(abs(a - b)) - discount(abs(a - b) + 1)
        return step / (1 - discount(max(a, b))) if max(a, b) > (k or math.inf) else step

    return gain_difference(pair, gain, discount, normalized, k)


def precision(k: int) -> Weights:
    def weigh(labels: Floats, r: list[int], i: int, j: int) -> float:
        relevant = (labels[i] >= 1) != (labels[j] >= 1)
        return float(relevant and (r[i] <= k) != (r[j] <= k))

    return weigh


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def cross_entropy(target: float, s: float) -> float:
    return target * softplus(-s) + (1 - target) * softplus(s)


def mean(values: Sequence[float], weights: Floats, is_sum: bool) -> float:
    total = sum(w * v for w, v in zip(weights, values, strict=True))
    return total if is_sum else total / len(values)


def sigmoid_cross_entropy(
    labels: Floats, scores: Floats, weights: Floats, is_sum: bool = False
) -> float:
    return mean([cross_entropy(y, s) for y, s in zip(labels, scores, strict=True)], weights, is_sum)


def rcr(labels: Floats, scores: Floats, weights: Floats, alpha: float) -> float:
    if len(labels) == 0:
        return 0.0
    point = sigmoid_cross_entropy(labels, scores, weights)
    p = [1.0 / (1.0 + math.exp(-s)) for s in scores]
    logs = [math.log(x / sum(p)) for x in p]
    total = sum(labels) or 1.0
    listwise = -sum(w * y / total * x for w, y, x in zip(weights, labels, logs, strict=True))
    return (1.0 - alpha) * point + alpha * listwise


def jrc(labels: Floats, scores: Sequence[Floats], weights: Floats, alpha: float) -> float:
    def of_list(i: int, c: int) -> float:
        return math.log(math.exp(scores[i][c]) / sum(math.exp(row[c]) for row in scores))

    terms = []
    for i, (y, (no, yes)) in enumerate(zip(labels, scores, strict=True)):
        ranked = -y * of_list(i, 1) - (1.0 - y) * of_list(i, 0)
        terms.append(alpha * cross_entropy(y, yes - no) + (1.0 - alpha) * ranked)
    return mean(terms, weights, False) if terms else 0.0


def mean_squared(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    is_sum: bool = False,
    lower: float = -math.inf,
    upper: float = math.inf,
) -> float:
    clipped = [min(max(y, lower), upper) for y in labels]
    return mean([(y - s) ** 2 for y, s in zip(clipped, scores, strict=True)], weights, is_sum)


def ordinal(
    labels: Floats,
    scores: Sequence[Floats],
    weights: Floats,
    use_fraction_label: bool = False,
    is_sum: bool = False,
) -> float:
    def item(y: float, row: Floats) -> float:
        total = 0.0
        for k, s in enumerate(row, start=1):
            fraction = y - k + 1 if use_fraction_label and 0 < y - k + 1 < 1 else 0.0
            total += cross_entropy(1.0 if y >= k else fraction, s)
        return total

    return mean([item(y, row) for y, row in zip(labels, scores, strict=True)], weights, is_sum)


def multi_class(
    labels: Floats,
    scores: Sequence[Floats],
    weights: Floats,
    label_smoothing: float = 0.0,
    is_sum: bool = False,
) -> float:
    def item(y: float, row: Floats) -> float:
        top = max(row)
        log_sum = top + math.log(sum(math.exp(s - top) for s in row))
        smooth = sum(log_sum - s for s in row) / len(row)
        own = log_sum - row[int(y)] if y < len(row) else 0.0
        return (1 - label_smoothing) * own + label_smoothing * smooth

    return mean([item(y, row) for y, row in zip(labels, scores, strict=True)], weights, is_sum)
