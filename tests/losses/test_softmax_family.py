"""Members of the softmax family: properties beyond the contracts."""

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, metrics
from tfrank_sel.losses import direct, margin
from tfrank_sel.ops import ranking, soft_ranks

pytestmark = pytest.mark.usefixtures("eagerly")

RNG = np.random.default_rng(5)


def value_and_gradient(loss: Any, labels: Any, scores: Any, dtype: str = "float64") -> Any:
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


def compiled_shapes(formula: Any, *args: tf.Tensor) -> str:
    """The program that XLA makes of the value and the gradient of a formula."""

    @tf.function(jit_compile=True)
    def both(labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = formula.per_list(labels, scores, mask, weights)
        return value, tape.gradient(value, scores)

    return both.experimental_get_compiler_ir(*args)(stage="optimized_hlo")


def test_zlpr_meets_soft_labels_and_decodes_them() -> None:
    t = RNG.uniform(0.01, 0.99, (4, 9))
    loss = losses.ZLPRLoss(threshold=0.25, dtype="float64", reduction="none")
    scores = 0.25 + 0.5 * np.log(t / (1.0 - t))
    value, grad = value_and_gradient(loss, t, scores)
    np.testing.assert_allclose(value, 2 * np.log1p(np.sqrt(t * (1 - t)).sum(axis=1)))
    np.testing.assert_allclose(grad, 0.0, atol=1e-14)
    np.testing.assert_allclose(loss.probabilities(scores), t)


def test_the_gradient_of_zlpr_keeps_its_digits_near_the_optimum() -> None:
    t = RNG.uniform(0.1, 0.9, (4, 9)).astype(np.float32)
    t[:, :5] = 0.5  # whose optimum float32 can hold
    scores = np.where(t == 0.5, 1e-6 * RNG.normal(size=t.shape), np.nan).astype(np.float32)
    labels = np.where(t == 0.5, t, np.nan)
    single, double = (
        value_and_gradient(losses.ZLPRLoss(dtype=dtype), labels, scores, dtype)[1]
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(single, double, rtol=1e-5)


def test_n_way_losses_of_two_classes_are_zlpr() -> None:
    labels = RNG.dirichlet([1.0, 1.0], (3, 6))
    scores = RNG.normal(size=labels.shape)
    u, t = scores[..., 0] - scores[..., 1], labels[..., 0]
    zlpr = losses.ZLPRLoss(dtype="float64")
    for make, expected in (
        (losses.NWayJointLoss, zlpr(t, u)),
        (losses.NWayMeanLoss, zlpr(t, u / 2)),
        (losses.NWayPairwiseLoss, zlpr(t, u)),
    ):
        np.testing.assert_allclose(make(dtype="float64")(labels, scores), expected, rtol=1e-12)


def test_only_the_mean_loss_vanishes_while_a_wrong_class_leads() -> None:
    label, scores = [[[1.0, 0.0, 0.0]]], [[[30.0, 60.0, -270.0]]]
    assert losses.NWayMeanLoss(dtype="float64")(label, scores) < 1e-12
    for make in (losses.NWayJointLoss, losses.NWayPairwiseLoss):
        assert make(dtype="float64")(label, scores) >= 30.0


@pytest.mark.parametrize(
    ("make", "expected"),
    [(losses.NWayPairwiseLoss, [2.0, 1.99, 1.90]), (losses.NWayJointLoss, [1.0, 1.0, 0.98])],
)
def test_classes_of_any_number_of_rows_share_the_gradient(make: Any, expected: Any) -> None:
    labels = np.eye(3)[np.repeat([0, 1, 2], [2000, 200, 20])]
    _, grad = value_and_gradient(make(dtype="float64"), labels, np.zeros_like(labels))
    own = -np.sum(labels * grad, axis=0)
    np.testing.assert_allclose(own, expected, atol=0.005)


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (3, 3), (40, 5), (2000, 12)])
def test_the_optimum_of_the_joint_loss_has_gradient_zero(rows: int, classes: int) -> None:
    labels = RNG.dirichlet(np.full(classes, 0.7), rows).clip(1e-9)
    best = losses.joint_optimum(labels)
    loss = losses.NWayJointLoss(dtype="float64")
    value, grad = value_and_gradient(loss, labels, best.scores)
    np.testing.assert_allclose(grad, 0.0, atol=1e-13)
    np.testing.assert_allclose(value, np.sum(np.log(best.class_factors)))
    decoded = loss.probabilities(best.scores, best.class_factors)
    np.testing.assert_allclose(decoded, labels / labels.sum(axis=1, keepdims=True), rtol=1e-9)
    with pytest.raises(ValueError, match="Received"):
        losses.joint_optimum([[0.0, 1.0]])


