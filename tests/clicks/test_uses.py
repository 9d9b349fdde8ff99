import dataclasses
import itertools
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import clicks, losses
from tfrank_sel.data import synthetic

LABELS = [np.random.default_rng(i).integers(0, 5, 8).astype(float) for i in range(30)]


@pytest.mark.sample(6)
@pytest.mark.parametrize("correction", clicks.CORRECTIONS)
@pytest.mark.parametrize("model", ["pbm", "trust"])
def test_corrected_labels_are_the_attractions_of_the_simulation(model, correction):
    columns = synthetic.sessions(LABELS, 60_000, model=model, temperature=1.0, eta=0.7, seed=1)
    log, place = clicks.Log.of(columns), columns["position"]
    slope, false = columns["propensity"], np.zeros(len(place))
    if model == "trust":
        false = slope * 0.65 / place
        slope = slope * (0.99 - 0.01 * place) - false
        keep = place > 1  # the first position has the least slope; both rules are general
        assert (slope[keep] > 0.0).all()
    made = clicks.labels(log, slope, correction, false_clicks=false)
    truth = np.zeros(log.num_items)
    truth[log.items] = columns["attraction"]
    naive = clicks.labels(log, np.ones(len(place)), "ips")["label"]
    error, naive_error = (np.abs(x - truth).mean() for x in (made["label"], naive))
    assert error < 0.05 < naive_error


@pytest.mark.sample(9)
@pytest.mark.parametrize("correction", ["pooled", "doubly_robust"])
@pytest.mark.parametrize("model", ["cascade", "dcm", "dbn", "ubm"])
def test_labels_of_sessions_are_of_the_items_that_each_user_examined(model, correction):
    columns = synthetic.sessions(LABELS, 20_000, model="cascade", temperature=1.0, seed=1)
    log = clicks.Log.of(columns, session="session")
    truth = np.zeros(log.num_items)
    truth[log.items] = columns["attraction"]
    estimated = clicks.estimate(log, model, resamples=1)
    means = estimated.at(columns["position"])
    error, error_by_means = (
        np.abs(clicks.labels(log, x, correction)["label"] - truth).mean()
        for x in (estimated, means)
    )
    assert error < 0.8 * error_by_means


def test_the_pooled_label_of_a_cascade_is_that_of_the_items_read():
    # half of the users leave at the first item, and the others read on
    session = np.repeat(np.arange(4000), 2)
    items, places = np.tile([0, 1], 4000), np.tile([1, 2], 4000)
    clicked = np.where(session % 2 == 0, places == 1, places == 2)
    log = clicks.Log(items * 0, items, places, clicked, session=session)
    made = clicks.labels(log, clicks.estimate(log, "cascade", resamples=1))["label"]
    np.testing.assert_allclose(made, [0.5, 1.0], rtol=0.02)  # item 1 is read by half of the users


@pytest.mark.long
def test_clipping_biases_a_doubly_robust_label_less():
    columns = synthetic.sessions(LABELS, 60_000, temperature=1.0, eta=1.5, seed=2)
    log = clicks.Log.of(columns)
    truth = np.zeros(log.num_items)
    truth[log.items] = columns["attraction"]
    errors = [
        np.abs(clicks.labels(log, columns["propensity"], how, least=0.4)["label"] - truth).mean()
        for how in ("ips", "doubly_robust")
    ]
    assert errors[1] < 0.5 * errors[0]


def test_a_perfect_regression_is_kept_and_few_effective_clicks_are_warned_of():
    log = clicks.Log(["q"] * 2, ["a", "b"], [1, 2], [30, 6], shown=[100, 100])
    made = clicks.labels(log, [1.0, 0.1], "doubly_robust", regression=[0.3, 0.6])
    np.testing.assert_allclose(made["label"], [0.3, 0.6])
    rare = clicks.Log(["q"] * 2, ["a", "b"], [1, 2], [1000, 1], shown=[1000, 1000])
    with pytest.warns(UserWarning, match="effective sample of 4 of 1001 clicks"):
        clicks.labels(rare, [1.0, 0.001], "doubly_robust")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clicks.labels(rare, [1.0, 0.001], "doubly_robust", least=0.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"propensities": [1.0, 0.0]}, "`propensities` must be above 0 and at most 1"),
        ({"propensities": [1.0, 1.1]}, "`propensities` must be above 0 and at most 1"),
        ({"propensities": [1.0] * 3}, "`propensities` must have a value for each of 2 rows"),
        ({"correction": "best"}, "`correction` must be one of ips, pooled, doubly_robust"),
        ({"least": 2.0}, "`least` must be from 0 to 1. Received: 2.0"),
    ],
    ids=str,
)
def test_a_bad_correction_is_refused(wrong, message):
    log = clicks.Log(["q"] * 2, ["a", "b"], [1, 2], [1, 0])
    with pytest.raises(ValueError, match=re.escape(message)):
        clicks.labels(log, **{"propensities": [1.0, 0.5], **wrong})


