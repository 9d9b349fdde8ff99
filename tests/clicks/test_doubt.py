"""Models of users that may be right: which remain, and what they make of labels and values."""

import dataclasses
import warnings

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from tfrank_sel import clicks
from tfrank_sel.clicks.__main__ import app
from tfrank_sel.clicks.comparison import choose

ITEMS, PLACES, QUERIES = 12, 6, 60
PLACES_FROM_1 = np.arange(1, PLACES + 1)
EXAMINED = np.array([0.9, 0.6, 0.4, 0.3, 0.2, 0.15])


def rows_of(users, sessions=4000, seed=0):
    """Columns of a log: `users(attraction, place, above, eye)` is the chance of each click."""
    random = np.random.default_rng(seed)
    attraction, eye = random.beta(1.0, 3.0, (QUERIES, ITEMS)), random.normal(size=(QUERIES, ITEMS))
    query = random.integers(QUERIES, size=sessions)
    noisy = attraction[query] + 0.3 * random.gumbel(size=(sessions, ITEMS))
    item = np.argsort(-noisy, axis=1)[:, :PLACES]
    clicked, above = np.zeros(item.shape), np.zeros(sessions)
    for k in range(PLACES):
        at = query, item[:, k]
        clicked[:, k] = random.random(sessions) < users(attraction[at], k, above, eye[at])
        above = np.maximum(above, clicked[:, k])
    return {
        "query": np.repeat(query, PLACES),
        "item": item.ravel(),
        "position": np.tile(PLACES_FROM_1, sessions),
        "click": clicked.ravel().astype(int),
        "session": np.repeat(np.arange(sessions), PLACES),
    }


def by_position(attraction, place, above, eye):
    return attraction * EXAMINED[place]


def without_bias(attraction, place, above, eye):
    return attraction * 0.8


def distracted(attraction, place, above, eye):
    """Sees what catches the eye, and less after a click."""
    return attraction / (1.0 + np.exp(-2.0 + 0.7 * place - 1.5 * eye + 2.0 * above))


def by_device(steep, sessions=6000):
    """A log of two devices, the first of which has its own effects of positions if it is steep."""
    random = np.random.default_rng(0)
    device = random.integers(2, size=sessions)
    columns = rows_of(
        lambda a, k, above, eye: a * EXAMINED[k] * (1.0 + k) ** (-steep * device), sessions
    )
    device = device[columns["session"]]
    return columns | {"device": np.array(["phone", "desktop"])[device]}


@pytest.mark.parametrize("steep", [0.0, 0.6])
def test_groups_in_which_positions_have_other_effects_are_told(steep, tmp_path):
    columns = by_device(steep)
    log = clicks.Log.of(columns, group="device")
    assert (
        clicks.Log(*map(columns.get, ("query", "item", "position", "click"))).group_of_row.sum()
        == 0
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        clicks.estimate(log, resamples=2)
        file, output = tmp_path / "log.parquet", tmp_path / "train.parquet"
        parquet.write_table(pa.table(columns), file)
        done = CliRunner().invoke(
            app, ["correct", str(file), "--output", str(output), "--group", "device"]
        )
    assert done.exit_code == 0, done.output
    told = "positions have other effects in some groups than in others"
    assert any(told in str(x.message) for x in warned) == (told in done.output) == (steep > 0.0)
    assert "device" in parquet.read_schema(output).names
    # a group of few rows at one position hides nothing
    some = np.where((columns["position"] == 1) & (columns["session"] < 40), "tv", columns["device"])
    for group in (columns["device"], some):
        log = clicks.Log.of(columns | {"device": group}, group="device")
        [fit] = clicks.compare(log, ["pbm"])
        assert (fit.fits_groups < 0.05) == (steep > 0.0)
    command = ["correct", str(file), "--output", f"{output}2", "--group", "device"]
    refused = CliRunner().invoke(app, [*command, "--method", "pbm"])
    assert "--group requires --method auto" in refused.output


def test_names_and_the_order_of_sessions_are_no_seed():
    columns = rows_of(by_position, 600)
    order = np.random.default_rng(1).permutation(600)
    mixed = (order[:, np.newaxis] * PLACES + np.arange(PLACES)).ravel()
    others = {name: values[mixed] for name, values in columns.items()}
    others["session"] = np.array([f"s{x}"[::-1] for x in others["session"]])
    values = []
    for x in (columns, others):
        log = clicks.Log.of(x, session="session")
        estimated = clicks.estimate(log, resamples=5)
        values += [(estimated, clicks.reordered(log, estimated, -x["item"])["difference"])]
    (first, one), (second, other) = values
    assert first.reason == second.reason
    np.testing.assert_allclose(first.draws, second.draws, rtol=1e-5)
    np.testing.assert_allclose([one.low, one.high], [other.low, other.high], rtol=1e-6)


def test_users_of_a_model_have_it_or_one_that_is_level_and_ties_are_for_the_simpler():
    log = clicks.Log.of(rows_of(by_position, 10_000), session="session")
    compared = clicks.compare(log)
    assert choose(compared)[0] == "pbm"
    assert {*choose(compared)} <= {"pbm", "ubm", "additive"}
    assert compared[0].fits > 0.05
    assert clicks.estimate(clicks.Log.of(rows_of(without_bias)), resamples=2).method == "none"


@pytest.fixture(scope="module")
def doubted():
    log = clicks.Log.of(rows_of(distracted, 6000), session="session")
    return log, clicks.estimate(log, resamples=10)


def test_users_of_no_model_are_of_all_that_explain_half(doubted):
    log, estimated = doubted
    compared = clicks.compare(log)
    none = next(fit for fit in compared if fit.model == "none")
    assert compared[0].fits < 0.05
    explain_half = {x.model for x in compared if x.behind < 0.5 * none.behind}
    assert len(estimated.others) >= 2
    assert explain_half - {"ubm", "cascade"} <= {estimated.method, *estimated.others}
    assert all(name in estimated.reason for name in estimated.others)
    for values in estimated.others.values():
        assert np.all((estimated.low <= values) & (values <= estimated.high))


def test_labels_are_the_mean_of_the_models_that_may_be_right(doubted):
    log, estimated = doubted
    each = [clicks.labels(log, x)["label"] for x in estimated.each()]
    assert len(each) == 1 + len(estimated.others)
    np.testing.assert_allclose(clicks.labels(log, estimated)["label"], np.mean(each, axis=0))
    columns = rows_of(distracted, 600)
    del columns["session"]
    without, ends = clicks.Log.of(columns), EXAMINED / EXAMINED[0]
    alone = clicks.Propensities(PLACES_FROM_1, ends, ends, ends, "pbm")
    joined = dataclasses.replace(alone, others={"dbn": ends})  # which needs sessions
    labels = [clicks.labels(without, x)["label"] for x in (alone, joined)]
    np.testing.assert_array_equal(*labels)


def test_a_value_joins_those_of_the_models_that_may_be_right(doubted):
    log, estimated = doubted
    scores = -log.items
    joined = clicks.reordered(log, estimated, scores)["difference"]
    alone = clicks.reordered(log, next(estimated.each()), scores)["difference"]
    each = joined.by_model
    assert [*each] == [estimated.method, *estimated.others]
    assert joined.value == alone.value == each[estimated.method]
    for other in [*estimated.each()][1:]:
        found = clicks.reordered(log, other, scores)["difference"]
        assert each[other.method] == pytest.approx(found.value)
    assert joined.low == pytest.approx(alone.low - alone.value + min(each.values()))
    assert joined.high == pytest.approx(alone.high - alone.value + max(each.values()))
