"""Links as the paper writes them: one float in, one float out."""

import math
from collections.abc import Callable, Sequence
from math import asin, asinh, atan, atanh, copysign, cos, cosh, exp, expm1, log, log1p, sin, sinh
from typing import NamedTuple

from scipy.interpolate import PchipInterpolator


class Formula(NamedTuple):
    h: Callable[[float], float]
    potential: Callable[[float], float]
    slope: Callable[[float], float]


def sign(x: float) -> float:
    return copysign(1.0, x) if x else 0.0


def step(x: float) -> float:
    return (1 + sign(x)) / 2


def entropy(x: float) -> float:
    return x * log(x) if x else 0.0


IDENTITY = Formula(lambda x: x, lambda x: x * x / 2, lambda x: 1.0)
CONSTANT = Formula(lambda x: 1.0, lambda x: x, lambda x: 0.0)
SIGMOID = Formula(
    lambda x: 1 / (1 + exp(-x)), lambda x: log(1 + exp(x)), lambda x: exp(-x) / (1 + exp(-x)) ** 2
)
LAPLACE = Formula(
    lambda x: exp(x) / 2 if x < 0 else 1 - exp(-x) / 2,
    lambda x: max(x, 0.0) + exp(-abs(x)) / 2,
    lambda x: exp(-abs(x)) / 2,
)
TANH = Formula(math.tanh, lambda x: log(cosh(x)), lambda x: 1 / cosh(x) ** 2)
EXP = Formula(exp, exp, exp)
ANTI_EXP = Formula(lambda x: -exp(-x), lambda x: exp(-x), lambda x: exp(-x))
SINH = Formula(sinh, cosh, cosh)
COSH = Formula(cosh, sinh, sinh)
RELU = Formula(lambda x: max(x, 0.0), lambda x: max(x, 0.0) ** 2 / 2, step)
STEP = Formula(step, lambda x: max(x, 0.0), lambda x: 0.0)
SIGN = Formula(sign, abs, lambda x: 0.0)
SIGNED_LOG1P = Formula(
    lambda x: sign(x) * log1p(abs(x)),
    lambda x: (1 + abs(x)) * log1p(abs(x)) - abs(x),
    lambda x: 1 / (1 + abs(x)),
)
SIGNED_EXPM1 = Formula(
    lambda x: sign(x) * expm1(abs(x)), lambda x: expm1(abs(x)) - abs(x), lambda x: exp(abs(x))
)
ARCTAN = Formula(atan, lambda x: x * atan(x) - log(1 + x * x) / 2, lambda x: 1 / (1 + x * x))
ARCSINH = Formula(
    asinh, lambda x: x * asinh(x) - math.sqrt(1 + x * x), lambda x: 1 / math.sqrt(1 + x * x)
)
SIN = Formula(sin, lambda x: -cos(x), cos)
ARCSIN = Formula(
    asin, lambda x: x * asin(x) + math.sqrt(1 - x * x), lambda x: 1 / math.sqrt(1 - x * x)
)
ARCTANH = Formula(atanh, lambda x: (entropy(1 + x) + entropy(1 - x)) / 2, lambda x: 1 / (1 - x * x))
TAN = Formula(math.tan, lambda x: -log(cos(x)), lambda x: 1 / cos(x) ** 2)
LOGIT = Formula(
    lambda x: log(x / (1 - x)), lambda x: entropy(x) + entropy(1 - x), lambda x: 1 / (x * (1 - x))
)
NEG_LOG1M = Formula(lambda x: -log(1 - x), lambda x: entropy(1 - x) + x, lambda x: 1 / (1 - x))
LOG = Formula(log, lambda x: entropy(x) - x, lambda x: 1 / x)


def power(d: float) -> Formula:
    return Formula(
        lambda x: sign(x) * abs(x) ** d,
        lambda x: abs(x) ** (d + 1) / (d + 1),
        lambda x: d * abs(x) ** (d - 1),
    )


