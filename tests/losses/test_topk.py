"""Top-k losses: classes, limits, and the points where other implementations fail."""

import math
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.callbacks import AnnealTau

pytestmark = pytest.mark.usefixtures("eagerly")

RNG = np.random.default_rng(0)


def loss_and_gradient(loss, labels, scores, dtype: str = "float32") -> tuple:
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    return float(value), tape.gradient(value, scores).numpy()


@pytest.mark.sample(6)
@pytest.mark.parametrize("make", [losses.SmoothTopKLoss, losses.TopKHingeLoss])
@pytest.mark.parametrize(
    "form", [losses.mean_over_relevant, losses.hit_at_k, losses.recall_structured]
)
def test_classes_equal_their_one_hot_rows(make, form) -> None:
    scores, label = RNG.normal(size=[6, 9]), RNG.integers(0, 9, 6)
    expected = make(3, form=form)(tf.one_hot(label, 9), scores)
    for labels in (label, label[:, None], label.astype(np.int64), label.astype(np.float32)):
        np.testing.assert_allclose(make(3, form=form)(labels, scores), expected, rtol=1e-5)


@pytest.mark.long
def test_classes_are_weighed_and_masked_as_one_hot_rows_are() -> None:
    scores, label = tf.constant(RNG.normal(size=[3, 9]), tf.float32), RNG.integers(0, 9, 3)
    one_hot, loss = tf.one_hot(label, 9), losses.SmoothTopKLoss(3, reduction="none")
    for shape in ([3], [3, 1], [3, 9]):
        weights = RNG.uniform(size=shape)
        np.testing.assert_allclose(
            loss(label, scores, weights), loss(one_hot, scores, weights), rtol=1e-5
        )
    expected = loss(tf.where([True] * 5 + [False] * 4, one_hot, -1.0), scores)
    scores._keras_mask = tf.constant([[True] * 5 + [False] * 4] * 3)
    np.testing.assert_allclose(loss(label, scores), expected, rtol=1e-5)


def test_one_best_item_is_softmax_cross_entropy() -> None:
    scores, label = RNG.normal(size=[4, 50]) * 3.0, RNG.integers(0, 50, 4)
    loss = losses.SmoothTopKLoss(1, tau=1.0, margin=0.0)
    value, grad = loss_and_gradient(loss, label, scores)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected, expected_grad = loss_and_gradient(entropy, label, scores)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grad, expected_grad, rtol=1e-5, atol=1e-8)
    one_hot = loss(tf.one_hot(label, 50), scores)
    np.testing.assert_allclose(one_hot, losses.SoftmaxLoss()(tf.one_hot(label, 50), scores), 1e-6)


def test_a_small_tau_comes_close_to_the_hinge() -> None:
    labels, scores = RNG.integers(0, 2, [20, 8]), RNG.normal(size=[20, 8])
    for form in (losses.mean_over_relevant, losses.hit_at_k, losses.recall_structured):
        smooth = losses.SmoothTopKLoss(2, 1e-4, form=form, reduction="none")(labels, scores)
        hard = losses.TopKHingeLoss(2, form=form, reduction="none")(labels, scores)
        np.testing.assert_allclose(smooth, hard, atol=1e-3)


def test_two_items_have_a_gradient_of_the_hinge() -> None:
    scores, labels = tf.constant(RNG.normal(size=[20, 50])), RNG.integers(0, 50, 20)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = losses.TopKHingeLoss(5, margin=10.0, dtype="float64")(labels, scores)
    assert np.all(np.count_nonzero(tape.gradient(loss, scores), axis=1) == 2)


@pytest.mark.sample(4)
@pytest.mark.parametrize("k", [1, 2, 5, 49])
def test_the_loss_lies_between_its_bounds(k: int) -> None:
    scores, label, tau = RNG.normal(size=[200, 50]) * 2.0, RNG.integers(0, 50, 200), 0.5
    hard = losses.TopKHingeLoss(k, reduction="none")(label, scores).numpy()
    smooth = losses.SmoothTopKLoss(k, tau, reduction="none")(label, scores).numpy()
    assert np.all(smooth >= hard - tau * math.log(k) - 1e-5)
    assert np.all(smooth <= hard + tau * math.log(1 + 50 - k) + 1e-5)


