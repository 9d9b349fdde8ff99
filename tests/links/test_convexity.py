"""The conditions under which composite losses are convex, and their exact critical values."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

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


@pytest.mark.sample(3)
@pytest.mark.parametrize("gamma", [0.25, 1.0, 3.0])
@pytest.mark.parametrize(
    "scaling",
    [
        links.Cosh(),
        links.AbsPower(exponent=2.0, constant=0.5),
        links.Exp(scale=0.5),
        links.Sinh(shift=1.0),
        links.Tanh(),
    ],
    ids=repr,
)
def test_the_link_rises_where_g_2_holds_and_nowhere_else(scaling: links.Link, gamma: float) -> None:
    s, step = np.linspace(-3.0, 3.0, 601) + 1e-3, 1e-5

    def parts(s: Any) -> tuple[Any, Any]:
        q, log_odds = scaling(tf.constant(s)).numpy(), scaling.potential(tf.constant(s)) / gamma
        return q, 1.0 / (1.0 + np.exp(-log_odds))

    (low, p_low), (q, p), (high, p_high) = (parts(s + d) for d in (-step, 0.0, step))
    slopes = (high * p_high - low * p_low) / (2.0 * step)
    condition = scaling.slope(tf.constant(s)).numpy() + (1.0 - p) * q**2 / gamma
    np.testing.assert_allclose(p * condition, slopes, rtol=1e-6, atol=1e-6)
    link = links.CompositeSigmoid(scaling, gamma, allow_nonconvex=True)
    np.testing.assert_allclose(link.slope(tf.constant(s)), p * condition, rtol=1e-9, atol=1e-12)
    if links.sigmoid_margin(scaling, gamma) >= 0.0:
        assert np.all(condition >= 0.0)


# The transforms `f = exp(Q)` that G.3 calls invalid, and the scores at which their links fall.
INVALID: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "z**2": (tf.square, lambda z: np.abs(z) > 1.0),
    "|z|": (tf.abs, lambda z: z != 0.0),
    "sqrt |z|": (lambda z: tf.sqrt(tf.abs(z)), lambda z: z != 0.0),
    "exp sigmoid": (lambda z: tf.exp(tf.sigmoid(z)), lambda z: z > 0.182),
    "exp tanh": (lambda z: tf.exp(tf.tanh(z)), lambda z: z > 0.217),
    "softplus": (tf.nn.softplus, lambda z: z > 0.764),
    "sigmoid": (tf.sigmoid, lambda z: z > -0.347),
    "sinh |z|": (lambda z: tf.sinh(tf.abs(z)), lambda z: np.abs(z) < 0.881),
}


def derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of(z: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = f(z)
        return tape.gradient(value, z, unconnected_gradients="zero")

    return of


@pytest.mark.parametrize("name", INVALID)
def test_the_links_of_invalid_transforms_fall(name: str) -> None:
    f, falls = INVALID[name]
    first = derivative(f)
    second = derivative(first)

    class Scaling(links.ElementaryLink):
        """`q = f' / f`, whose potential is `log f`."""

        def phi(self, x: tf.Tensor) -> tf.Tensor:
            return first(x) / f(x)

        def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
            return tf.math.log(f(x))

        def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
            return second(x) / f(x) - tf.square(self.phi(x))

    z = tf.constant(np.linspace(-3.0, 3.0, 600))  # without 0
    link = links.CompositeSigmoid(Scaling(), allow_nonconvex=True)
    np.testing.assert_array_equal(link.slope(z) < 0.0, falls(z.numpy()))
    # the condition of `f` itself
    np.testing.assert_array_equal(second(z) * (1.0 + f(z)) < first(z) ** 2, falls(z.numpy()))
