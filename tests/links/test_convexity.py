"""The conditions under which composite losses are convex, and their exact critical values."""

import math

import numpy as np
import pytest

from tfrank_sel import links


@pytest.mark.long
def test_cosh_is_valid_up_to_its_critical_gamma_wherever_it_is_moved() -> None:
    assert links.critical_gamma(links.Cosh()) == pytest.approx(1.3252813, abs=1e-7)
    # q = scale * cosh(x), Q = sinh(x): the scale drops out of the condition
    moved = links.Scaled(links.Cosh(scale=0.431, shift=1.7), 0.431)
    assert links.critical_gamma(moved) == pytest.approx(1.3252813, abs=1e-7)
    links.CompositeSigmoid(links.Cosh(), 1.3252)
    with pytest.raises(ValueError, match=r"q' \+ \(1 - p\).*choices are gamma=1.325281 or"):
        links.CompositeSigmoid(links.Cosh(), 1.3253)


@pytest.mark.long
@pytest.mark.parametrize(
    ("exponent", "gamma", "constant"),
    [
        (1.0, 1.0, math.sqrt(2.0)),
        (2.0, 0.5, 0.634),
        (3.0, 2.0, 1.876),
    ],
)
def test_powers_are_valid_from_their_critical_constant(
    exponent: float, gamma: float, constant: float
) -> None:
    critical = links.critical_constant(exponent, gamma)
    assert critical == pytest.approx(constant, abs=6e-4)
    links.CompositeSigmoid(links.AbsPower(exponent=exponent, constant=critical + 1e-6), gamma)
    with pytest.raises(ValueError, match="nearest valid choices are constant="):
        links.CompositeSigmoid(links.AbsPower(exponent=exponent, constant=critical - 1e-3), gamma)


def test_a_power_without_a_constant_or_below_1_is_never_valid() -> None:
    assert links.critical_constant(0.5, 1.0) == math.inf
    assert links.critical_gamma(links.AbsPower(exponent=2.0)) == 0.0
    with pytest.raises(ValueError, match="choices are scaling=Capped"):
        links.CompositeSigmoid(links.AbsPower(exponent=0.5, constant=9.0))


def test_what_the_error_suggests_is_valid() -> None:
    restricted = links.Capped(links.Cosh(shift=2.0), lower=2.0)
    links.CompositeSoftmax(restricted, 3.0)
    links.CompositeSigmoid(restricted, 3.0)
    with pytest.raises(ValueError, match=r"lower=2.0, upper=inf\)"):
        links.CompositeSoftmax(links.Cosh(shift=2.0))


def test_an_increasing_scaling_is_always_valid() -> None:
    assert links.critical_gamma(links.Exp()) == math.inf
    assert links.sigmoid_margin(links.Exp(), 1e3) == 1.0


@pytest.mark.sample(4)
@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.32, 2.0])
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_the_margin_tells_whether_the_link_rises(gamma: float, offset: float) -> None:
    link = links.CompositeSigmoid(links.Cosh(), gamma, offset, allow_nonconvex=True)
    slopes = link.slope(np.linspace(-8.0, 4.0, 4001))
    rises = bool(np.all(slopes.numpy() >= 0.0))
    assert rises == (links.sigmoid_margin(links.Cosh(), gamma, offset) >= 0.0)
    assert rises == (link.rises_from == -math.inf)
