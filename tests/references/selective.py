"""Selective matching losses of one list, as the paper writes them: floats and loops, no masks."""

import itertools
import math
from collections.abc import Sequence

from tests.references import links

Floats = Sequence[float]


def decomposed(labels: Floats, scores: Floats, weights: Floats, link: links.Formula) -> float:
    """Equation 28: the scalar losses of all items, added up."""
    return sum(
        w * links.divergence(link, z, s) for s, z, w in zip(labels, scores, weights, strict=True)
    )


def matching(labels: Floats, scores: Floats, weights: Floats, link: links.Formula) -> float:
    return decomposed(labels, scores, weights, link) / len(labels)


def contrastive(labels: Floats, scores: Floats, weights: Floats, link: links.Formula) -> float:
    pairs = list(itertools.combinations(zip(labels, scores, weights, strict=True), 2))
    areas = [v * w * links.divergence(link, z - y, s - t) for (s, z, v), (t, y, w) in pairs]
    return sum(areas) / len(pairs) if pairs else 0.0


def fenchel_young_of_sinh(labels: Floats, scores: Floats, weights: Floats, scale: float) -> float:
    """(Phi(x) - y * x + Phi*(y)) / scale for the link sinh(x), x = scale * z."""
    total = 0.0
    for y, z, w in zip(labels, scores, weights, strict=True):
        conjugate = y * math.asinh(y) - math.sqrt(1 + y * y)
        total += w * (math.cosh(scale * z) - y * scale * z + conjugate) / scale
    return total / len(labels)


def selective_sigmoid(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    scaling: links.Formula,
    gamma: float,
    offset: float,
) -> float:
    """Equation 24: the scalar loss of the composite link."""
    link = links.composite_sigmoid(scaling, gamma, offset)
    return matching(labels, scores, weights, link)


def selective_softmax(
    labels: Floats, scores: Floats, weights: Floats, scaling: links.Formula, gamma: float
) -> float:
    """Equation 29: H(z) - H(s) - <z - s, h(s)>; weights multiply exp(Q / gamma)."""
    at_s, at_z = masses(labels, weights, scaling, gamma), masses(scores, weights, scaling, gamma)
    loss = gamma * math.log(sum(at_z)) - gamma * math.log(sum(at_s))
    for s, z, mass in zip(labels, scores, at_s, strict=True):
        loss -= (z - s) * scaling.h(s) * mass / sum(at_s)
    return loss


def softmax_cross_entropy(
    labels: Floats, scores: Floats, weights: Floats, scaling: links.Formula, gamma: float
) -> float:
    """Equation E.5; weights multiply exp(Q / gamma)."""
    at_s = masses(labels, weights, scaling, gamma)
    loss = gamma * math.log(sum(masses(scores, weights, scaling, gamma)))
    return loss - sum(
        mass / sum(at_s) * scaling.potential(z) for z, mass in zip(scores, at_s, strict=True)
    )


def sigmoid_cross_entropy(
    labels: Floats,
    scores: Floats,
    weights: Floats,
    scaling: links.Formula,
    gamma: float,
    offset: float,
) -> float:
    """Equation E.3, with the regulariser gamma."""
    total = 0.0
    for s, z, w in zip(labels, scores, weights, strict=True):
        p = 1 / (1 + math.exp(-(scaling.potential(s) + offset) / gamma))
        q_z = scaling.potential(z) + offset
        total += w * (gamma * math.log(1 + math.exp(q_z / gamma)) - p * q_z)
    return total / len(labels)


def masses(s: Floats, weights: Floats, scaling: links.Formula, gamma: float) -> list[float]:
    return [w * math.exp(scaling.potential(x) / gamma) for x, w in zip(s, weights, strict=True)]
