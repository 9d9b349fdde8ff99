"""The experiments of the paper, F.1 and I.1, by the library's losses in float64."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses

pytestmark = pytest.mark.usefixtures("eagerly")

LOW = [(nuisance, s) for s in range(-10, 0) for nuisance in (1, 3)]
HIGH = [(s, nuisance) for s in range(6, 11) for nuisance in (1, 3)]
FEATURES = np.array(LOW + HIGH, np.float64)
SCORES = np.array([s for _, s in LOW] + [s for s, _ in HIGH], np.float64)
MIRRORED = -FEATURES[:, ::-1]


def fit(link: links.Link, x: Any, s: Any) -> tuple[Any, float]:
    """Minimises the loss of a linear model by Newton's steps, halved where it rises."""
    loss = losses.DecomposedMatchingLoss(link, dtype="float64")  # summed, as the paper does
    s = tf.constant([s])
    w = np.linalg.lstsq(x, s[0], rcond=None)[0]

    def value_and_gradient(w: Any) -> tuple[float, Any]:
        w = tf.constant(w)
        with tf.GradientTape() as tape:
            tape.watch(w)
            value = loss(s, tf.linalg.matvec(x, w)[tf.newaxis])
        return float(value), tape.gradient(value, w).numpy()

    value, gradient = value_and_gradient(w)
    for _ in range(60):
        slope = link.slope(tf.linalg.matvec(x, w)).numpy()
        move, size = np.linalg.solve((x.T * slope) @ x, -gradient), 1.0
        while (step := value_and_gradient(w + size * move))[0] > value * (1.0 + 1e-14):
            size *= 0.5
        w = w + size * move
        value, gradient = step
        if np.max(np.abs(gradient)) < 1e-13:
            break
    assert np.max(np.abs(gradient)) < 1e-9 * np.max(slope)
    return w, value


def errors(w: Any, x: Any, s: Any) -> tuple[float, float]:
    """The root mean squared errors of high and of low scores."""
    squares = (x @ w - s) ** 2
    return math.sqrt(squares[s > 0].mean()), math.sqrt(squares[s < 0].mean())


@pytest.mark.parametrize(
    ("link", "w", "loss", "rmse"),
    [
        (links.Sigmoid(shift=10.0), (0.991662, 0.036902), 0.00895269, (0.0394, 7.8511)),
        (links.Sigmoid(shift=8.0), (0.971891, 0.111245), None, (0.1182, 7.3577)),
        (links.Sigmoid(shift=-10.0), (0.000581, 1.000129), 9.26e-5, (6.2401, 0.00082)),
        (links.Sigmoid(), (0.374788, 1.387882), 0.166196, (2.768, 1.816)),
        (links.Identity(), (0.672369, 1.183344), None, (1.296, 0.918)),
        (links.Exp(shift=10.0), (0.996314, 0.017058), None, (0.0184, None)),
    ],
    ids=repr,
)
def test_the_link_chooses_what_a_linear_model_fits(
    link: links.Link, w: Any, loss: float | None, rmse: Any
) -> None:
    found, value = fit(link, FEATURES, SCORES)
    np.testing.assert_allclose(found, w, atol=6e-7)
    if loss is not None:
        np.testing.assert_allclose(value, loss, rtol=1e-3 if loss < 1e-4 else 3e-6)
    for actual, expected in zip(errors(found, FEATURES, SCORES), rmse, strict=True):
        if expected is not None:
            np.testing.assert_allclose(actual, expected, atol=6e-6 if expected < 0.01 else 6e-4)


def test_the_nuisance_separates_pairs_where_the_link_is_blind() -> None:
    def gaps(link: links.Link) -> tuple[float, float]:
        w, _ = fit(link, FEATURES, SCORES)
        return 2.0 * w[1], 2.0 * w[0]  # of the high pairs, and of the low ones

    np.testing.assert_allclose(gaps(links.Sigmoid(shift=10.0)), (0.0738, 1.983), atol=6e-4)
    np.testing.assert_allclose(gaps(links.Sigmoid()), (2.776, 0.750), atol=6e-4)


def test_the_mirror_image_is_fitted_the_other_way_round() -> None:
    w, value = fit(links.Sigmoid(), MIRRORED, -SCORES)
    np.testing.assert_allclose(w, (1.387882, 0.374788), atol=6e-7)
    np.testing.assert_allclose(value, 0.166196, rtol=3e-6)


def test_a_majority_of_high_scores_with_the_same_nuisance_is_no_mirror_image() -> None:
    rows = [(s, nuisance, s) for s in range(1, 11) for nuisance in (1, 3)]
    rows += [(nuisance, s, s) for s in range(-10, -5) for nuisance in (1, 3)]
    rows = np.array(rows, np.float64)
    w, _ = fit(links.Sigmoid(), rows[:, :2], rows[:, 2])
    np.testing.assert_allclose(w, (0.519948, 0.749765), atol=6e-7)
    assert 2.0 * w[1] > 2.0 * w[0]  # the high pairs are further apart, as in the first design


def best_constant(link: links.Link, scores: Any) -> float:
    [w], _ = fit(link, np.ones([len(scores), 1]), np.array(scores))
    return float(w)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (1.0, (0.101249, 0.108143, 0.130158)),
        (5.0, (0.106186, 0.153667, 0.440059)),
        (20.0, (0.121689, 0.302977, 0.852778)),
    ],
)
def test_one_high_score_lifts_the_bias(scale: float, expected: Any) -> None:
    for n, bias in zip((1, 6, 18), expected, strict=True):
        link, scores = links.Exp(scale=scale), [0.05] * n + [0.1 + 0.05 * n]
        found = best_constant(link, scores)
        np.testing.assert_allclose(found, bias, atol=6e-7)
        np.testing.assert_allclose(links.constant_predictor(link, scores), found, rtol=1e-10)


@pytest.mark.parametrize(
    ("scale", "distance", "lift"),
    [(1.0, 1.0, 0.433781), (1.0, 2.0, 1.325003), (1.0, 5.0, 4.306898), (0.5, 3.0, 1.710880)],
)
@pytest.mark.parametrize(("mean", "shift"), [(0.0, 0.0), (-4.0, 2.0)])
def test_the_bias_of_two_scores_does_not_depend_on_their_mean_or_the_shift(
    scale: float, distance: float, lift: float, mean: float, shift: float
) -> None:
    link, scores = links.Exp(scale=scale, shift=shift), [mean - distance, mean + distance]
    found = best_constant(link, scores)
    np.testing.assert_allclose(found - mean, lift, atol=6e-7)
    np.testing.assert_allclose(found - mean, math.log(math.cosh(scale * distance)) / scale)
    np.testing.assert_allclose(links.constant_predictor(link, scores), found, rtol=1e-10)
