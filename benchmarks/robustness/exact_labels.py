"""Losses of labels in mpmath, to any number of digits: one list, as their docstrings write them.

Each takes labels `y`, scores `s` and weights `w`, and returns the terms that a list adds up.
"""

import itertools
from collections.abc import Callable, Sequence

import mpmath as mp

from benchmarks.robustness.exact import log_sum_exp, softplus

Number = mp.mpf
Numbers = Sequence[Number]
Terms = Callable[[Numbers, Numbers, Numbers], Numbers]
STEP_DIGITS = 40


def softmax(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    log_sum, _ = log_sum_exp(s, [mp.mpf(1)] * len(s))
    return [c * t / sum(y) * (log_sum - a) for t, a, c in zip(y, s, w, strict=True)]


def calibrated(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    """With a virtual item of label, score and weight 1, 0, 1."""
    return softmax([*y, mp.mpf(1)], [*s, mp.mpf(0)], [*w, mp.mpf(1)])


def poly_one(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    _, p = log_sum_exp(s, [mp.mpf(1)] * len(s))
    lack = [c * t / sum(y) * (1 - x) for t, x, c in zip(y, p, w, strict=True)]
    return [*softmax(y, s, w), *lack]


def infonce(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    negatives = [a for t, a in zip(y, s, strict=True) if not t]
    positives = [(a, c) for t, a, c in zip(y, s, w, strict=True) if t]
    return [
        c * mp.log1p(mp.fsum(mp.exp(b - a) for b in negatives)) / len(positives)
        for a, c in positives
    ]


def zlpr(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    holds = mp.fsum(c * t * mp.exp(-a) for t, a, c in zip(y, s, w, strict=True))
    fails = mp.fsum(c * (1 - t) * mp.exp(a) for t, a, c in zip(y, s, w, strict=True))
    return [mp.log1p(holds), mp.log1p(fails)]


def rg_cross(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    """About the mean, as a shift of all scores changes nothing."""
    total, gain = mp.fsum(w), mp.fsum(y)
    mean = mp.fsum(c * a for a, c in zip(s, w, strict=True)) / total
    spread = mp.fsum(c * (a - mean) ** 2 for a, c in zip(s, w, strict=True)) / total / 2
    linear = [t * (mean - a) for t, a in zip(y, s, strict=True)]
    return [gain * mp.log(total), gain * spread, *linear]


def rg2(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    mean = mp.fsum(c * a for a, c in zip(s, w, strict=True)) / mp.fsum(w)
    return [*rg_cross(y, s, w), mp.fsum(y) * mean**2 / 2]


def smooth_top_k(k: int, tau: float) -> Terms:
    def terms(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
        others, t = [b for r, b in zip(y, s, strict=True) if not r], mp.mpf(tau)

        def log_symmetric(m: int) -> Number:
            sums = [mp.fsum(c) / (k * t) for c in itertools.combinations(others, m)]
            return log_sum_exp(sums, [mp.mpf(1)] * len(sums))[0]

        if len(others) < k:
            return [mp.mpf(0)]
        kth = k * t * (log_symmetric(k) - log_symmetric(k - 1))
        return [
            c * r / sum(y) * t * softplus((1 + (kth - a) / k) / t)
            for r, a, c in zip(y, s, w, strict=True)
        ]

    return terms


def pairwise_logistic(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    places = range(len(y))
    terms = [w[i] * softplus(s[j] - s[i]) for i in places for j in places if y[i] > y[j]]
    return [x / len(terms) for x in terms]


def sigmoid_cross_entropy(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    return [
        c * (t * softplus(-a) + (1 - t) * softplus(a)) / len(y)
        for t, a, c in zip(y, s, w, strict=True)
    ]


def list_mle(y: Numbers, s: Numbers, w: Numbers) -> Numbers:
    """Of sorted groups of equal labels, with their ties shared as Efron does."""
    weight = mp.fsum(c * t for t, c in zip(y, w, strict=True)) / sum(y)
    terms = []
    for label in set(y):
        group = [a for t, a in zip(y, s, strict=True) if t == label]
        behind = [a for t, a in zip(y, s, strict=True) if t < label]
        mean = mp.fsum(group) / len(group)
        for place in range(len(group)):
            left = 1 - mp.mpf(place) / len(group)
            log_sum, _ = log_sum_exp(
                group + behind, [left] * len(group) + [mp.mpf(1)] * len(behind)
            )
            terms.append(weight * (log_sum - mean))
    return terms


def with_gradient(
    terms: Terms, y: Numbers, s: Numbers, w: Numbers
) -> tuple[Number, Numbers, Number]:
    """The loss, its gradient by differences, and the largest of its terms."""
    at, step = terms(y, s, w), mp.mpf(10) ** -STEP_DIGITS
    value, gradient = mp.fsum(at), []
    for i in range(len(s)):
        moved = [a + step if i == j else a for j, a in enumerate(s)]
        gradient.append((mp.fsum(terms(y, moved, w)) - value) / step)
    return value, gradient, max(map(abs, at))
