"""Selective losses beyond the contracts: properties from the paper, and errors."""

import json
import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import links, losses

pytestmark = pytest.mark.usefixtures("eagerly")

SCALINGS = [
    links.Identity(),
    links.Constant(scale=2.0),
    links.Exp(scale=0.5),
    links.AntiExp(),
    links.Sinh(scale=0.5, shift=1.0),
    links.Tanh(),
    links.SmeLU(half_width=1.5),
    links.Power(exponent=3.0),
    links.Capped(links.Exp(), -20.0, 2.0),
]
every_scaling = pytest.mark.parametrize("scaling", SCALINGS, ids=repr)


def many_lists(seed: int) -> Any:
    """Lists of three scores, many of them tied or all equal."""
    rng = np.random.default_rng(seed)
    tied = rng.choice([-3.0, 0.0, 2.0], [300, 3])
    return np.where(rng.random([300, 1]) < 0.5, tied, rng.uniform(-4.0, 4.0, [300, 3]))


def selective_losses(scaling: links.Link) -> list[Any]:
    kwargs = {"dtype": "float64", "reduction": "none"}
    return [
        losses.SelectiveSoftmaxLoss(scaling, 0.5, **kwargs),
        losses.SelectiveSigmoidLoss(scaling, 2.0, 0.5, **kwargs),
        losses.MatchingLoss(scaling, **kwargs),
    ]


def gradient(loss: Any, s: Any, z: Any, dtype: str = "float64") -> Any:
    z = tf.constant(z, dtype)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = loss(s, z)
    return tape.gradient(value, z).numpy()


@pytest.mark.sample(9)
@every_scaling
def test_a_loss_is_convex_at_least_zero_and_zero_where_it_should_be(scaling: links.Link) -> None:
    s, a, b = map(many_lists, range(3))
    for loss in selective_losses(scaling):
        at_a, at_b, at_middle = (loss(s, z).numpy() for z in (a, b, 0.5 * (a + b)))
        assert min(at_a.min(), at_b.min(), at_middle.min()) >= 0.0
        assert np.all(at_middle <= 0.5 * (at_a + at_b) * (1.0 + 1e-12) + 1e-13)
        assert np.all(loss(s, s) == 0.0)
        assert np.all(gradient(loss, s, s) == 0.0)


@every_scaling
def test_the_loss_is_a_divergence_of_probabilities_plus_one_of_scores(scaling: links.Link) -> None:
    rng = np.random.default_rng(0)
    s, z = rng.normal(size=[2, 6, 5])
    link, rest = links.CompositeSoftmax(scaling, 0.7), (np.ones([6, 5], bool), np.ones([6, 5]))
    p, p_z = (link.probabilities(x, *rest).numpy() for x in (s, z))
    kl = np.sum(p * np.log(p / p_z), axis=1)
    parts = 0.7 * kl + np.sum(p * scaling.divergence(z, s), axis=1)
    np.testing.assert_allclose(link.divergence(z, s, *rest), parts, rtol=1e-9, atol=1e-12)


@pytest.mark.sample(3)
@every_scaling
def test_its_probabilities_maximise_the_mean_potential_plus_the_entropy(
    scaling: links.Link,
) -> None:
    """C.1: `gamma * log sum exp(Q / gamma)` is the maximum, and others lack their divergence."""
    rng, gamma = np.random.default_rng(4), 0.7
    s, ones = rng.normal(size=[6, 5]), np.ones([6, 5])
    potential = scaling.potential(tf.constant(s)).numpy()

    def value(p: Any) -> Any:
        return np.sum(p * (potential - gamma * np.log(p)), axis=-1)

    best = links.CompositeSoftmax(scaling, gamma).probabilities(s, ones > 0.0, ones).numpy()
    maximum = gamma * np.log(np.sum(np.exp(potential / gamma), axis=-1))
    np.testing.assert_allclose(value(best), maximum, rtol=1e-12)
    others = rng.dirichlet(np.ones(5), [100, 6])
    lacking = gamma * np.sum(others * np.log(others / best), axis=-1)
    np.testing.assert_allclose(maximum - value(others), lacking, rtol=1e-9)
    assert np.all(lacking > 0.0)


