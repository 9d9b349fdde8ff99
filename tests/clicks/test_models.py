"""Click models: parameters of simulated logs, and likelihoods by enumeration of hidden states."""

import itertools
import re

import numpy as np
import pytest

from tfrank_sel import clicks

SIZE, GOING = 5, 0.8
RANDOM = np.random.default_rng(0)
ATTRACTION, SATISFACTION = RANDOM.uniform(0.2, 0.7, (2, SIZE))
BY_PLACE = np.linspace(0.7, 0.2, SIZE)  # satisfaction by position
EXAMINATION = 0.9 / np.arange(1, SIZE + 1)
AFTER_CLICK = 0.9 ** np.arange(SIZE)[:, None] * np.linspace(1.0, 0.4, SIZE + 1)


EFFECT = np.array([0.5, 0.0, -1.0, -1.5, -2.0])  # of positions on the log-odds
ALONE = ("none", "pbm", "additive", "ubm")  # a place is examined whatever users think of others


def chance(model, place, last, item):
    """Probability of a click, where `last` is the place of the last click from 1, or 0."""
    a = ATTRACTION[item]
    if model == "additive":
        return 1.0 / (1.0 + (1.0 - a) / a * np.exp(-EFFECT[place]))
    examined = {"none": 1.0, "pbm": EXAMINATION[place], "ubm": AFTER_CLICK[place, last]}
    return examined[model] * a


def reading(model, items):
    """Probabilities that a click satisfies, by place, and of reading on."""
    satisfies = {"dbn": SATISFACTION[items], "dcm": BY_PLACE, "cascade": np.ones(SIZE)}[model]
    return satisfies, GOING if model == "dbn" else 1.0


def simulated(model, sessions):
    random = np.random.default_rng(1)
    items = np.stack([random.permutation(SIZE) for _ in range(sessions)])
    found = np.zeros(items.shape, int)
    for order, clicked in zip(items, found, strict=True):
        last, is_reading = 0, True
        for k, item in enumerate(order):
            alone = chance(model, k, last, item) if model in ALONE else ATTRACTION[item]
            clicked[k] = is_reading and random.random() < alone
            last = k + 1 if clicked[k] else last
            if model not in ALONE:
                satisfies, going = reading(model, order)
                stays = not (clicked[k] and random.random() < satisfies[k])
                is_reading = is_reading and stays and random.random() < going
    return items, found


def probability(model, items, clicked):
    """Probability of the clicks of a session: a sum over where the user stops."""
    a = ATTRACTION[items]
    if model in ALONE:
        last, found = 0, 1.0
        for k in range(SIZE):
            p = chance(model, k, last, items[k])
            found *= p if clicked[k] else 1.0 - p
            last = k + 1 if clicked[k] else last
        return found
    satisfies, going = reading(model, items)
    total = 0.0
    for end in range(SIZE):  # the last place that is read
        if any(clicked[end + 1 :]):
            continue
        found = 1.0
        for k in range(end + 1):
            found *= a[k] if clicked[k] else 1.0 - a[k]
            on = going * (1.0 - satisfies[k] * clicked[k])
            found *= on if k < end else 1.0 if end == SIZE - 1 else 1.0 - on
        total += found
    return total


def log_of(items, clicked):
    session = np.repeat(np.arange(len(items)), SIZE)
    position = np.tile(np.arange(1, SIZE + 1), len(items))
    return clicks.Log(session * 0, items.ravel(), position, clicked.ravel(), session=session)


@pytest.mark.sample(9)
@pytest.mark.parametrize("model", clicks.MODELS)
def test_the_model_of_a_log_is_named_with_the_likelihood_of_its_parameters(model):
    patterns = list(itertools.product((0, 1), repeat=SIZE))
    total = sum(probability(model, np.arange(SIZE), x) for x in patterns)
    assert total == pytest.approx(1.0)
    items, clicked = simulated(model, 12_000)
    log = log_of(items, clicked)
    found = clicks.compare(log)
    by_name = {fit.model: fit for fit in found}
    drawn = np.random.default_rng(0).random(len(items)) < 0.2
    held = drawn[log.session_of_row[::SIZE]]
    truth = np.mean(
        [np.log(probability(model, *one)) for one in zip(items[held], clicked[held], strict=True)]
    )
    assert by_name[model].log_likelihood == pytest.approx(truth, abs=4e-3)
    assert by_name[model].log_likelihood > found[0].log_likelihood - 2e-3
    assert by_name[model].perplexity == pytest.approx(np.exp(-by_name[model].log_likelihood / SIZE))
    wrong = "cascade" if model in ALONE else "pbm"
    assert found[0].log_likelihood - by_name[wrong].log_likelihood > 0.02
    estimated = clicks.estimate(log, resamples=1)
    like = {"ubm": "pbm", "cascade": "dcm"}.get(model, model)
    assert like in {estimated.method, *estimated.others}


@pytest.mark.sample(3)
@pytest.mark.parametrize("model", clicks.MODELS)
def test_propensities_are_the_mean_examinations_of_the_simulation(model):
    items, clicked = simulated(model, 12_000)
    estimated = clicks.estimate(log_of(items, clicked), model, resamples=1)
    if model in ALONE:  # of all items at the position, relative to the first
        above = np.maximum.accumulate(clicked * np.arange(1, SIZE + 1), axis=1)
        above = np.pad(above, [(0, 0), (1, 0)])[:, :-1]
        everything = np.arange(SIZE)[:, np.newaxis]
        truth = [np.mean(chance(model, k, above[:, k], everything)) for k in range(SIZE)]
        truth = np.array(truth) / truth[0]
    else:
        stays = np.ones([len(items), SIZE])
        for i, order in enumerate(items):
            satisfies, going = reading(model, order)
            stays[i, 1:] = going * (1.0 - satisfies * ATTRACTION[order])[:-1]
        truth = np.cumprod(stays, axis=1).mean(axis=0)
    np.testing.assert_allclose(estimated.values, truth, rtol=0.05, atol=0.01)


def test_items_and_places_that_were_not_fitted_have_a_likelihood():
    items, clicked = simulated("dbn", 40)
    log = log_of(items, clicked)
    mixed = clicks.Log(
        np.arange(log.items.size) // SIZE % 7,
        log.items,
        log.columns + 1,
        log.clicks,
        session=np.arange(log.items.size) // SIZE,
    )
    for fit in clicks.compare(mixed, held_out=0.5):
        assert -50.0 < fit.log_likelihood < 0.0
        assert fit.perplexity > 1.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"models": ["all_pairs"]}, "`models` must be of none, pbm, additive, ubm, cascade, dcm"),
        ({"held_out": 1.0}, "`held_out` must be above 0 and below 1. Received: 1.0"),
        ({"held_out": 1e-9}, "`held_out` must leave sessions on both sides. Received: 1e-09"),
    ],
    ids=str,
)
def test_a_bad_comparison_is_refused(wrong, message):
    log = log_of(*simulated("pbm", 10))
    with pytest.raises(ValueError, match=re.escape(message)):
        clicks.compare(log, **wrong)
    counts = clicks.Log(["q"] * 2, ["a", "b"], [1, 2], [3, 1], shown=[5, 5], session=[0, 1])
    with pytest.raises(ValueError, match="`shown` must be 1 in a log with sessions"):
        clicks.compare(counts, ["dcm"], held_out=0.5)