@pytest.mark.parametrize("correction", ["ips", "doubly_robust"])
def test_the_expected_loss_of_corrected_labels_is_that_of_the_relevance(correction):
    relevance = np.array([0.9, 0.3, 0.6])
    items, places = np.array([0, 1, 2, 1, 0, 2]), np.array([1, 2, 3, 1, 3, 2])
    examined = 1.0 / places
    patterns = np.array(list(itertools.product((0, 1), repeat=len(items))))
    clicked = examined * relevance[items]
    weights = np.where(patterns > 0, clicked, 1.0 - clicked).prod(axis=1)
    by_correction = {"doubly_robust": {"regression": np.array([0.2, 0.5, 0.1])[items]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few clicks
        labels = np.stack(
            [
                clicks.labels(
                    clicks.Log(items * 0, items, places, x),
                    examined,
                    correction,
                    **by_correction.get(correction, {}),
                )["label"]
                for x in patterns
            ]
        )
    np.testing.assert_allclose(weights @ labels, relevance, rtol=1e-12)
    linear = losses.SoftmaxLoss(targets=losses.targets.Gains(), reduction="sum", dtype="float64")
    found = []
    for y, weight in ((labels, weights), (relevance[None], np.ones(1))):
        scores = tf.constant(np.tile([0.3, -1.0, 2.0], (len(y), 1)))
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = linear(tf.constant(y), scores, tf.constant(weight))
        found.append([value.numpy(), *tape.gradient(value, scores).numpy().sum(axis=0)])
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("false", [0.0, 0.05])
def test_pooled_labels_are_posterior_means_and_shares_of_many_impressions(false):
    random = np.random.default_rng(0)
    truth = random.beta(1.0, 6.0, 4000)
    seen = np.tile([1.0, 0.4], 4000)
    for shown, largest in ((3, 0.11), (3000, 0.02)):
        counts = np.full(8000, shown)
        clicked = random.binomial(counts, np.repeat(truth, 2) * seen + false)
        places = np.tile([1, 2], 4000)
        log = clicks.Log(places * 0, np.repeat(np.arange(4000), 2), places, clicked, shown=counts)
        made = clicks.labels(log, seen, false_clicks=false)["label"]
        plain = clicks.labels(log, seen, "ips", false_clicks=false)["label"]
        assert np.sqrt(np.mean((made - truth) ** 2)) < largest
        assert np.mean((made - truth) ** 2) <= 1.05 * np.mean((plain - truth) ** 2)
        assert made.mean() == pytest.approx(truth.mean(), rel=0.05)


@pytest.mark.sample(9)
@pytest.mark.parametrize("estimator", clicks.ESTIMATORS)
def test_intervals_cover_the_value_of_another_policy(estimator):
    random = np.random.default_rng(0)
    logging, new = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    means = np.array([0.2, 0.5, 0.7])
    covered = 0
    for seed in range(100):
        action = random.choice(3, 500, p=logging)
        reward = (random.random(500) < means[action]).astype(float)
        guess = means + 0.1
        found = clicks.value(
            reward,
            logging[action],
            new[action],
            estimator,
            predicted=guess[action],
            predicted_target=float(new @ guess),
            resamples=200,
            seed=seed,
        )
        covered += found.low <= new @ means <= found.high
        assert found.effective < 500
    assert covered >= 88


@pytest.mark.sample(6)
@pytest.mark.parametrize("correction", ["ips", "doubly_robust"])
def test_the_value_of_a_new_order_is_that_of_the_simulation(correction):
    columns = synthetic.sessions(LABELS, 40_000, temperature=1.0, seed=3)
    log, truth = clicks.Log.of(columns, session="session"), columns["attraction"]
    known = 1.0 / np.arange(1.0, 9.0)
    propensities = clicks.Propensities(log.positions, known, known, known, "known")
    found = clicks.reordered(log, propensities, truth, correction)
    best = (np.sort(truth.reshape(-1, 8), axis=1)[:, ::-1] * known).sum(axis=1).mean()
    assert found["new"].low < best < found["new"].high
    clicked = log.clicks.sum() / 40_000
    assert found["logged"].value == pytest.approx(clicked)
    assert found["difference"].value == pytest.approx(found["new"].value - clicked)
    assert found["difference"].low > 0.0
    assert found["new"].effective < len(truth)
    worst = clicks.reordered(log, propensities, -truth, correction)
    assert worst["difference"].high < 0.0
    with pytest.raises(ValueError, match="`scores` must have a value for each of 320000 rows"):
        clicks.reordered(log, propensities, [1.0])
    with pytest.raises(ValueError, match="`correction` must be one of ips, doubly_robust"):
        clicks.reordered(log, propensities, truth, "pooled")


@pytest.mark.sample(9)
@pytest.mark.parametrize("method", ["auto", *clicks.MODELS])
def test_the_same_order_has_the_same_value_to_the_last_digit(method):
    columns = synthetic.sessions(LABELS, 3000, temperature=1.0, seed=3)
    log = clicks.Log.of(columns, session="session")
    estimated = clicks.estimate(log, method, resamples=5)
    same = clicks.reordered(log, estimated, np.zeros(len(log.clicks)))
    by_model = dict.fromkeys((x.method for x in estimated.each()), 0.0)
    assert same["difference"] == clicks.Value(0.0, 0.0, 0.0, len(log.clicks), by_model)
    assert same["new"].value == same["logged"].value == pytest.approx(log.clicks.sum() / 3000)


def test_propensities_that_are_uncertain_widen_the_interval_of_a_value():
    columns = synthetic.sessions(LABELS, 4000, temperature=1.0, seed=3)
    log = clicks.Log.of(columns, session="session")
    estimated = clicks.estimate(log, "pbm")
    found = [
        clicks.reordered(log, x, columns["attraction"])["new"]
        for x in (estimated, dataclasses.replace(estimated, draws=np.zeros((0, 0))))
    ]
    assert found[0].high - found[0].low > 1.005 * (found[1].high - found[1].low)


def test_items_of_a_session_take_its_positions():
    log = clicks.Log([0] * 5, [1, 2, 3, 1, 2], [2, 5, 9, 2, 9], [1] * 5, session=[0, 0, 0, 1, 1])
    known = np.array([1.0, 0.5, 0.1])
    propensities = clicks.Propensities(log.positions, known, known, known, "known")
    found = clicks.reordered(log, propensities, [1.0, 3.0, 2.0, 1.0, 2.0])
    first, second, third = 2.0 / 2.0, 2.0 / 0.6, 1.0 / 0.1  # clicks by examinations
    expected = 0.1 * first + second + 0.5 * third + 0.1 * first + second
    assert found["new"].value == pytest.approx(expected / 2)
    alone = clicks.Log([0] * 2, [1, 2], [1, 2], [1, 0], session=[0, 0])
    with pytest.raises(ValueError, match="`session` must have at least two values"):
        clicks.reordered(alone, propensities.nearest(alone.positions), [1.0, 2.0])


def test_bad_values_are_refused():
    for wrong, message in (
        ({"logged": [0.0, 1.0]}, "`logged` must be above 0 and at most 1. Received: 0.0"),
        ({"target": [0.5, 2.0]}, "`target` must be from 0 to 1"),
        ({"target": [0.5]}, "`target` must have the shape of `reward`"),
        ({"estimator": "dm"}, "`estimator` must be one of ips, snips, doubly_robust"),
    ):
        given = {"reward": [1.0, 0.0], "logged": [0.5, 0.5], "target": [0.5, 0.5], **wrong}
        with pytest.raises(ValueError, match=re.escape(message)):
            clicks.value(**given)