def test_named_composites_have_the_probabilities_of_the_paper() -> None:
    s, ones = np.random.default_rng(5).normal(size=[4, 3]), np.ones([4, 3])
    for scaling, mass in (
        (links.Exp(), np.exp(np.exp(s))),  # C.12
        (links.Sigmoid(), 1.0 + np.exp(s)),  # C.14
        (links.Tanh(), np.cosh(s)),  # C.17
    ):
        p = links.CompositeSoftmax(scaling).probabilities(s, ones > 0.0, ones)
        np.testing.assert_allclose(p, mass / mass.sum(axis=1, keepdims=True), rtol=1e-12)
    sigmoid = links.CompositeSigmoid(links.Sigmoid()).probability(tf.constant(s))  # C.15
    np.testing.assert_allclose(sigmoid, (1.0 + np.exp(s)) / (2.0 + np.exp(s)), rtol=1e-12)


def test_the_standard_softmax_does_not_see_a_shift() -> None:
    loss = losses.SelectiveSoftmaxLoss(links.Constant(), dtype="float64")
    s, z = np.random.default_rng(1).normal(size=[2, 4, 5]).round(3)
    np.testing.assert_allclose(loss(s, z + 64.0), loss(s, z), rtol=1e-10)
    np.testing.assert_allclose(loss(s, s + 64.0), 0.0, atol=1e-12)


@pytest.mark.sample(3)
@every_scaling
def test_one_class_of_composite_softmax_is_the_scalings_own_loss(scaling: links.Link) -> None:
    s, z = np.array([[0.5]]), np.array([[2.0]])
    with pytest.warns(UserWarning, match="every list has one item"):
        value = losses.SelectiveSoftmaxLoss(scaling, dtype="float64")(s, z)
    expected = losses.MatchingLoss(scaling, dtype="float64")(s, z)
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.sample(3)
@every_scaling
def test_composite_sigmoid_is_composite_softmax_beside_a_class_that_stays_zero(
    scaling: links.Link,
) -> None:
    rest = (np.ones([1, 2], bool), np.ones([1, 2]))
    softmax = links.CompositeSoftmax(scaling, 0.8, log_rho=[0.3, 0.0])
    fixed = 0.25
    offset = 0.3 - float(scaling.potential(tf.constant(fixed, tf.float64)))
    sigmoid = links.CompositeSigmoid(scaling, 0.8, offset)
    z, s = (tf.constant([[x, fixed]], tf.float64) for x in (1.5, -0.75))
    np.testing.assert_allclose(
        softmax.divergence(z, s, *rest)[0], sigmoid.divergence(z, s)[0, 0], rtol=1e-9
    )


def test_theorem_4_does_not_hold_for_a_scaling_that_does_not_increase() -> None:
    scaling = links.Cosh()
    with pytest.raises(ValueError, match=r"theorem 4.*nearest valid choice is Capped.*lower=0.0"):
        losses.SelectiveSoftmaxLoss(scaling, 0.5)
    with pytest.raises(ValueError, match="`link` must be increasing"):
        losses.MatchingLoss(scaling)
    loss = losses.SelectiveSoftmaxLoss(scaling, 0.5, allow_nonconvex=True, dtype="float64")
    value = loss([[-2.0, -2.0]], [[-1.0, -1.0]])
    np.testing.assert_allclose(value, -1.3105, atol=1e-4)


def test_padding_of_a_bounded_link_is_harmless() -> None:
    loss = losses.MatchingLoss(links.Logit())
    s = [[0.25, math.nan, 0.75]]
    for junk in (0.0, -5.0, 1e30, math.nan):
        assert np.isfinite(loss(s, [[0.5, junk, 0.5]]))
        grad = gradient(loss, s, [[0.5, junk, 0.5]], "float32")
        assert np.all(np.isfinite(grad))
        assert grad[0, 1] == 0.0


def test_predictions_outside_the_domain_are_nan_unless_the_link_is_capped() -> None:
    s, z = [[0.25, 0.75]], [[0.5, 1.5]]
    assert np.isnan(losses.MatchingLoss(links.Logit())(s, z))
    capped = losses.MatchingLoss(links.Capped(links.Logit(), 0.01, 0.99))
    assert np.isfinite(capped(s, z))
    assert gradient(capped, s, z, "float32")[0, 1] > 0.0