@pytest.mark.parametrize(("scale", "weights"), [(1.0, None), (2.0, None), (1.0, [0.5, 2.0, 8.0])])
def test_the_optimum_of_the_pairwise_loss_is_the_label(scale: float, weights: Any) -> None:
    labels = RNG.dirichlet([0.7] * 3, 30).clip(1e-9)
    masses = labels * (weights or 1.0)
    loss = losses.NWayPairwiseLoss(scale, weights, dtype="float64")
    scores = 0.5 * scale * np.log(masses)
    _, grad = value_and_gradient(loss, labels, scores)
    np.testing.assert_allclose(grad, 0.0, atol=1e-13)
    expected = labels / labels.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(loss.probabilities(scores), expected)


@pytest.mark.long
@pytest.mark.compiled
def test_the_pairwise_loss_never_holds_all_pairs() -> None:
    x = tf.constant(RNG.normal(size=(2, 7, 5)), tf.float32)
    program = compiled_shapes(
        losses.NWayPairwiseLoss(), tf.nn.softmax(x), x, tf.ones([2, 7], tf.bool), tf.ones([2, 7])
    )
    assert "f32[2,7,5]" in program
    assert "[2,7,5,5]" not in program


@pytest.mark.long
@pytest.mark.compiled
def test_soft_rank_never_holds_cubes() -> None:
    x = tf.constant(RNG.normal(size=(2, 7)), tf.float32)
    args = (tf.nn.relu(x), x, tf.ones([2, 7], tf.bool), tf.ones([2, 7]))
    program = compiled_shapes(losses.SoftRankLoss(), *args)
    assert "f32[2,7,7]" in program
    assert "[2,7,7,7]" not in program
    assert "[7,2,7,7]" not in program  # as a loop that keeps its steps would


def test_expected_ranks_add_up_and_sharp_ones_are_the_ranks() -> None:
    scores, mask = tf.constant(RNG.normal(size=(3, 6))), tf.constant([[True] * 6] * 3)
    for sigma in (0.1, 2.0):
        pairs = soft_ranks.ahead_and_behind(scores, mask, sigma)
        p = soft_ranks.rank_distributions(*pairs)
        np.testing.assert_allclose(tf.reduce_sum(p, axis=-1), 1.0, rtol=1e-12)
        means = tf.reduce_sum(p * tf.range(6.0, dtype=tf.float64), axis=-1)
        np.testing.assert_allclose(tf.reduce_sum(means, axis=-1), 15.0)
    labels = RNG.integers(0, 4, (3, 6))
    sharp = losses.SoftRankLoss(sigma=1e-6, dtype="float64")(labels, scores)
    np.testing.assert_allclose(1.0 - sharp, metrics.NDCG(dtype="float64")(labels, scores))


@pytest.mark.parametrize("discount", [ranking.log2_discount, ranking.inverse_discount])
def test_few_powers_equal_a_discount_and_its_steps(discount) -> None:
    factors, bases = soft_ranks.powers_of(discount, 120)
    values = discount(tf.range(1.0, 121.0, dtype=tf.float64)).numpy()
    found = bases ** np.arange(120)[:, np.newaxis] @ factors
    np.testing.assert_allclose(found, values, atol=1e-8)
    np.testing.assert_allclose(np.diff(found), np.diff(values), rtol=1e-5)
    assert len(bases) < 15
    assert soft_ranks.powers_of(discount, 12) is None
    assert soft_ranks.powers_of(lambda r: tf.where(r <= 9.0, 1.0 / r, 0.0), 120) is None


