"""Adversarial lists for the accuracy of losses: links, and scores by regime."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel import links

Array = Any
Scores = tuple[Array, Array]
Regime = Callable[[np.random.Generator, links.Link, int], Scores]

ON_THE_LINE: tuple[links.Link, ...] = (
    links.Identity(),
    links.Identity(scale=2.0, shift=-1.0),
    links.Constant(),
    links.Sigmoid(),
    links.Laplace(),
    links.Tanh(scale=0.5, shift=1.0),
    links.Exp(),
    links.Exp(scale=0.5),
    links.AntiExp(scale=0.5),
    links.Sinh(),
    links.Sinh(scale=0.5, shift=1.0),
    links.SignedExpm1(scale=0.5),
    links.SignedLog1p(),
    links.Arctan(scale=2.0),
    links.Arcsinh(scale=4.0),
    links.Power(exponent=3.0),
    links.Power(exponent=0.5),
    links.SmeLU(half_width=1.5),
    links.Huber(half_width=1.25),
    links.ReLU(shift=-0.5),
    links.Step(),
    links.Sign(shift=1.0),
    links.Staircase(thresholds=[-2.0, 0.5], jumps=[1.0, 3.0]),
    links.PiecewiseLinear(knots=[-1.0, 1.0, 2.0], values=[0.0, 1.0, 1.0], slope_below=2.0),
    links.Scaled(links.Sinh(scale=0.5), 0.5),
    links.Capped(links.Exp(), -20.0, 2.0),
    links.Sum([links.Sinh(scale=0.5), links.Tanh()]),
)
BOUNDED: tuple[links.Link, ...] = (
    links.Sin(),
    links.Arcsin(),
    links.Arctanh(),
    links.Tan(),
    links.Logit(),
    links.NegLog1m(),
    links.Log(),
    links.Monomial(exponent=2.5),
    links.Inverse(links.Sigmoid(scale=2.0)),
    links.Capped(links.Logit(), 0.125, 0.875),
)


def normal(rng: np.random.Generator, n: int, scale: float = 1.0) -> Array:
    return rng.normal(size=n) * scale


def around(spread: float, error: float) -> Regime:
    """Scores of one spread, errors of another."""

    def regime(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
        s = normal(rng, n, spread)
        s = np.round(s) if rng.random() < 0.3 else s
        return s, s + normal(rng, n, error)

    return regime


def uniform(limit: float, error: float | None) -> Regime:
    """Scores within a limit, and predictions there or near."""

    def regime(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
        s = rng.uniform(-limit, limit, n)
        return s, rng.uniform(-limit, limit, n) if error is None else s + normal(rng, n, error)

    return regime


def last_digit(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    s = np.float32(normal(rng, n, 10.0 ** rng.uniform(-3.0, 3.0)))
    return s, np.nextafter(s, np.float32(math.inf) * rng.choice([-1.0, 1.0], n).astype(np.float32))


def crowded(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """Nearly the same scores at a height, most of which move together."""
    height = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-1.0, 4.0)
    spread = 10.0 ** rng.uniform(-7.0, -1.0) * abs(height)
    move = rng.choice([0.0, 1.0, -2.0]) * 10.0 ** rng.uniform(-4.0, 0.0) * abs(height)
    s = height + normal(rng, n, spread)
    return s, s + move + normal(rng, n, spread * 10.0 ** rng.uniform(-3.0, 0.0))


def shifted(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """All move by the same amount, exactly."""
    s = rng.integers(-20, 60, n).astype(float)
    return s, s + rng.choice([-64.0, -1.0, 0.5, 10.0, 1024.0])


def ties(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    s = rng.choice([-2.0, 0.0, 3.0, 8.0], n)
    z = np.where(rng.random(n) < 0.5, s, rng.choice([-2.0, 0.0, 3.0, 8.0], n))
    return s, z


def one_moves(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    s = normal(rng, n, rng.choice([1.0, 4.0, 30.0]))
    z, k = s.copy(), rng.integers(n)
    z[k] += rng.normal() * 10.0 ** rng.uniform(-5.0, 1.5)
    return s, z


def no_probability(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """An item of vanished probability rises to about the top."""
    top = rng.uniform(3.0, 20.0) * rng.choice([-1.0, 1.0])
    s = np.where(np.arange(n) == 0, top, normal(rng, n))
    z = s.copy()
    z[1] = top * (1.0 + rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-6.0, -0.5))
    return s, z


def loses_probability(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    s, z = no_probability(rng, link, n)
    return z, s


def across(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """Scores and predictions on both sides of the mirror, or of 0."""
    mirror, s = link.mirror or 0.0, normal(rng, n, 10.0 ** rng.uniform(-2.0, 2.0))
    signs = rng.choice([-1.0, 1.0], n)
    s = np.where(rng.random(n) < 0.5, s[0], s) * signs
    z = s * rng.choice([-1.0, 1.0], n) * (1.0 + normal(rng, n, 10.0 ** rng.uniform(-6.0, -1.0)))
    return mirror + s, mirror + z


def kinks(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    where = np.array(link.kinks or (link.origin,))
    offsets = np.array([0.0, 0.0, 1e-7, -1e-7, 1e-3, -1e-3, 0.5, -0.5])
    s, z = (rng.choice(where, n) + rng.choice(offsets, n) for _ in range(2))
    return s, z


def tiny(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    s, z = (rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-44.0, -3.0, n) for _ in range(2))
    return s, np.where(rng.random(n) < 0.5, s, z)


def caps(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """About the scores at which an exponential stops growing."""
    cap = 70.0 / getattr(link, "scale", 1.0)
    s = rng.choice([-1.0, 1.0, 1.0], n) * cap * rng.choice([0.3, 0.99, 1.0, 1.01, 3.0], n)
    return s, s + normal(rng, n, rng.choice([1e-3, 1.0, 20.0]))


def inside(rng: np.random.Generator, link: links.Link, n: int) -> Scores:
    """Scores of a bounded link: anywhere, near its ends, near each other."""
    low, high = link.domain
    low, high = max(low, -50.0), min(high, 50.0)
    middle, half = (low + high) / 2.0, (high - low) / 2.0

    def draw() -> Array:
        share = 1.0 - 10.0 ** rng.uniform(-6.0, 0.0, n)
        return middle + half * rng.choice([-1.0, 1.0], n) * share

    s = draw()
    step = 10.0 ** rng.uniform(-7.0, -1.0) * normal(rng, n)
    z = s + step * np.minimum(s - low, high - s)
    return s, np.where(rng.random(n) < 0.3, draw(), z)


REGIMES: dict[str, Regime] = {
    "errors of 0.1": around(1.0, 0.1),
    "errors of 1e-3": around(3.0, 1e-3),
    "errors of 1e-5": around(1.0, 1e-5),
    "errors of 1": around(3.0, 1.0),
    "errors of 3": around(6.0, 3.0),
    "errors of 10": around(10.0, 10.0),
    "last digit": last_digit,
    "within 80": uniform(80.0, None),
    "within 80, near": uniform(80.0, 1e-3),
    "within 1e4": uniform(1e4, None),
    "within 1e4, near": uniform(1e4, 1e-2),
    "crowded": crowded,
    "shifted": shifted,
    "ties": ties,
    "one moves": one_moves,
    "p(s) vanishes": no_probability,
    "p(z) vanishes": loses_probability,
    "across the mirror": across,
    "kinks": kinks,
    "tiny scores": tiny,
    "caps": caps,
}
BOUNDED_REGIMES: dict[str, Regime] = {"inside": inside}
LONG_REGIMES = {name: REGIMES[name] for name in ("errors of 1", "crowded", "one moves")}
LONG = (links.Identity(), links.Sigmoid(), links.Exp(scale=0.5), links.Sinh())


@dataclasses.dataclass(frozen=True)
class Lists:
    """Lists of one size, of float32 numbers.

    Args:
        regimes: What each is made of.
        s: Observed scores, or targets; NaN is padding.
        z: Predicted scores.
        w: Weights of the items.
    """

    regimes: list[str]
    s: Array
    z: Array
    w: Array


def weights(rng: np.random.Generator, n: int) -> Array:
    return [np.ones(n), np.ones(n), rng.uniform(0.5, 2.0, n), 10.0 ** rng.uniform(-12.0, 12.0, n)][
        rng.integers(4)
    ]


def lists(
    rng: np.random.Generator,
    link: links.Link,
    regimes: dict[str, Regime],
    count: int,
    size: int,
    targets: bool,
) -> Lists:
    """Makes `count` lists of each regime."""
    names = [name for name in regimes for _ in range(count)]
    rows = [(*regimes[name](rng, link, size), weights(rng, size)) for name in names]
    numbers = np.array(rows).astype(np.float32)
    # subnormal numbers are 0 under XLA
    numbers[np.abs(numbers) < np.finfo(np.float32).tiny] = 0.0
    s, z, w = numbers.transpose(1, 0, 2)
    if targets:
        s = link(tf.constant(s)).numpy()
    return Lists(names, s, z, w)
