"""Convexity of composite losses: the conditions, and the critical values of parameters.

The loss of a composite Softmax is convex if and only if its scaling `q` increases: where all scores
of a list are equal to `z`, its potential is `Q(z)` plus a constant. The loss of a composite Sigmoid
is convex if and only if, at every score,

    q' + (1 - p) * q**2 / gamma >= 0, p = sigmoid(Q / gamma)

An increasing `q` always fulfils this condition; other functions may fulfil it.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import check_object
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Link
from tfrank_sel.links.combinators import Capped
from tfrank_sel.links.elementary import AbsPower

TOLERANCE = 1e-9  # for a margin relative to the terms of the condition


def is_increasing(link: Link) -> bool:
    """Whether a link increases on its whole domain, so that its potential is convex."""
    return link.rises_from == -math.inf


def sigmoid_margin(scaling: Link, gamma: float, offset: float = 0.0) -> float:
    """Computes the minimum margin of the convexity condition of a composite Sigmoid.

    Args:
        scaling: The function `q`.
        gamma: Temperature of the sigmoid; positive.
        offset: Constant of the potential `Q`.

    Returns:
        The minimum over all scores of `(q' + c) / (abs(q') + c)`, `c = (1 - p) * q**2 / gamma`:
        the loss is convex where it is at least 0.

    Example:
        >>> round(links.sigmoid_margin(links.Cosh(), gamma=1.0), 4)
        0.1715
        >>> round(links.sigmoid_margin(links.Cosh(), gamma=2.0), 4)
        -0.2402

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation G.2.
    """
    check_object("scaling", scaling, Link)
    if is_increasing(scaling):
        return 1.0

    def margin(t: NDArray[np.float64]) -> NDArray[np.float64]:
        with xp.init_scope():
            s = xp.constant(scaling.rises_from - t)
            q, slope = np.asarray(scaling(s)), np.asarray(scaling.slope(s))
            odds = (np.asarray(scaling.potential(s)) + offset) / gamma
        with np.errstate(over="ignore", invalid="ignore"):
            lift = q * q / (1.0 + np.exp(odds)) / gamma
            return np.where(np.isinf(lift), 1.0, (slope + lift) / (np.abs(slope) + lift))

    # The margin is NaN if the slope at 0 is infinite.
    if np.isnan(margin(np.zeros(1))):
        return -1.0
    t = np.logspace(-8.0, 4.0, 4801)
    for _ in range(4):  # each grid covers the neighbourhood of the previous minimum
        values = margin(t)
        best = int(np.nanargmin(values))
        t = np.linspace(t[max(best - 1, 0)], t[min(best + 1, len(t) - 1)], 201)
    return float(np.nanmin(values))


def critical_gamma(scaling: Link, offset: float = 0.0) -> float:
    """Computes the largest `gamma` for which a composite Sigmoid is convex.

    Args:
        scaling: The function `q`.
        offset: Constant of the potential `Q`.

    Returns:
        The largest `gamma`; infinity if `q` increases, 0 if there is no such `gamma`.

    Example:
        >>> round(links.critical_gamma(links.Cosh()), 6)
        1.325281
    """
    return _last_true(lambda gamma: sigmoid_margin(scaling, gamma, offset) >= -TOLERANCE)


def critical_constant(exponent: float, gamma: float) -> float:
    """Computes the smallest `constant` of `AbsPower` for a convex composite Sigmoid.

    Args:
        exponent: The exponent of `AbsPower`.
        gamma: Temperature of the sigmoid; positive.

    Returns:
        The smallest constant; infinity for an exponent below 1, whose slope at 0 is infinite.

    Example:
        >>> round(links.critical_constant(exponent=2.0, gamma=0.5), 3)
        0.634
    """

    def fails(constant: float) -> bool:
        return sigmoid_margin(AbsPower(exponent=exponent, constant=constant), gamma) < -TOLERANCE

    return _last_true(fails)


def check_increasing(name: str, link: Link, allow_nonconvex: bool, condition: str) -> None:
    """Raises a ValueError with the condition, unless `link` increases or need not."""
    if not is_increasing(link) and not allow_nonconvex:
        raise refusal(
            f"`{name}` must be increasing: {condition}",
            f"{name}={link}. The nearest valid choice is {Capped(link, lower=link.rises_from)}; "
            "`allow_nonconvex=True` allows it",
        )


def check_sigmoid(scaling: Link, gamma: float, offset: float, allow_nonconvex: bool) -> None:
    """Raises a ValueError with the condition, unless the loss is convex or need not be."""
    if allow_nonconvex or sigmoid_margin(scaling, gamma, offset) >= -TOLERANCE:
        return
    choices = [f"scaling={Capped(scaling, lower=scaling.rises_from)}"]
    largest = critical_gamma(scaling, offset)
    if largest > 0.0:
        choices.insert(0, f"gamma={math.floor(largest * 1e6) / 1e6}")
    if isinstance(scaling, AbsPower) and offset == 0.0 and scaling.exponent >= 1.0:
        least = critical_constant(scaling.exponent, gamma)
        choices.insert(0, f"constant={math.ceil(least * 1e6) / 1e6}")
    raise refusal(
        "`scaling` must fulfil q' + (1 - p) * q**2 / gamma >= 0 at every score, for the loss of a "
        "composite Sigmoid to be convex",
        f"scaling={scaling}, gamma={gamma}, offset={offset}. The nearest valid choices are "
        f"{' or '.join(choices)}; `allow_nonconvex=True` allows it",
    )


def _last_true(holds: Callable[[float], bool]) -> float:
    """Bisects for the positive number up to which `holds` is True, between 1e-4 and 1e6."""
    low, high = math.log(1e-4), math.log(1e6)
    if not holds(math.exp(low)):
        return 0.0
    if holds(math.exp(high)):
        return math.inf
    # Forty halvings give ten digits.
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(math.exp(middle)) else (low, middle)
    return math.exp(low)