@pytest.mark.long
def test_a_label_map_makes_scores_of_grades_and_padding_of_what_is_below_0() -> None:
    grades, z = np.array([[4.0, 0.0, 2.0, -1.0]]), np.array([[1.0, -2.0, 0.5, 7.0]])
    mapped = np.array([[3.0, -3.0, 0.0, math.nan]])
    for loss in (
        losses.MatchingLoss,
        losses.DecomposedMatchingLoss,
        losses.ContrastiveMatchingLoss,
        losses.FenchelYoungLoss,
        losses.SelectiveSoftmaxLoss,
        losses.SelectiveSigmoidLoss,
        losses.SelectiveSoftmaxCrossEntropyLoss,
        losses.SelectiveSigmoidCrossEntropyLoss,
    ):
        by_map = loss(links.Sinh(scale=0.5), label_map=links.labels.affine(1.5, -3.0))
        np.testing.assert_allclose(by_map(grades, z), loss(links.Sinh(scale=0.5))(mapped, z), 1e-6)
        saved = json.dumps(keras.saving.serialize_keras_object(by_map))
        loaded = keras.saving.deserialize_keras_object(json.loads(saved))
        assert loaded(grades, z) == by_map(grades, z)


def test_label_maps_are_the_formulas_they_are_called_after() -> None:
    y = np.array([0.0, 0.25, 1.0, 3.0])
    np.testing.assert_allclose(links.labels.gain()(y), 2.0**y - 1.0, rtol=1e-12)
    np.testing.assert_allclose(links.labels.log1p()(y), np.log1p(y), rtol=1e-12)
    clipped = np.clip(y, 0.01, 0.99)
    expected = np.log(clipped / (1.0 - clipped)) / 2.0 + 1.0
    by_map = links.labels.logit(epsilon=0.01, scale=2.0, shift=1.0)(y)
    np.testing.assert_allclose(by_map, expected, rtol=1e-12)


def test_log_rho_is_a_weight_of_each_class() -> None:
    s, z = np.random.default_rng(2).normal(size=[2, 4, 3])
    log_rho = [0.5, -1.0, 40.0]
    loss = losses.SelectiveSoftmaxLoss(links.Sinh(), 2.0, log_rho, dtype="float64")
    plain = losses.SelectiveSoftmaxLoss(links.Sinh(), 2.0, dtype="float64")
    weights = np.tile(np.exp(np.array(log_rho) / 2.0), [4, 1])
    np.testing.assert_allclose(loss(s, z), plain(s, z, weights), rtol=1e-10)
    with pytest.raises(ValueError, match="`log_rho` must have a number for each place"):
        loss(s[:, :2], z[:, :2])
    saved = json.dumps(keras.saving.serialize_keras_object(loss))
    assert keras.saving.deserialize_keras_object(json.loads(saved))(s, z) == loss(s, z)


def test_contrastive_loss_sees_only_differences() -> None:
    loss = losses.ContrastiveMatchingLoss(links.Sinh(scale=0.5), dtype="float64")
    s, z = np.random.default_rng(3).normal(size=[2, 4, 5])
    np.testing.assert_allclose(loss(s, z + 3.0), loss(s, z), rtol=1e-12)
    np.testing.assert_allclose(np.sum(gradient(loss, s, z), axis=1), 0.0, atol=1e-14)


def test_weights_give_each_label_a_link_of_its_own() -> None:
    random = np.random.default_rng(0)
    s, z = random.normal(3.0, 2.0, [20, 6]), random.normal(3.0, 2.0, [20, 6])
    s[:, 4:] = np.nan
    low, high = (
        losses.MatchingLoss(x, reduction="none") for x in (links.Identity(), links.Exp(scale=0.5))
    )
    is_high = np.where(s >= 3.0, 1.0, 0.0)
    both = high(s, z, is_high) + low(s, z, 1.0 - is_high)
    s, z = s[:, :4], z[:, :4]
    exp = 2.0 * (np.exp(0.5 * z) - np.exp(0.5 * s)) - (z - s) * np.exp(0.5 * s)
    expected = np.where(s >= 3.0, exp, 0.5 * (z - s) ** 2).mean(axis=1)
    np.testing.assert_allclose(both, expected, rtol=1e-6)


def test_fenchel_young_loss_of_a_sigmoid_is_the_logistic_loss() -> None:
    y, z = np.array([[0.0, 1.0, 0.3]]), np.array([[2.0, 30.0, -4.0]])
    entropy = 0.3 * math.log(0.3) + 0.7 * math.log(0.7)
    expected = np.mean(np.logaddexp(0.0, z) - y * z + np.array([[0.0, 0.0, entropy]]))
    loss = losses.FenchelYoungLoss(links.Sigmoid(), dtype="float64")
    np.testing.assert_allclose(loss(y, z), expected, rtol=1e-12)
    assert np.isnan(loss([[1.5]], [[0.0]]))


