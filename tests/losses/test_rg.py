import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.references import rg as reference
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

LABELS = [1.0, 0.0, 2.0, 0.0, 1.0]
LOGITS = np.array([0.9, -0.3, 0.4, -0.8, 0.1])
BASE = [1.0, 4.0, 0.5, 2.0, 1.0]


def value(make, scores, labels=LABELS, base=BASE, **arguments):
    return float(make(dtype="float64", **arguments)([labels], [scores], [base]))


def gradient(make, scores, labels, base):
    scores = tf.constant([scores], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = make(dtype="float64")([labels], scores, [base])
    return tape.gradient(loss, scores).numpy()[0]


@pytest.mark.parametrize(("make", "order"), [(losses.RG2Loss, 2), (losses.RGCrossLoss, 3)])
def test_the_difference_from_softmax_is_of_its_order(make, order):
    steps = np.array([1e-1, 1e-2, 1e-3])
    gaps = [reference.softmax(LABELS, t * LOGITS, BASE) - value(make, t * LOGITS) for t in steps]
    orders = np.diff(np.log(np.abs(gaps))) / np.diff(np.log(steps))
    np.testing.assert_allclose(orders, order, atol=0.05)


@pytest.mark.parametrize("make", [losses.RG2Loss, losses.RGCrossLoss])
def test_at_equal_logits_of_zero_it_is_softmax(make):
    zeros = np.zeros(5)
    assert value(make, zeros) == pytest.approx(reference.softmax(LABELS, zeros, BASE), rel=1e-14)
    expected = np.sum(LABELS) * np.array(BASE) / np.sum(BASE) - LABELS
    np.testing.assert_allclose(gradient(make, zeros, LABELS, BASE), expected, rtol=1e-14)


def test_rg2_bounds_rg_cross_from_above_and_alone_feels_a_shift():
    for shift in (0.0, 5.0, -300.0):
        logits = LOGITS + shift
        assert value(losses.RG2Loss, logits) >= value(losses.RGCrossLoss, logits)
        shifted = value(losses.RGCrossLoss, logits)
        assert shifted == pytest.approx(value(losses.RGCrossLoss, LOGITS), rel=1e-12)
    assert value(losses.RG2Loss, LOGITS + 5.0) > value(losses.RG2Loss, LOGITS) + 1.0


@pytest.mark.parametrize("make", [losses.RG2Loss, losses.RGCrossLoss])
def test_a_base_weight_of_two_is_a_second_item_without_gain(make):
    twice = value(make, [0.5, -0.5], labels=[1.0, 0.0], base=[1.0, 2.0])
    items = value(make, [0.5, -0.5, -0.5], labels=[1.0, 0.0, 0.0], base=[1.0, 1.0, 1.0])
    assert twice == pytest.approx(items, rel=1e-14)


@pytest.mark.long
def test_every_sample_of_negatives_together_has_the_gradient_of_the_whole_list():
    """Each pair of items, of which each stands for n / 2: their mean gradient is the list's."""
    n, logits = 6, np.linspace(-1.0, 1.0, 6)
    total = np.zeros(n)
    pairs = list(itertools.combinations(range(n), 2))
    for pair in pairs:
        chosen = list(pair)
        # no gain but on an item of no base weight, so that the loss is the expansion alone
        labels, base = [0.0, 0.0, 1.0], [n / 2, n / 2, 0.0]
        scores = [*logits[chosen], 0.0]
        total[chosen] += gradient(losses.RG2Loss, scores, labels, base)[:2]
    whole = gradient(losses.RG2Loss, [*logits, 0.0], [0.0] * n + [1.0], [1.0] * n + [0.0])[:n]
    np.testing.assert_allclose(total / len(pairs), whole, rtol=1e-12, atol=1e-14)


def test_importance_weights_undo_an_uneven_sample():
    n, draws = 50, 20000
    rng = np.random.default_rng(0)
    logits, chances = rng.normal(0.0, 0.5, n), rng.dirichlet(np.ones(n) * 5.0)
    drawn = rng.choice(n, draws, p=chances)
    base = 1.0 / (draws * chances[drawn])
    for make in (losses.RG2Loss, losses.RGCrossLoss):
        sample = value(make, [*logits[drawn], 0.3], [0.0] * draws + [1.0], [*base, 0.0])
        whole = value(make, [*logits, 0.3], [0.0] * n + [1.0], [1.0] * n + [0.0])
        assert sample == pytest.approx(whole, rel=5e-3)


def test_an_item_of_no_weight_or_a_list_of_none_is_finite():
    for make in (losses.RG2Loss, losses.RGCrossLoss):
        assert np.isfinite(value(make, LOGITS, base=[0.0, 1.0, 1.0, 1.0, 1.0]))
        assert value(make, LOGITS, base=[0.0] * 5) == 0.0
        assert np.all(gradient(make, LOGITS, LABELS, [0.0] * 5) == 0.0)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_uniform_negatives_are_an_anchor_at_zero(n):
    """The mean second-order softmax of one positive and `n` negatives, over all draws."""
    positive, items = LOGITS[0], len(LOGITS)

    def expanded(o):
        return np.log(n + 1.0) + np.mean(o) + np.mean(np.square(o)) / 2.0 - o[0]

    draws = itertools.product(LOGITS, repeat=n)
    mean = np.mean([expanded(np.array([positive, *others])) for others in draws])
    labels = [1.0, *[0.0] * (items - 1)]
    zeros = np.zeros(items)
    ours, start = (
        value(losses.RG2Loss, o, labels, np.ones(items), alpha=1.0 / n, target=0.0)
        for o in (LOGITS, zeros)
    )
    assert (ours - start) * n / (n + 1.0) == pytest.approx(mean - np.log(n + 1.0), rel=1e-12)


def test_rg2_is_no_upper_bound_of_softmax():
    labels, logits = [1.0] + [0.0] * 9, np.array([9.0] + [-1.0] * 9)  # where RG^2 is least
    ones = np.ones(10)
    least = value(losses.RG2Loss, logits, labels, ones)
    assert least == pytest.approx(np.log(10.0) - 10.0 / 2.0 + 0.5)
    assert least < 0.0 < reference.softmax(labels, logits, ones)
    near = 0.01 * np.linspace(-1.0, 1.0, 10)
    assert value(losses.RG2Loss, near, labels, ones) > reference.softmax(labels, near, ones)


def test_rg2_is_a_weighted_square_whose_target_grows_with_the_list():
    labels, items = np.array([1.0, 1.0, 0.0, 0.0, 0.0]), 5
    weight, target = 2.0 / (2.0 * items), labels * items / 2.0 - 1.0
    gaps = [
        value(losses.RG2Loss, o, labels, np.ones(items)) - weight * np.sum((o - target) ** 2)
        for o in (LOGITS, np.zeros(items), -3.0 * LOGITS)
    ]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-12)


