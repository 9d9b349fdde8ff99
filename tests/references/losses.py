"""Losses of one list, as the papers write them: floats and loops, no masks."""

import math
from collections.abc import Sequence

Floats = Sequence[float]


def softmax(labels: Floats, scores: Floats, weights: Floats, temperature: float) -> float:
    if sum(labels) == 0:
        return 0.0
    partition = sum(math.exp(s / temperature) for s in scores)
    return -sum(
        w * y / sum(labels) * math.log(math.exp(s / temperature) / partition)
        for y, s, w in zip(labels, scores, weights, strict=True)
    )
