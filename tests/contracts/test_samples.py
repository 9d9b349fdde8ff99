"""The contracts of the losses that are averaged over samples of noise."""

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import SAMPLED, Array, Case, name_of
from tests.contracts.test_every_formula import batch, lists
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

every_loss = pytest.mark.parametrize("case", SAMPLED, ids=name_of)


def noise_of(case: Case, list_size: int) -> Array:
    rng = np.random.default_rng(5)
    return rng.gumbel(size=(3, case.make().sample_size, list_size)).round(3)


def of_noise(case: Case, labels: Any, scores: Any, weights: Any, noise: Array) -> tf.Tensor:
    loss = case.make(dtype="float64")
    read = loss.batch_of(labels, scores, weights, "float64")
    fields = (read.labels, read.scores, read.mask, read.weights)
    return loss.of_noise(*fields, tf.constant(noise))


def value_and_gradient(case: Case, labels: Any, scores: Any, noise: Array) -> tuple[Array, Array]:
    scores = tf.constant(scores, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = of_noise(case, labels, scores, None, noise)
    return value.numpy(), tape.gradient(value, scores).numpy()


@every_loss
def test_equals_its_reference(case: Case) -> None:
    noise = noise_of(case, 5)
    expected = [
        case.reference(*one, noise=noise[i, :, : len(one[0])])
        for i, one in enumerate(zip(*lists(case), strict=True))
    ]
    np.testing.assert_allclose(of_noise(case, *batch(case), noise), expected, rtol=1e-10)


@pytest.mark.sample(5)
@every_loss
@pytest.mark.parametrize("junk", [0.0, 1e30, -1e30, math.inf, math.nan])
def test_padding_changes_nothing(case: Case, junk: float) -> None:
    labels, scores, _ = batch(case)
    where, noise = [0, 2, 3], noise_of(case, 5)
    value, grad = value_and_gradient(case, labels, scores, noise)
    wide_value, wide_grad = value_and_gradient(
        case,
        np.insert(labels, where, math.nan, axis=1),
        np.insert(scores, where, junk, axis=1),
        np.insert(noise, where, 9.0, axis=2),
    )
    np.testing.assert_allclose(wide_value, value, rtol=1e-12)
    assert np.all(wide_grad[:, [0, 3, 5]] == 0.0)
    np.testing.assert_allclose(np.delete(wide_grad, [0, 3, 5], axis=1), grad, atol=1e-15)


@pytest.mark.sample(2)
@every_loss
def test_gradient_equals_finite_differences(case: Case) -> None:
    labels, scores, _ = batch(case)
    noise, step = noise_of(case, 5), 1e-5
    _, grad = value_and_gradient(case, labels, scores, noise)
    for j, move in enumerate(step * np.eye(scores.shape[1])):  # of an item of each list
        up, down = (of_noise(case, labels, scores + x, None, noise).numpy() for x in (move, -move))
        np.testing.assert_allclose(grad[:, j], (up - down) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.sample(3)
@every_loss
def test_gradient_is_finite_at_extreme_scores(case: Case) -> None:
    labels = np.array([[0.0, 1.0, 2.0, 3.0]])
    for scores in ([1e4, -1e4, 0.0, 1.0], [-1e4] * 4, [88.0, -88.0, 104.0, 710.0]):
        x = tf.constant([scores], tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = case.make()(labels, x)
        assert np.isfinite(value), scores
        assert np.all(np.isfinite(tape.gradient(value, x))), scores


@pytest.mark.sample(3)
@every_loss
def test_ragged_equals_padded(case: Case) -> None:
    ragged = [tf.ragged.constant([r.tolist() for r in x]) for x in lists(case)]
    np.testing.assert_allclose(case.make()(*ragged), case.make()(*batch(case)), rtol=1e-5)


@every_loss
def test_a_list_without_items_is_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    assert case.make()(np.full_like(labels, math.nan), scores) == 0.0
    assert case.make()(np.zeros([1, 0]), np.zeros([1, 0])) == 0.0


@every_loss
def test_each_call_has_noise_of_its_own_and_a_seed_repeats_all_of_it(case: Case) -> None:
    one, other = case.make(), case.make()
    values = [float(one(*batch(case))) for _ in range(3)]
    assert len(set(values)) == 3
    assert values == [float(other(*batch(case))) for _ in range(3)]


def test_without_a_seed_that_of_keras_counts() -> None:
    def value() -> float:
        loss = losses.GumbelLoss(losses.ApproxNDCGLoss())
        return float(loss([[1.0, 0.0, 0.0]], [[0.0, 0.5, 1.0]]))

    keras.utils.set_random_seed(1)
    first, second = value(), value()
    keras.utils.set_random_seed(1)
    assert value() == first != second


def test_the_noise_follows_the_gumbel_distribution() -> None:
    drawn = losses.CoupledRankDistilLoss(sample_size=20_000, k=1, seed=3, dtype="float64")
    # the first of an order is a sample of the softmax of the labels
    scores = tf.Variable([[0.0, 100.0]], dtype=tf.float64)
    costs = drawn([[0.0, 1.0]], scores).numpy()
    assert costs / 100.0 == pytest.approx(1.0 / (1.0 + math.e), abs=0.01)


def test_the_number_of_samples_is_positive() -> None:
    with pytest.raises(ValueError, match=r"must be positive\. Received: sample_size=0"):
        losses.GumbelLoss(losses.SoftmaxLoss(), sample_size=0)