@pytest.mark.long
@pytest.mark.parametrize("sigma", [0.05, 1.0])
def test_the_gradient_of_soft_rank_is_stable_for_long_lists(sigma: float) -> None:
    labels, scores = RNG.integers(0, 3, (1, 200)), RNG.normal(size=(1, 200)).round(2)
    single, double = (
        value_and_gradient(losses.SoftRankLoss(sigma, dtype=dtype), labels, scores, dtype)[1]
        for dtype in ("float32", "float64")
    )
    # by powers of ranks, and by the distribution of ranks
    np.testing.assert_allclose(single, double, atol=5e-6 * np.abs(double).max())
    step = 1e-5 * RNG.normal(size=scores.shape)
    loss = losses.SoftRankLoss(sigma, dtype="float64")
    change = float(loss(labels, scores + step) - loss(labels, scores - step))
    np.testing.assert_allclose(2.0 * np.sum(double * step), change, rtol=1e-6)


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize(
    "loss", [losses.SoftRankLoss(), losses.DirectAPLoss()], ids=lambda loss: loss.name
)
def test_lists_of_200_items_train(loss: losses.ListwiseLoss) -> None:
    keras.utils.set_random_seed(3)
    features = RNG.normal(size=(24, 200, 4)).astype(np.float32)
    utility = features[..., 0] - features[..., 1] + 0.3 * RNG.normal(size=(24, 200))
    labels = (utility > 2.0).astype(np.float32)
    scores = keras.layers.Reshape([200])
    model = keras.Sequential([keras.Input([200, 4]), keras.layers.Dense(1), scores])
    measures = [metrics.NDCG(), metrics.MAP()]
    model.compile(keras.optimizers.Adam(0.1), loss=loss, metrics=measures, jit_compile=True)
    history = model.fit(features, labels, batch_size=8, epochs=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert history["ndcg"][-1] > 0.9
    assert history["map"][-1] > 0.8


@pytest.mark.sample(3)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 10.0])
def test_direct_losses_enclose_the_average_precision(epsilon: float) -> None:
    labels, scores = RNG.integers(0, 2, (200, 9)), RNG.normal(size=(200, 9))
    labels[:, :2] = [0, 1]
    ones = tf.ones_like(scores)
    args = (tf.constant(labels, tf.float64), tf.constant(scores), ones > 0.0, ones)
    above, below = (losses.DirectAPLoss(e).per_list(*args) for e in (epsilon, -epsilon))
    lacking = 1.0 - metrics.MAP(dtype="float64").per_list(*args)
    assert np.all(above >= lacking - 1e-12)
    assert np.all(below <= lacking + 1e-12)
    assert np.all(below >= 0.0)


@pytest.mark.parametrize("epsilon", [1.0, -1.0])
def test_tied_scores_part_under_the_positive_update(epsilon: float) -> None:
    loss = losses.DirectAPLoss(epsilon)
    _, grad = value_and_gradient(loss, [[0.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]], "float32")
    assert grad[0, 1] < 0.0
    assert np.all(grad[0, [0, 2]] > 0.0)


def test_rankings_without_a_metric_are_those_of_the_scores() -> None:
    labels, scores = RNG.integers(0, 2, (50, 9)), RNG.normal(size=(50, 9))
    args = (tf.constant(labels, tf.float64), tf.constant(scores), tf.ones([50, 9], tf.bool))
    lists = direct.split(*args, tf.ones([50, 9], tf.float64))
    ahead = direct.negatives_ahead(lists, 0.0).numpy()
    for y, s, found in zip(labels, scores, ahead, strict=True):
        expected = [np.sum(s[y == 0] > x) for x in sorted(s[y == 1], reverse=True)]
        np.testing.assert_array_equal(found[: len(expected)], expected)