@pytest.mark.parametrize(("k", "tau"), [(1, 1.0), (5, 0.1), (5, 0.5)])
def test_the_error_is_at_most_the_loss_times_a_factor(k: int, tau: float) -> None:
    scores, label = RNG.normal(size=[500, 20]), RNG.integers(0, 20, 500)
    own = scores[np.arange(500), label]
    scores[:100] = np.where(np.arange(20) < k, own[:100, None] + 1e-6, own[:100, None] - 9.0)
    scores[np.arange(100), 19], label[:100] = own[:100], 19  # just outside the first k
    own = scores[np.arange(500), label]
    error = np.sum(scores > own[:, None], axis=1) >= k
    loss = losses.SmoothTopKLoss(k, tau, reduction="none")(label, scores).numpy()
    assert np.all(loss >= (1.0 - tau * math.log(k)) * error - 1e-5)
    assert np.any(loss < 1.0 * error) == (k > 1)


@pytest.mark.parametrize("make", [losses.SmoothTopKLoss, losses.TopKHingeLoss])
def test_lists_of_up_to_k_items_are_zero_with_a_warning(make) -> None:
    scores = RNG.normal(size=[2, 4])
    with pytest.warns(UserWarning, match=r"k=4, y_pred.shape=\(2, 4\)"):
        value, grad = loss_and_gradient(make(4), np.array([0, 3]), scores)
    assert value == 0.0
    assert np.all(grad == 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make(3)(np.array([0, 3]), scores) > 0.0


@pytest.mark.long
def test_fewer_than_k_finite_competitors_are_zero() -> None:
    scores = [[1.0, -math.inf, 2.0, -math.inf, 3.0]]
    for labels in (np.array([0]), np.array([[1.0, 0.0, 0.0, 0.0, 0.0]])):
        for make in (losses.SmoothTopKLoss, losses.TopKHingeLoss):
            value, grad = loss_and_gradient(make(3), labels, scores)
            assert value == 0.0
            assert np.all(grad == 0.0)


def test_a_list_without_a_relevant_class_is_zero() -> None:
    loss = losses.SmoothTopKLoss(2, reduction="none")
    values = loss(np.array([-1, 1, 9]), RNG.normal(size=[3, 5]))
    np.testing.assert_array_equal(values > 0.0, [False, True, False])


@pytest.mark.sample(6)
@pytest.mark.parametrize("tau", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("k", [1, 5, 30])
def test_gradient_sums_to_zero_and_pulls_up_the_label_alone(k: int, tau: float) -> None:
    rows = [RNG.normal(size=40), np.zeros(40), np.linspace(-1e4, 1e4, 40), np.repeat([9.0, 0], 20)]
    rows.append(np.concatenate([[1e4], np.zeros(39)]))
    labels = np.tile([0, 20, 39], len(rows))  # the largest, the smallest, and one between
    loss = losses.SmoothTopKLoss(k, tau, reduction="sum")
    value, grad = loss_and_gradient(loss, labels, np.repeat(rows, 3, axis=0))
    assert np.isfinite(value)
    is_label = np.eye(40, dtype=bool)[labels]
    assert np.all(grad[is_label] <= 0.0)
    assert np.all(grad[~is_label] >= -1e-7 / k)
    np.testing.assert_allclose(np.sum(grad, axis=1), 0.0, atol=2e-6)


def test_shifts_change_nothing_and_scales_scale() -> None:
    scores, label = RNG.integers(-8, 8, [5, 30]) / 4.0, RNG.integers(0, 30, 5)
    loss = losses.SmoothTopKLoss(4, tau=0.5, margin=1.0)(label, scores)
    np.testing.assert_allclose(losses.SmoothTopKLoss(4, 0.5)(label, scores + 4096.0), loss, 1e-6)
    scaled = losses.SmoothTopKLoss(4, tau=1.0, margin=2.0)(label, 2.0 * scores)
    np.testing.assert_allclose(scaled, 2.0 * loss, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_scores_are_computed_in_float32(dtype: str) -> None:
    scores = tf.cast(RNG.normal(size=[3, 3000]) * 100.0, dtype)
    label = np.array([0, 2049, 2999])  # which bfloat16 and float16 cannot tell from neighbours
    for tau in (1e-3, 1.0):
        loss = losses.SmoothTopKLoss(5, tau)
        np.testing.assert_allclose(loss(label, scores), loss(label, tf.cast(scores, "float32")))


def test_another_number_of_classes_than_of_lists_is_named() -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(3,\), y_pred.shape=\(2, 4\)"):
        losses.SmoothTopKLoss(2)(np.zeros(3), np.zeros([2, 4]))


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize("jit_compile", [pytest.param(True, marks=pytest.mark.long), False])
def test_tau_anneals_without_another_compilation(jit_compile: bool, monkeypatch) -> None:
    x, y = RNG.normal(size=[64, 10]).astype("float32"), RNG.integers(0, 20, 64)
    loss = losses.SmoothTopKLoss(3, tau=5.0)
    model = keras.Sequential([keras.layers.Dense(20)])
    model.compile("adam", loss, jit_compile=jit_compile)
    traced = []
    per_list = losses.SmoothTopKLoss.of_classes
    monkeypatch.setattr(
        losses.SmoothTopKLoss,
        "of_classes",
        lambda self, *args: traced.append(1) or per_list(self, *args),
    )
    anneal = AnnealTau(loss, keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5))
    seen = model.fit(x, y, batch_size=32, epochs=3, verbose=0, shuffle=False, callbacks=[anneal])
    np.testing.assert_allclose(seen.history["tau"], [2.0**-1, 2.0**-3, 2.0**-5])
    assert loss.get_config()["tau"] == 5.0
    assert 1 <= len(traced) <= 2
    loss.current_tau.assign(1.0)
    found = loss(y, model(x))
    tf.config.run_functions_eagerly(True)
    same = losses.SmoothTopKLoss(3, tau=1.0)
    np.testing.assert_allclose(found, same(y, model(x)), rtol=1e-6)


def test_tau_follows_the_schedule_and_the_configuration_stays() -> None:
    x, y = np.random.default_rng(1).normal(size=[4, 3]), np.array([5, 0, 2, 1])
    loss = losses.SmoothTopKLoss(3, tau=5.0)
    model = keras.Sequential([keras.layers.Dense(6)])
    model.compile("sgd", loss)
    anneal = AnnealTau(loss, keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5))
    seen = model.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=[anneal])
    np.testing.assert_allclose(seen.history["tau"], [2.0**-1, 2.0**-3])
    assert loss.get_config()["tau"] == 5.0
    same = losses.SmoothTopKLoss(3, tau=2.0**-3)
    np.testing.assert_allclose(loss(y, model(x)), same(y, model(x)), rtol=1e-6)