def abs_power(d: float, c: float) -> Formula:
    return Formula(
        lambda x: abs(x) ** d + c,
        lambda x: sign(x) * abs(x) ** (d + 1) / (d + 1) + c * x,
        lambda x: d * sign(x) * abs(x) ** (d - 1),
    )


def huber(c: float) -> Formula:
    return Formula(
        lambda x: max(-c, min(x, c)),
        lambda x: x * x / 2 if abs(x) <= c else c * abs(x) - c * c / 2,
        lambda x: step(c - abs(x)),
    )


def smelu(c: float) -> Formula:
    return Formula(
        lambda x: max(0.0, min((x + c) / (2 * c), 1.0)),
        lambda x: 0.0 if x < -c else x if x > c else (x + c) ** 2 / (4 * c),
        lambda x: step(c - abs(x)) / (2 * c),
    )


def staircase(thresholds: Sequence[float], jumps: Sequence[float]) -> Formula:
    stairs = list(zip(thresholds, jumps, strict=True))
    return Formula(
        lambda x: sum(w * step(x - t) for t, w in stairs),
        lambda x: sum(w * max(x - t, 0.0) for t, w in stairs),
        lambda x: 0.0,
    )


def hinges(
    value: float, start: float, slope: float, turns: Sequence[tuple[float, float]]
) -> Formula:
    """A line through (start, value) whose slope changes by `turn` at each (knot, turn)."""
    return Formula(
        lambda x: value + slope * (x - start) + sum(w * max(x - t, 0.0) for t, w in turns),
        lambda x: (
            value * x
            + slope * (x - start) ** 2 / 2
            + sum(w * max(x - t, 0.0) ** 2 / 2 for t, w in turns)
        ),
        lambda x: slope + sum(w * step(x - t) for t, w in turns),
    )


def interpolated(knots: Sequence[float], values: Sequence[float]) -> Formula:
    spline, (low, high) = PchipInterpolator(knots, values), (knots[0], knots[-1])
    potential, slope = spline.antiderivative(), spline.derivative()

    def clip(x: float) -> float:
        return max(low, min(x, high))

    return Formula(
        lambda x: float(spline(clip(x))),
        lambda x: (
            values[0] * low + float(potential(clip(x))) + float(spline(clip(x))) * (x - clip(x))
        ),
        lambda x: float(slope(x)) * (step(x - low) - step(x - high)),
    )


def scaled(formula: Formula, scale: float, shift: float, factor: float = 1.0) -> Formula:
    """h(s) = factor * phi(scale * (s - shift)), with the potential and slope that follow."""
    return Formula(
        lambda s: factor * formula.h(scale * (s - shift)),
        lambda s: factor / scale * formula.potential(scale * (s - shift)),
        lambda s: factor * scale * formula.slope(scale * (s - shift)),
    )


def capped(formula: Formula, low: float, high: float) -> Formula:
    def clip(s: float) -> float:
        return max(low, min(s, high))

    return Formula(
        lambda s: formula.h(clip(s)),
        lambda s: formula.potential(clip(s)) + formula.h(clip(s)) * (s - clip(s)),
        lambda s: formula.slope(s) if low < s < high else 0.0,
    )


def added(*formulas: Formula) -> Formula:
    return Formula(
        lambda s: sum(f.h(s) for f in formulas),
        lambda s: sum(f.potential(s) for f in formulas),
        lambda s: sum(f.slope(s) for f in formulas),
    )


def composite_sigmoid(scaling: Formula, gamma: float, offset: float = 0.0) -> Formula:
    """h = q * p, p = sigmoid(Q / gamma), with the slope of equation B.1."""

    def p(s: float) -> float:
        return 1 / (1 + exp(-(scaling.potential(s) + offset) / gamma))

    return Formula(
        lambda s: scaling.h(s) * p(s),
        lambda s: gamma * log(1 + exp((scaling.potential(s) + offset) / gamma)),
        lambda s: p(s) * (scaling.slope(s) + (1 - p(s)) * scaling.h(s) ** 2 / gamma),
    )


def divergence(formula: Formula, z: float, s: float) -> float:
    return formula.potential(z) - formula.potential(s) - (z - s) * formula.h(s)
