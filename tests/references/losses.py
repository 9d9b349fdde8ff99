"""Losses of one list, as the papers write them: floats and loops, no masks."""

import math
from collections.abc import Sequence

from tests.references import links

Floats = Sequence[float]


def matching(labels: Floats, scores: Floats, weights: Floats, link: links.Formula) -> float:
    areas = [
        w * links.divergence(link, z, s) for s, z, w in zip(labels, scores, weights, strict=True)
    ]
    return sum(areas) / len(areas)


def selective_softmax(
    labels: Floats, scores: Floats, weights: Floats, scaling: links.Formula, gamma: float
) -> float:
    """Equation 29: H(z) - H(s) - <z - s, h(s)>; weights multiply exp(Q / gamma)."""

    def masses(s: Floats) -> list[float]:
        return [w * math.exp(scaling.potential(x) / gamma) for x, w in zip(s, weights, strict=True)]

    at_s, at_z = masses(labels), masses(scores)
    loss = gamma * math.log(sum(at_z)) - gamma * math.log(sum(at_s))
    for s, z, mass in zip(labels, scores, at_s, strict=True):
        loss -= (z - s) * scaling.h(s) * mass / sum(at_s)
    return loss


def softmax(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    if sum(labels) == 0:
        return 0.0
    partition = sum(math.exp(s / temperature) for s in scores)
    return -sum(
        w * y / sum(labels) * math.log(math.exp(s / temperature) / partition)
        for y, s, w in zip(labels, scores, weights, strict=True)
    )