def test_a_schedule_to_zero_is_refused() -> None:
    loss = losses.SmoothTopKLoss(3)
    model = keras.Sequential([keras.layers.Dense(20)])
    model.compile("sgd", loss)
    with pytest.raises(ValueError, match=r"`schedule` must return positive"):
        model.fit(
            np.zeros([2, 3]), np.zeros(2), verbose=0, callbacks=[AnnealTau(loss, lambda _: 0)]
        )


def test_ragged_weights_are_those_of_classes():
    scores, classes = tf.constant([[0.3, 0.1, 0.2]]), tf.constant([1])
    weights = tf.ragged.constant([[1.0, 2.0, 3.0]])
    loss = losses.SmoothTopKLoss(1)
    assert loss(classes, scores, weights) == loss(classes, scores, weights.to_tensor())


def test_an_item_with_score_minus_infinity_has_no_part_in_a_cross_entropy() -> None:
    loss = losses.TopKCrossEntropyLoss(np.array([1, 2]))
    scores = tf.constant([[2.0, -math.inf, 1.0, 3.0, -math.inf]])
    labels = tf.constant([[1.0, 1.0, 0.0, 0.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    expected = loss(tf.constant([[1.0, 0.0, 0.0]]), tf.constant([[2.0, 1.0, 3.0]]))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    gradient = tape.gradient(value, scores).numpy()
    assert np.all(np.isfinite(gradient))
    assert not np.any(gradient[0, [1, 4]])


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "loss",
    [
        losses.SmoothTopKLoss(2),
        losses.TopKHingeLoss(1, form=losses.recall_structured),
        losses.TopKCrossEntropyLoss([1, 2], probabilities=np.array([0.5, 0.5])),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_score_of_minus_infinity_excludes_a_relevant_item_too(loss) -> None:
    scores = tf.constant([[-np.inf, 1.0, 2.0, 0.5, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(tf.constant([[1.0, 0.0, 0.0, 1.0, 0.0]]), scores)
    padded = loss(tf.constant([[-1.0, 0.0, 0.0, 1.0, 0.0]]), tf.nn.relu(scores))
    np.testing.assert_allclose(value, padded)
    assert np.isfinite(tape.gradient(value, scores)).all()
    assert float(loss(tf.constant([0]), scores)) == 0.0
    items = tf.constant([[1.0], [np.nan], [2.0], [3.0]])
    assert np.isnan(losses.CatalogueLoss(loss, lambda: items)(tf.constant([0]), tf.ones([1, 1])))