@pytest.mark.parametrize(
    ("link", "y", "z", "expected"),
    [
        (links.Tanh(), -0.9999092, -4.7, 7.46566348e-5),
        (links.Tanh(), -0.9999092, -5.0, 1.78634119e-8),
        (links.Sigmoid(), 1.0, 12.0, -6.1441746e-6),
        (links.Sigmoid(), 0.0, -12.0, 6.1441746e-6),
        (links.Sigmoid(), 0.99999, 11.5, -1.16410659e-7),
        (links.Sinh(), 1000.0, 7.6, -0.902397955),
        (links.Identity(), 1e7, 0.0, -1e7),
    ],
)
def test_the_gradient_of_fenchel_young_keeps_its_digits_at_saturated_targets(
    link: links.Link, y: float, z: float, expected: float
) -> None:
    grad = gradient(losses.FenchelYoungLoss(link), [[y]], [[z]], "float32")
    np.testing.assert_allclose(grad, [[expected]], rtol=2e-6)


def test_a_sigmoid_that_underflows_times_a_large_score_is_not_lost() -> None:
    # 1 - p(s) = exp(-cosh(5.25)) = 3.9e-42, times Q(z) = cosh(62.75)
    loss = losses.SelectiveSigmoidCrossEntropyLoss(links.Sinh())
    np.testing.assert_allclose(loss([[5.25]], [[62.75]]), 3.70569648e-15, rtol=2e-5)


@pytest.mark.long
def test_an_item_with_nearly_all_the_probability_moves_by_that_of_the_others() -> None:
    s, z = np.array([12.0, 0.0, 0.0, 0.0, 0.0]), np.float32([12.0, 11.687, 0.0, 0.0, 0.0])
    q, rise = (
        np.sinh(0.5 * z),
        [2.0 * (np.cosh(0.5 * x) - np.cosh(6.0)) for x in (s, np.float64(z))],
    )
    p_s, p_z = np.exp(rise)  # beside 1, the others do not count
    change = np.append(-np.sum((p_z - p_s)[1:]), (p_z - p_s)[1:])
    matching = q * p_z - np.sinh(0.5 * s) * p_s
    matching[0] = q[0] * change[0]
    scaling = links.Sinh(scale=0.5)
    for loss, expected in (
        (losses.SelectiveSoftmaxLoss(scaling), matching),
        (losses.SelectiveSoftmaxCrossEntropyLoss(scaling), q * change),
    ):
        for scores in (z, z[::-1].copy()):
            labels = tf.constant([s if scores is z else s[::-1]], tf.float32)
            predicted = tf.constant([scores])
            with tf.GradientTape() as tape:
                tape.watch(predicted)
                value = loss(labels, predicted)
            found = tape.gradient(value, predicted)[0]
            order = slice(None) if scores is z else slice(None, None, -1)
            np.testing.assert_allclose(found, expected[order], rtol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        losses.SelectiveSigmoidLoss(links.Constant()),
        losses.SelectiveSigmoidCrossEntropyLoss(links.Constant()),
        losses.MatchingLoss(links.Sigmoid()),
        losses.MatchingLoss(links.Scaled(links.Tanh(scale=0.5), 0.5)),
    ],
    ids=lambda x: x.name,
)
def test_probabilities_near_1_differ_by_their_complements(loss: keras.losses.Loss) -> None:
    predicted = tf.constant([[40.0], [-40.0], [40.0]])
    with tf.GradientTape() as tape:
        tape.watch(predicted)
        value = loss(tf.constant([[38.0], [-38.0], [-38.0]]), predicted)
    far = 3.0 * tape.gradient(value, predicted)[:, 0].numpy()
    small = np.exp(-38.0) - np.exp(-40.0)
    np.testing.assert_allclose(far, [small, -small, 1.0], rtol=1e-5)


def test_a_cross_entropy_counts_log_rho() -> None:
    s, z, rho = np.array([0.3, -0.2, 0.5]), np.array([0.1, 0.4, -0.3]), np.array([1.0, 2.0, 3.0])
    p = np.exp((np.cosh(s) + rho) / 2.0)
    expected = 2.0 * np.log(np.sum(np.exp((np.cosh(z) + rho) / 2.0)))
    expected -= p @ np.cosh(z) / p.sum()
    loss = losses.SelectiveSoftmaxCrossEntropyLoss(links.Sinh(), gamma=2.0, log_rho=rho.tolist())
    assert float(loss(s[np.newaxis], z[np.newaxis])) == pytest.approx(expected, rel=1e-6)