def best_scores(make, gains, chances, base, **arguments):
    """The scores of least expected loss: item `i` has `gains[i]` by `chances[i]`, else 0."""
    outcomes = np.array(list(itertools.product([0.0, 1.0], repeat=len(gains))))
    likely = np.prod(np.where(outcomes == 1.0, chances, 1.0 - np.array(chances)), axis=1)
    loss = make(reduction="none", dtype="float64", **arguments)
    items = len(gains)

    def gradient_at(scores):
        scores = tf.constant(scores, tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            lists = [len(outcomes), 1]
            each = loss(outcomes * gains, tf.tile(scores[None], lists), np.tile(base, lists))
            expected = tf.reduce_sum(likely * each)
        return tape.gradient(expected, scores).numpy()

    # the gradient is linear
    start = gradient_at(np.zeros(items))
    slope = np.stack([gradient_at(row) - start for row in np.eye(items)])
    found = np.linalg.lstsq(slope, -start, rcond=None)[0]
    np.testing.assert_allclose(gradient_at(found), 0.0, atol=1e-12)
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("make", [losses.RG2Loss, losses.RGCrossLoss])
@pytest.mark.parametrize(
    ("gains", "alpha"), [([3.0, 1.0, 2.0, 1.0], 0.0), ([1.0, 1.0, 1.0, 1.0], 1.0)]
)
def test_the_best_scores_sort_by_expected_gain(make, gains, alpha):
    chances = [0.1, 0.29, 0.2, 0.05]
    found = best_scores(make, gains, chances, np.ones(4), alpha=alpha)
    expected = np.multiply(gains, chances)
    np.testing.assert_array_equal(np.argsort(found), np.argsort(expected))


@pytest.mark.long
def test_an_anchor_of_graded_gains_and_base_weights_change_the_order():
    gains, chances = [3.0, 1.0, 1.0, 1.0], [0.1, 0.29, 0.1, 0.1]  # the first gains most: 0.3
    anchored = best_scores(losses.RG2Loss, gains, chances, np.ones(4), alpha=1.0)
    assert anchored[0] < anchored[1]
    base = np.array([2.0, 1.0, 1.0, 1.0])
    weighted = best_scores(losses.RG2Loss, gains, chances, base)
    assert weighted[0] < weighted[1]
    expected = np.multiply(gains, chances)
    np.testing.assert_allclose(weighted + 1.0, 5.0 * expected / (base * np.sum(expected)))
