"""Links as the paper writes them: one float in, one float out."""

import math
from collections.abc import Callable
from typing import NamedTuple


class Formula(NamedTuple):
    h: Callable[[float], float]
    potential: Callable[[float], float]
    slope: Callable[[float], float]


IDENTITY = Formula(lambda x: x, lambda x: x * x / 2, lambda x: 1.0)
SIGMOID = Formula(
    lambda x: 1 / (1 + math.exp(-x)),
    lambda x: math.log(1 + math.exp(x)),
    lambda x: math.exp(-x) / (1 + math.exp(-x)) ** 2,
)
EXP = Formula(math.exp, math.exp, math.exp)
SINH = Formula(math.sinh, math.cosh, math.cosh)


def scaled(formula: Formula, scale: float, shift: float, factor: float = 1.0) -> Formula:
    """h(s) = factor * phi(scale * (s - shift)), with the potential and slope that follow."""
    return Formula(
        lambda s: factor * formula.h(scale * (s - shift)),
        lambda s: factor / scale * formula.potential(scale * (s - shift)),
        lambda s: factor * scale * formula.slope(scale * (s - shift)),
    )


def divergence(formula: Formula, z: float, s: float) -> float:
    return formula.potential(z) - formula.potential(s) - (z - s) * formula.h(s)
