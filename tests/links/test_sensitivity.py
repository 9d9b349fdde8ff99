"""Sensitivities of links, and best constants."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
import tensorflow as tf

from tfrank_sel import links

Array = Any
Function = Callable[[Array], Array]


@pytest.mark.long
def test_relative_sensitivities_integrate_to_1() -> None:
    at = np.arange(-4.0, 6.0, 0.125) + 0.0625
    for link in (links.Sigmoid(shift=1.0), links.SmeLU(half_width=1.5), links.Sinh(scale=0.5)):
        for relative in (links.blust, links.llust):
            rows = [relative(link, float(w), (-4.0, 6.0)) for w in at]
            assert np.mean(rows) * 10.0 == pytest.approx(1.0, rel=1e-2)


def test_the_signed_logarithm_is_for_low_norms() -> None:
    link = links.SignedLog1p()
    np.testing.assert_allclose(link.slope(np.array([-3.0, 0.0, 3.0])), [0.25, 1.0, 0.25])
    # the slope of the inverse is one over the slope: 20 at a norm of 3, as exp(3) is
    at = link(np.array([0.0, np.expm1(3.0)]))
    np.testing.assert_allclose(1.0 / link.slope(link.inverse(at)), [1.0, np.exp(3.0)])


def test_steps_count_in_the_linear_sensitivity() -> None:
    both = links.Sum([links.Sign(shift=1.0), links.Identity()])
    # the integral of w**2 dh over [-2, 2] is 16/3 of the slope and 2 of the step at 1
    assert links.llust(both, 2.0, (-2.0, 2.0)) == pytest.approx(4.0 / (16.0 / 3.0 + 2.0), rel=1e-12)


def test_an_inverse_has_its_kinks_where_the_link_has_its_values() -> None:
    link = links.Inverse(links.Capped(links.Power(exponent=2.0, shift=1.0), lower=-1.0))
    assert link.kinks == (0.0,)  # its domain begins at -4, and it is 9 at the score 4
    # the slope is 1 / (2 * sqrt(w)): the integral of w**2 dh over [0, 9] is 9**2.5 / 5
    assert links.llust(link, 9.0, (0.0, 9.0)) == pytest.approx(81.0 / 6.0 / (243.0 / 5.0), rel=1e-4)


def test_the_table_holds_what_the_functions_return() -> None:
    link, interval = links.Exp(scale=0.5), (0.0, 8.0)
    [row] = links.sensitivity_table(link, [7.0], interval, step=1.0)
    assert row == (
        7.0,
        pytest.approx(math.exp(3.5)),
        pytest.approx(0.5 * math.exp(3.5)),
        links.bust(link, 7.0, 1.0, interval),
        links.blust(link, 7.0, interval),
        links.llust(link, 7.0, interval),
    )


def test_an_interval_on_which_nothing_happens_is_refused() -> None:
    with pytest.raises(ValueError, match="`interval` must be increasing"):
        links.bust(links.Exp(), 0.0, 1.0, (1.0, 1.0))
    with pytest.raises(ValueError, match="`link` must rise on the interval"):
        links.blust(links.Huber(half_width=1.0), 0.0, (2.0, 3.0))
    with pytest.raises(ValueError, match="`link` must rise at `observed`"):
        links.llust(links.Huber(half_width=1.0), 0.0, (-3.0, 3.0), observed=[2.0, 2.5])


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_hessian_is_the_derivative_of_the_link(gamma: float) -> None:
    link = links.CompositeSoftmax(links.Sinh(scale=0.5), gamma)
    rest = (
        tf.constant([[True, True, False, True]]),
        tf.constant([[1.0, 2.0, 1.0, 0.5]], "float64"),
    )
    s, step = np.array([[1.0, -2.0, 9.0, 0.5]]), 1e-6
    for k in range(4):
        up, down = (link(s + d * np.eye(4)[k], *rest) for d in (step, -step))
        slopes = (up - down)[0] / (2.0 * step)
        np.testing.assert_allclose(link.hessian(s, *rest)[0, :, k], slopes, atol=1e-8)
    np.testing.assert_allclose(
        link.sensitivity(s, *rest), tf.linalg.diag_part(link.hessian(s, *rest)), rtol=1e-12
    )


@pytest.mark.parametrize(
    "link",
    [
        links.Exp(),
        links.Logit(),
        links.Power(exponent=3.0, shift=0.25),
        links.Sum([links.Tanh(), links.Sigmoid(scale=3.0)]),
        links.CompositeSigmoid(links.Exp()),
    ],
    ids=repr,
)
def test_no_constant_has_a_lower_loss_than_the_best(link: links.Link) -> None:
    s, w = np.array([0.1, 0.2, 0.9]), np.array([1.0, 2.0, 0.5])
    best = float(links.constant_predictor(link, s, w))
    at = best + np.array([-1e-3, 0.0, 1e-3])
    loss = [np.sum(w * link.divergence(np.full(3, c), s)) for c in at]
    assert loss[1] < min(loss[0], loss[2])
    np.testing.assert_allclose(link(np.array([best])), np.average(link(s), weights=w), rtol=1e-12)


@pytest.mark.long
def test_where_a_link_is_flat_the_best_constant_is_the_nearest_to_the_mean() -> None:
    flat = links.SmeLU(half_width=1.0)
    assert links.constant_predictor(flat, [-5.0, -3.0, -1.0]) == -3.0  # all are best
    assert links.constant_predictor(flat, [-9.0, -2.0]) == -5.5
    step = links.Step()
    assert links.constant_predictor(step, [-2.0, -1.0, 4.0]) == pytest.approx(0.0, abs=1e-12)
    assert links.constant_predictor(links.Constant(), [1.0, 2.0]) == 1.5


def test_the_best_list_has_the_mean_link() -> None:
    link = links.CompositeSoftmax(links.Sinh(scale=0.5), 0.5)
    s = np.random.default_rng(0).normal(size=[20, 4]) * 2.0
    weights = np.linspace(0.0, 2.0, 20)
    best = links.constant_predictor(link, s, weights)
    ones = np.ones_like(s)
    mean = np.average(link(s, ones > 0.0, ones), axis=0, weights=weights)
    np.testing.assert_allclose(
        link(best[np.newaxis], ones[:1] > 0.0, ones[:1])[0], mean, rtol=1e-13
    )


END = 6.0
DENSITIES: dict[str, Function] = {
    "uniform": lambda s: np.full_like(s, 1.0 / END),
    "few high": lambda s: np.exp(-s) / -np.expm1(-END),
    "many high": lambda s: 2.0 * s / END**2,
}
OWN_SLOPES: dict[links.Link, Function] = {
    links.Exp(scale=0.5): lambda s: 0.5 * np.exp(0.5 * s),
    links.Sigmoid(shift=4.0): lambda s: 0.25 / np.cosh(0.5 * (s - 4.0)) ** 2,
    links.Sinh(scale=0.5): lambda s: 0.5 * np.cosh(0.5 * s),
}


def drawn(density: Function, size: int) -> Array:
    """Returns scores with a density on [0, END], evenly spaced in probability."""
    s = np.linspace(0.0, END, 100_001)
    shares = scipy.integrate.cumulative_simpson(density(s), x=s, initial=0.0)
    return np.interp((np.arange(size) + 0.5) / size, shares, s)


@pytest.mark.parametrize("link", OWN_SLOPES, ids=repr)
@pytest.mark.parametrize("name", DENSITIES)
def test_sensitivities_of_a_distribution_are_those_of_quadrature(
    link: links.Link, name: str
) -> None:
    p, slope = DENSITIES[name], OWN_SLOPES[link]
    observed, score = np.append(drawn(p, 20_000), np.nan), 5.0
    mean, _ = scipy.integrate.quad(lambda s: p(s) * slope(s), 0.0, END)
    moment, _ = scipy.integrate.quad(lambda s: p(s) * slope(s) * s**2, 0.0, END)
    rise, _ = scipy.integrate.quad(slope, score, score + 0.5)
    interval = (0.0, END)
    [row] = links.sensitivity_table(link, [score], interval, 0.5, observed)
    np.testing.assert_allclose(row.bust, rise / (END * mean), rtol=2e-4)
    np.testing.assert_allclose(row.blust, slope(score) / (END * mean), rtol=2e-4)
    np.testing.assert_allclose(row.llust, score**2 * slope(score) / (END * moment), rtol=2e-4)
    if name == "uniform":
        assert row == pytest.approx(links.sensitivity_table(link, [score], interval, 0.5)[0], 2e-4)


def test_few_wrong_scores_move_the_best_bias_by_their_bust() -> None:
    link, s = links.Sigmoid(shift=4.0), drawn(DENSITIES["few high"], 2000)
    score, step, share = 4.5, 1.0, 1e-6
    weights = np.append(np.full(len(s), (1.0 - share) / len(s)), share)
    bias = links.best_bias(link, np.append(s, score), np.append(s, score + step), weights)
    bust = links.bust(link, score, step, (0.0, END), observed=s)
    assert bias / share == pytest.approx(END * bust, rel=1e-4)


def test_the_best_bias_has_the_smallest_loss_and_weighs_small_errors_by_the_slope() -> None:
    link = links.Exp(scale=0.5)
    random = np.random.default_rng(0)
    z, errors, weights = random.normal(size=50), random.normal(size=50), random.random(50)

    def loss(bias: float) -> float:  # its terms without `bias` left out
        s = z + errors
        return float(np.sum(weights * (2.0 * np.exp(0.5 * (z + bias)) - bias * np.exp(0.5 * s))))

    best = scipy.optimize.minimize_scalar(loss, tol=1e-12).x
    assert links.best_bias(link, z, z + errors, weights) == pytest.approx(best, abs=1e-6)
    small = links.best_bias(link, z, z + 1e-6 * errors, weights)
    mean = np.average(errors, weights=weights * np.exp(0.5 * z))
    assert small == pytest.approx(1e-6 * mean, rel=1e-5)


def test_a_bias_stays_in_the_domain_of_the_link() -> None:
    bias = links.best_bias(links.Logit(), [0.2, 0.9], [0.6, 0.95])
    at = links.Logit()(np.array([0.2, 0.9]) + bias)
    np.testing.assert_allclose(np.mean(at), np.mean(links.Logit()(np.array([0.6, 0.95]))))


def test_observations_of_a_wrong_shape_are_named() -> None:
    with pytest.raises(ValueError, match=r"must have 1 axes.*scores.shape=\(1, 2\)"):
        links.constant_predictor(links.Exp(), [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"weights.shape=\(1,\)"):
        links.constant_predictor(links.Exp(), [1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="positive for at least one score"):
        links.constant_predictor(links.Exp(), [1.0], [0.0])
    with pytest.raises(ValueError, match=r"predicted.shape=\(1,\), observed.shape=\(2,\)"):
        links.best_bias(links.Exp(), [1.0], [1.0, 2.0])


def test_class_sensitivity_of_a_list_needs_no_mask() -> None:
    link = links.CompositeSoftmax(links.Exp())
    s = [1.0, -1.0, 0.0]
    ones = np.ones([1, 3])
    expected = link.sensitivity(np.array([s]), ones > 0.0, 2.0 * ones)[0]
    np.testing.assert_allclose(links.class_sensitivity(link, s, [2.0, 2.0, 2.0]), expected)
    np.testing.assert_allclose(links.class_sensitivity(link, s), expected, rtol=1e-12)


def test_padding_of_scores_is_left_out() -> None:
    link, nan = links.Sigmoid(), math.nan
    bias = links.best_bias(link, [0.0, 1.0], [1.0, 1.5], [1.0, 2.0])
    for predicted in (nan, 7.0):
        padded = links.best_bias(link, [0.0, predicted, 1.0], [1.0, nan, 1.5], [1.0, 9.0, 2.0])
        assert padded == bias
    best = links.constant_predictor(link, [1.0, 3.0])
    assert links.constant_predictor(link, [nan, 1.0, 3.0, nan]) == best
    softmax = links.CompositeSoftmax(links.Exp())
    lists = [[1.0, 0.0], [nan, nan], [0.5, 0.25]]
    np.testing.assert_array_equal(
        links.constant_predictor(softmax, lists), links.constant_predictor(softmax, lists[::2])
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: links.best_bias(links.Exp, [1.0], [1.0]), "`link` must be an object of"),
        (lambda: links.best_bias([1.0], [1.0], links.Exp()), "`link` must be an object of"),
        (lambda: links.best_bias(links.Exp(), ["a"], [1.0]), "`predicted` must be an array of num"),
        (lambda: links.best_bias(links.Exp(), None, [1.0]), "`predicted` must be an array of num"),
        (lambda: links.best_bias(links.Exp(), [1.0], [[1.0], [1.0, 2.0]]), "`observed` must be an"),
        (lambda: links.best_bias(links.Exp(), [math.nan], [1.0]), "`predicted` must be finite"),
        (lambda: links.best_bias(links.Exp(), [1.0], [math.inf]), "`observed` must be finite"),
        (lambda: links.best_bias(links.Exp(), [1.0], [1.0], [-1.0]), "`weights` must be finite"),
        (lambda: links.constant_predictor(links.Exp(), "labels"), "`scores` must be an array of"),
        (
            lambda: links.constant_predictor(
                links.CompositeSoftmax(links.Exp()), [[1.0, math.nan], [1.0, 2.0]]
            ),
            "`scores` must be finite",
        ),
        (lambda: links.bust("exp", 0.0, 1.0, (0.0, 1.0)), "`link` must be an object of"),
        (lambda: links.bust(links.Exp(), "a", 1.0, (0.0, 1.0)), "`score` must be an array of num"),
        (lambda: links.blust(links.Exp(), 0.0, 1.0), "`interval` must be increasing"),
        (lambda: links.llust(links.Exp(), 0.0, (0.0, 1.0, 2.0)), "`interval` must be increasing"),
        (lambda: links.sensitivity_table(links.Exp(), None, (0.0, 1.0)), "`scores` must be an arr"),
        (lambda: links.class_sensitivity(links.Exp(), [1.0]), "`link` must be an object of Comp"),
        (
            lambda: links.class_sensitivity(links.CompositeSoftmax(links.Exp()), [[1.0]]),
            r"`scores` and `weights` must be \[items\]",
        ),
        (lambda: links.critical_gamma("cosh"), "`scaling` must be an object of"),
        (lambda: links.labels.affine(0.0), "`slope` must be positive"),
        (lambda: links.labels.logit(0.5), r"`epsilon` must be in \(0, 0.5\)"),
        (lambda: links.Capped(links.Logit(), 0.0, 0.5), r"must lie in the domain \(0.0, 1.0\)"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4, 1e6])
def test_the_linear_sensitivity_of_a_steep_link_is_that_of_a_step(scale: float) -> None:
    link, interval = links.Sigmoid(scale=scale, shift=0.7), (-5.0, 5.0)
    score = 0.7 + 1.0 / scale
    slope = float(link.slope(np.array(score)))
    # the second moment of the logistic distribution: its mean, and its variance
    moment = 0.7**2 + math.pi**2 / (3.0 * scale**2)
    rest = 1e-1 if scale == 1.0 else 1e-6  # outside the interval
    relative = links.llust(link, score, interval)
    assert relative == pytest.approx(score**2 * slope / moment, rel=rest * 3.0)
