"""Links and losses in mpmath, to any number of digits: one list, loops, as the papers write them.

A float is taken as it stands: a score of float32 is the number that it is. `Reach` are the links
as float32 has them: those that grow like an exponential are constant beyond 70.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import mpmath as mp

from tfrank_sel import links

Number = mp.mpf
Numbers = Sequence[Number]
LARGEST = 70  # the x at which a float32 exponential stops growing


class Formula(NamedTuple):
    """A link `h`, its potential `H`, and the score at which it has a value."""

    h: Callable[[Number], Number]
    potential: Callable[[Number], Number]
    inverse: Callable[[Number], Number] | None = None


def softplus(x: Number) -> Number:
    return mp.log1p(mp.exp(-abs(x))) + max(x, mp.mpf(0))


def sigmoid(x: Number) -> Number:
    return 1 / (1 + mp.exp(-x))


def entropy(x: Number) -> Number:
    return x * mp.log(x) if x else mp.mpf(0)


def log_cosh(x: Number) -> Number:
    return softplus(2 * abs(x)) - abs(x) - mp.log(2)


def log_odds(y: Number) -> Number:
    return mp.log(y) - mp.log(1 - y)


def step(x: Number) -> Number:
    return (1 + mp.sign(x)) / 2


def clipped(low: float, high: float) -> Formula:
    """The link `clip(x, low, high)`, with potential 0 at 0 if it continued to there."""

    def potential(x: Number) -> Number:
        inside = min(max(x, mp.mpf(low)), mp.mpf(high))
        return inside * inside / 2 + inside * (x - inside)

    return Formula(lambda x: min(max(x, mp.mpf(low)), mp.mpf(high)), potential, lambda y: y)


def pieces(link: links.PiecewiseLinear) -> Formula:
    parts = [(slope, clipped(a, b)) for a, b, slope in link.pieces]
    first = mp.mpf(link.knots[0])

    def h(x: Number) -> Number:
        return link.values[0] + sum(w * (f.h(x) - f.h(first)) for w, f in parts)

    def potential(x: Number) -> Number:
        area = sum(w * divergence(f, x, first) for w, f in parts)
        return link.values[0] * x + area

    return Formula(h, potential)


def stairs(steps: Sequence[tuple[float, float]]) -> Formula:
    return Formula(
        lambda x: sum(height * step(x - t) for t, height in steps),
        lambda x: sum(height * max(x - t, mp.mpf(0)) for t, height in steps),
    )


def power(n: Number) -> Formula:
    return Formula(
        lambda x: mp.sign(x) * abs(x) ** n,
        lambda x: abs(x) ** (n + 1) / (n + 1),
        lambda y: mp.sign(y) * abs(y) ** (1 / n),
    )


def laplace(x: Number) -> Number:
    return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2


def odd_expm1(x: Number) -> Number:
    return mp.sign(x) * mp.expm1(abs(x))


def odd_log1p(x: Number) -> Number:
    return mp.sign(x) * mp.log1p(abs(x))


PHI: dict[type[links.Link], Formula] = {
    links.Identity: Formula(lambda x: x, lambda x: x * x / 2, lambda y: y),
    links.Constant: Formula(lambda x: mp.mpf(1), lambda x: x),
    links.Sigmoid: Formula(sigmoid, softplus, log_odds),
    links.Laplace: Formula(
        laplace,
        lambda x: max(x, mp.mpf(0)) + mp.exp(-abs(x)) / 2,
        lambda y: mp.sign(mp.mpf(0.5) - y) * mp.log(2 * min(y, 1 - y)),
    ),
    links.Tanh: Formula(mp.tanh, log_cosh, mp.atanh),
    links.Exp: Formula(mp.exp, mp.exp, mp.log),
    links.AntiExp: Formula(lambda x: -mp.exp(-x), lambda x: mp.exp(-x), lambda y: -mp.log(-y)),
    links.Sinh: Formula(mp.sinh, mp.cosh, mp.asinh),
    links.Cosh: Formula(mp.cosh, mp.sinh),
    links.SignedExpm1: Formula(odd_expm1, lambda x: mp.expm1(abs(x)) - abs(x), odd_log1p),
    links.SignedLog1p: Formula(
        odd_log1p, lambda x: (1 + abs(x)) * mp.log1p(abs(x)) - abs(x), odd_expm1
    ),
    links.Arctan: Formula(mp.atan, lambda x: x * mp.atan(x) - mp.log1p(x * x) / 2, mp.tan),
    links.Arcsinh: Formula(mp.asinh, lambda x: x * mp.asinh(x) - mp.sqrt(1 + x * x), mp.sinh),
    links.ReLU: clipped(0.0, float("inf")),
    links.Sin: Formula(mp.sin, lambda x: -mp.cos(x), mp.asin),
    links.Arcsin: Formula(mp.asin, lambda x: x * mp.asin(x) + mp.sqrt(1 - x * x), mp.sin),
    links.Arctanh: Formula(mp.atanh, lambda x: (entropy(1 + x) + entropy(1 - x)) / 2, mp.tanh),
    links.Tan: Formula(mp.tan, lambda x: -mp.log(mp.cos(x)), mp.atan),
    links.Logit: Formula(log_odds, lambda x: entropy(x) + entropy(1 - x), sigmoid),
    links.NegLog1m: Formula(
        lambda x: -mp.log(1 - x), lambda x: entropy(1 - x) + x, lambda y: -mp.expm1(-y)
    ),
    links.Log: Formula(mp.log, lambda x: entropy(x) - x, mp.exp),
}
GROW = (links.Exp, links.AntiExp, links.Sinh, links.Cosh, links.SignedExpm1)


def phi_of(link: links.Link) -> Formula:
    """The unscaled link."""
    match link:
        case links.SmeLU():
            c, clip = mp.mpf(link.half_width), clipped(-link.half_width, link.half_width)
            return Formula(
                lambda x: (clip.h(x) + c) / (2 * c),
                lambda x: (clip.potential(x) + c * x + c * c / 2) / (2 * c),
                lambda y: c * (2 * y - 1),
            )
        case links.Huber():
            return clipped(-link.half_width, link.half_width)
        case links.PiecewiseLinear():
            return pieces(link)
        case links.Sign():
            return Formula(mp.sign, abs)
        case links.Step() | links.Staircase():
            return stairs(link.steps)
        case links.Power() | links.Monomial():
            return power(mp.mpf(link.exponent))
        case links.AbsPower():
            n, c = mp.mpf(link.exponent), mp.mpf(link.constant)
            odd = power(n + 1)
            return Formula(lambda x: abs(x) ** n + c, lambda x: odd.h(x) / (n + 1) + c * x)
    return PHI[type(link)]


def capped(formula: Formula, low: Number, high: Number) -> Formula:
    """The link of clipped scores."""

    def clip(x: Number) -> Number:
        return min(max(x, mp.mpf(low)), mp.mpf(high))

    return Formula(
        lambda x: formula.h(clip(x)),
        lambda x: formula.potential(clip(x)) + formula.h(clip(x)) * (x - clip(x)),
        formula.inverse,
    )


@functools.cache
def formula_of(link: links.Link) -> Formula:
    """A link as it is in float32."""
    match link:
        case links.Scaled():
            base, factor = formula_of(link.link), mp.mpf(link.factor)
            inverse = base.inverse and (lambda y: base.inverse(y / factor))
            return Formula(
                lambda s: factor * base.h(s), lambda s: factor * base.potential(s), inverse
            )
        case links.Capped():
            return capped(formula_of(link.link), link.lower, link.upper)
        case links.Sum():
            parts = [formula_of(x) for x in link.links]
            return Formula(
                lambda s: sum(f.h(s) for f in parts), lambda s: sum(f.potential(s) for f in parts)
            )
        case links.Inverse():
            base = formula_of(link.link)
            return Formula(
                base.inverse,
                lambda y: y * base.inverse(y) - base.potential(base.inverse(y)),
                base.h,
            )
    phi, a, b = phi_of(link), mp.mpf(link.scale), mp.mpf(link.shift)
    if isinstance(link, GROW):
        phi = capped(phi, -LARGEST, LARGEST)
    return Formula(
        lambda s: phi.h(a * (s - b)),
        lambda s: phi.potential(a * (s - b)) / a,
        phi.inverse and (lambda y: b + phi.inverse(y) / a),
    )


def divergence(f: Formula, z: Number, s: Number) -> Number:
    return f.potential(z) - f.potential(s) - (z - s) * f.h(s)


def decomposed(f: Formula, s: Numbers, z: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    """The weighted sum of the divergences of a link, and its gradient."""
    value = sum(c * divergence(f, b, a) for a, b, c in zip(s, z, w, strict=True))
    return value, [c * (f.h(b) - f.h(a)) for a, b, c in zip(s, z, w, strict=True)]


def matching(f: Formula, s: Numbers, z: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    value, gradient = decomposed(f, s, z, w)
    return value / len(s), [g / len(s) for g in gradient]


def contrastive(f: Formula, s: Numbers, z: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    """The mean over pairs of the divergence of differences."""
    value, gradient, places = mp.mpf(0), [mp.mpf(0)] * len(s), range(len(s))
    pairs = [(i, j) for i in places for j in places if i < j]
    for i, j in pairs:
        weight, a, b = w[i] * w[j] / len(pairs), s[i] - s[j], z[i] - z[j]
        value += weight * divergence(f, b, a)
        change = weight * (f.h(b) - f.h(a))
        gradient[i] += change
        gradient[j] -= change
    return value, gradient


def fenchel_young(f: Formula, y: Numbers, z: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    """The mean of `H(z) - z * y + H*(y)`, where the score of a hard target is a million."""
    total, gradient = mp.mpf(0), []
    for target, b, weight in zip(y, z, w, strict=True):
        s = min(max(f.inverse(target), mp.mpf(-(10**6))), mp.mpf(10**6))
        total += weight * (f.potential(b) - b * target + s * target - f.potential(s))
        gradient.append(weight * (f.h(b) - target) / len(y))
    return total / len(y), gradient


def composite_sigmoid(q: Formula, gamma: float, offset: float) -> Formula:
    g, c = mp.mpf(gamma), mp.mpf(offset)
    return Formula(
        lambda s: q.h(s) * sigmoid((q.potential(s) + c) / g),
        lambda s: g * softplus((q.potential(s) + c) / g),
    )


def sigmoid_cross_entropy(
    q: Formula, gamma: float, offset: float, s: Numbers, z: Numbers, w: Numbers
) -> tuple[Number, Numbers]:
    g, c, n = mp.mpf(gamma), mp.mpf(offset), len(s)
    value, gradient = mp.mpf(0), []
    for a, b, weight in zip(s, z, w, strict=True):
        at_s, at_z = (q.potential(a) + c) / g, (q.potential(b) + c) / g
        value += weight * g * (softplus(at_z) - sigmoid(at_s) * at_z) / n
        gradient.append(weight * q.h(b) * (sigmoid(at_z) - sigmoid(at_s)) / n)
    return value, gradient


def log_sum_exp(x: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    """The logarithm of a weighted sum of exponentials, and the share of each."""
    top = max(x)
    masses = [c * mp.exp(a - top) for a, c in zip(x, w, strict=True)]
    total = mp.fsum(masses)
    return top + mp.log(total), [m / total for m in masses]


def softmax(q: Formula, gamma: float, s: Numbers, z: Numbers, w: Numbers) -> tuple[Number, Numbers]:
    g = mp.mpf(gamma)
    at_s, p_s = log_sum_exp([q.potential(a) / g for a in s], w)
    at_z, p_z = log_sum_exp([q.potential(b) / g for b in z], w)
    h_s = [q.h(a) * p for a, p in zip(s, p_s, strict=True)]
    value = g * (at_z - at_s) - mp.fsum((b - a) * h for a, b, h in zip(s, z, h_s, strict=True))
    return value, [q.h(b) * p - h for b, p, h in zip(z, p_z, h_s, strict=True)]


def softmax_cross_entropy(
    q: Formula, gamma: float, s: Numbers, z: Numbers, w: Numbers
) -> tuple[Number, Numbers]:
    g, at = mp.mpf(gamma), [q.potential(b) for b in z]
    _, p_s = log_sum_exp([q.potential(a) / g for a in s], w)
    log_sum, p_z = log_sum_exp([x / g for x in at], w)
    value = g * log_sum - mp.fsum(p * x for p, x in zip(p_s, at, strict=True))
    return value, [q.h(b) * (v - u) for b, u, v in zip(z, p_s, p_z, strict=True)]