def test_indices_and_one_hot_classes_agree() -> None:
    cosines, classes = RNG.uniform(-1, 1, (5, 4)), np.array([0, 3, 2, 1, 7])
    loss = losses.MarginSoftmaxLoss(margin.ArcFace(), dtype="float64")
    labels = np.eye(8)[classes][:, :4]  # 7 is no class
    for form in (classes, classes[:, None], classes.tolist()):
        np.testing.assert_allclose(loss(form, cosines), loss(labels, cosines))
        np.testing.assert_allclose(loss(form, cosines.tolist()), loss(labels, cosines))


def test_arcface_is_the_cosine_of_the_sum_and_falls_on() -> None:
    theta = np.linspace(0.0, math.pi, 2001)
    used = margin.ArcFace(0.5)(tf.constant(np.cos(theta))).numpy()
    before = theta <= math.pi - 0.5
    np.testing.assert_allclose(used[before], np.cos(theta + 0.5)[before], atol=1e-12)
    assert np.all(np.diff(used) < 0.0)
    for dtype in ("float32", "float64"):
        c = tf.constant([1.0, -1.0, 1.0 + 1e-6, -1.0 - 1e-6], dtype)
        with tf.GradientTape() as tape:
            tape.watch(c)
            value = margin.ArcFace(1.0)(c)
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(tape.gradient(value, c)))


def test_the_mutual_information_of_pairs_is_bounded() -> None:
    bound = losses.mutual_information_bound
    loss = losses.InBatchInfoNCELoss(dtype="float64")
    certain = loss(np.arange(8), 50.0 * np.eye(8))
    np.testing.assert_allclose(bound(certain, 8), math.log(8.0))
    np.testing.assert_allclose(bound(loss(np.arange(8), np.zeros([8, 8])), 8), 0.0, atol=1e-15)


def test_a_constant_in_log_q_changes_nothing_and_an_array_of_it_is_saved() -> None:
    similarities, items = np.random.default_rng(0).normal(size=[4, 4]), np.array([3, 0, 1, 3])
    log_q = np.array([-1.0, -3.0, 0.0, -0.5])
    expected = losses.InBatchInfoNCELoss(0.5, log_q=log_q)(items, similarities)
    shifted = losses.InBatchInfoNCELoss(0.5, log_q=log_q + 2.0)
    np.testing.assert_allclose(shifted(items, similarities), expected, rtol=1e-6)
    loaded = keras.losses.deserialize(keras.losses.serialize(shifted))
    np.testing.assert_allclose(loaded(items, similarities), expected, rtol=1e-6)


def test_another_number_of_classes_than_of_weights_is_refused() -> None:
    loss = losses.NWayPairwiseLoss(class_weights=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"class_weights=\[1.0, 2.0\], y_pred.shape=\(1, 4, 3\)"):
        loss(np.zeros([1, 4, 3]), np.zeros([1, 4, 3]))


@pytest.mark.sample(6)
@pytest.mark.parametrize("list_size", [0, 3, 40])
def test_soft_rank_is_the_same_if_the_graph_does_not_know_the_list_size(list_size: int) -> None:
    labels, scores = RNG.integers(0, 4, (3, list_size)), RNG.normal(size=(3, list_size))
    fields = [tf.constant(x, tf.float32) for x in (labels, scores)]
    found = []
    for size in (list_size, None):
        spec = tf.TensorSpec([None, size])
        loss = tf.function(losses.SoftRankLoss(), [spec, spec], autograph=False)
        with tf.GradientTape() as tape:
            tape.watch(fields[1])
            value = loss(*fields)
        found.append((value, tape.gradient(value, fields[1])))
    for known, unknown in zip(*found, strict=True):
        np.testing.assert_allclose(unknown, known, rtol=1e-5, atol=1e-7)


def test_direct_ap_takes_lists_without_items_after_others() -> None:
    loss = losses.DirectAPLoss()
    assert [float(loss(tf.ones([2, n]), tf.zeros([2, n]))) for n in (4, 7, 0, 3)] == [0.0] * 4
