"""RG losses and the logit norm of one list, as the paper writes them: floats and loops."""

import math
from collections.abc import Callable, Sequence

Floats = Sequence[float]


def moments(scores: Floats, weights: Floats) -> tuple[float, float, float]:
    total = sum(weights)
    mean = sum(v * o for o, v in zip(scores, weights, strict=True)) / total
    square = sum(v * o * o for o, v in zip(scores, weights, strict=True)) / total
    return total, mean, square


def rg(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    kappa: float,
    alpha: float = 0.0,
    target: float = 1.0,
    gain: Callable[[float], float] = float,
) -> float:
    """kappa is 0 for RG^2 and 1 for RG^x; weights are the base weights."""
    total, mean, square = moments(scores, weights)
    expansion = math.log(total) + mean + (square - kappa * mean * mean) / 2
    loss = 0.0
    for y, o in zip(labels, scores, strict=True):
        g = gain(y)
        loss += g * (expansion - o)
        if g > 0:
            loss += alpha / 2 * (o - target) ** 2
    return loss


def softmax(labels: Floats, scores: Floats, weights: Floats) -> float:
    """What the RG losses expand."""
    partition = math.log(sum(v * math.exp(o) for o, v in zip(scores, weights, strict=True)))
    return sum(g * (partition - o) for g, o in zip(labels, scores, strict=True))


def logit_norm(labels: Floats, scores: Floats, weights: Floats, centered: bool) -> float:
    _, mean, square = moments(scores, weights)
    return math.sqrt(max(square - mean * mean if centered else square, 0.0))
