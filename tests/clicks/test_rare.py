"""What is rare, and what few rows show: labels, values and intervals stay right."""

import numpy as np
import pytest

from tfrank_sel import clicks
from tfrank_sel.clicks import pairs

PLACES = np.arange(1, 6)


def log_of(queries, sessions, chance, *, seed=0, drop=lambda session, place: False):
    """A log of random orders of five items a query: `chance(items, places)` of each click."""
    random = np.random.default_rng(seed)
    session, column = np.divmod(np.arange(queries * sessions * 5), 5)
    items = np.argsort(random.random((queries * sessions, 5)), axis=1).ravel()
    query = session // sessions
    clicked = random.random(len(items)) < chance(query * 5 + items, column)
    kept = ~np.array([drop(*x) for x in zip(session.tolist(), column.tolist(), strict=True)])
    rows = query, items, column + 1, clicked.astype(int), session
    query, items, position, clicked, session = (x[kept] for x in rows)
    return clicks.Log(query, items, position, clicked, session=session), query * 5 + items


def test_a_part_of_a_log_is_compared_as_its_rows_alone():
    attraction = np.random.default_rng(1).uniform(0.1, 0.6, 2000)
    log, items = log_of(400, 3, lambda i, k: attraction[i] / (1.0 + k))
    part = clicks.comparison.sample(log, 1500)
    rows = np.flatnonzero(np.isin(log.query_ids[log.queries], part.query_ids))
    again = clicks.Log(
        log.query_ids[log.queries[rows]],
        log.item_ids[log.items[rows]],
        log.positions[log.columns[rows]],
        log.clicks[rows],
        session=log.session_of_row[rows],
    )
    assert 1500 <= len(rows) < len(items)
    assert clicks.compare(part) == clicks.compare(again)


@pytest.mark.parametrize("correction", clicks.CORRECTIONS)
def test_labels_of_rare_clicks_are_their_rates(correction):
    rates, seen = np.array([1e-4, 4e-4, 2e-3] * 20), 1.0 / PLACES
    shown = np.full(300, 200_000)
    items, columns = np.repeat(np.arange(60), 5), np.tile(np.arange(5), 60)
    clicked = np.random.default_rng(0).binomial(shown, rates[items] * seen[columns])
    log = clicks.Log(items // 6, items, columns + 1, clicked, shown=shown)
    known = clicks.Propensities(PLACES, seen, seen, seen, "known")
    label = clicks.labels(log, known, correction)["label"].reshape(20, 3).mean(axis=0)
    np.testing.assert_allclose(label, rates[:3], rtol=0.1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", clicks.METHODS)
def test_a_rare_position_harms_no_other(method):
    attraction = np.random.default_rng(1).uniform(0.2, 0.7, 300)

    def chance(items, columns):
        return attraction[items] / (1.0 + columns)

    def rare_last(session, column):
        return column == 4 and session >= 3

    without, _ = log_of(60, 8, chance, drop=lambda session, column: column == 4)
    with_it, items = log_of(60, 8, chance, drop=rare_last)
    first, found = (clicks.estimate(x, method, resamples=100) for x in (without, with_it))
    assert found.method == first.method
    # other sessions have other resamples
    for ends, within in (("low", 0.04), ("values", 0.02), ("high", 0.04)):
        np.testing.assert_allclose(
            getattr(found, ends)[:4], getattr(first, ends), rtol=0.1, atol=within
        )
    value = clicks.reordered(with_it, found, attraction[items])["new"]
    assert value.high - value.low < 0.5


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", clicks.METHODS)
def test_a_rare_first_position_has_finite_intervals(method, tmp_path):
    attraction = np.random.default_rng(1).uniform(0.2, 0.7, 300)
    log, _ = log_of(
        60,
        3,
        lambda items, columns: attraction[items] / (1.0 + columns),
        drop=lambda session, column: column == 0 and session >= 3,
    )
    found = clicks.estimate(log, method, resamples=10)
    assert np.isfinite([found.low, found.high]).all()
    assert (found.low <= found.high).all()
    found.save(tmp_path / "p.json")
    np.testing.assert_array_equal(clicks.Propensities.load(tmp_path / "p.json").low, found.low)


@pytest.mark.parametrize("queries", [1, 10])
def test_intervals_of_few_queries_hold_the_value(queries):
    attraction = np.random.default_rng(1).uniform(0.1, 0.9, 50)
    seen = 1.0 / PLACES
    known = clicks.Propensities(PLACES, seen, seen, seen, "known")
    best = np.sort(attraction[: queries * 5].reshape(-1, 5), axis=1)[:, ::-1] @ seen
    covered = 0
    for seed in range(40):
        log, items = log_of(
            queries, 400 // queries, lambda i, k: attraction[i] * seen[k], seed=seed
        )
        new = clicks.reordered(log, known, attraction[items])["new"]
        covered += new.low <= best.mean() <= new.high
    assert covered >= 34


def read_in_turn(random, attracts, satisfies, going, orders):
    """Clicks of users who read from the top, and leave when satisfied or by chance."""
    clicked = np.zeros(orders.shape, int)
    for session, order in enumerate(orders):
        for place, item in enumerate(order):
            clicked[session, place] = random.random() < attracts[item]
            if clicked[session, place] and random.random() < satisfies[item]:
                break
            if random.random() > going:
                break
    return clicked


@pytest.mark.parametrize("model", ["dcm", "dbn"])
def test_values_of_readers_have_no_bias_of_the_prior(model):
    random, going = np.random.default_rng(0), 0.85 if model == "dbn" else 1.0
    attracts = random.beta(1.0, 4.0, 1200)
    satisfies = random.uniform(0.2, 0.8, 1200) if model == "dbn" else np.full(1200, 0.6)
    orders = (
        np.argsort(random.random((1800, 8)), axis=1) + 8 * np.repeat(np.arange(150), 12)[:, None]
    )
    clicked = read_in_turn(random, attracts, satisfies, going, orders)
    scores = attracts + random.normal(0.0, 0.02, 1200)
    sorted_orders = np.take_along_axis(orders, np.argsort(-scores[orders], axis=1), axis=1)

    def expected(orders):
        """Clicks per session, over all that users may do."""
        a, leaves = attracts[orders], 1.0 - attracts[orders] * satisfies[orders]
        examined = np.cumprod(going * leaves[:, :-1], axis=1)
        return a[:, 0].mean() + (a[:, 1:] * examined).sum(axis=1).mean()

    true = expected(sorted_orders) - expected(orders)
    log = clicks.Log(
        orders.ravel() // 8,
        orders.ravel(),
        np.tile(np.arange(1, 9), len(orders)),
        clicked.ravel(),
        session=np.repeat(np.arange(len(orders)), 8),
    )
    ones = np.ones(8)
    known = clicks.Propensities(np.arange(1, 9), ones, ones, ones, model)
    found = clicks.reordered(log, known, scores[orders.ravel()])["difference"]
    # shrunken attractions would be worth a tenth of it
    assert found.low >= 0.5 * true - 0.05
    assert abs(found.value - true) < 0.25 * true + 0.01


ARGUMENTS = {
    "estimate": {"resamples": 3, "seed": 1},
    **{
        f"labels, {x}": {"false_clicks": 0.05, "least": 0.9, "regression": 0.5}
        for x in clicks.CORRECTIONS
    },
    **{f"reordered, {x}": {"least": 0.5, "seed": 1} for x in ("ips", "doubly_robust")},
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("use", ARGUMENTS)
@pytest.mark.parametrize("method", clicks.MODELS)
def test_an_argument_changes_the_result_or_is_refused(method, use):
    attraction = np.random.default_rng(1).uniform(0.2, 0.7, 150)
    log, items = log_of(30, 8, lambda i, k: attraction[i] / (1.0 + k))
    ends, (function, _, correction) = 1.0 / PLACES, use.partition(", ")
    known = clicks.Propensities(PLACES, ends, ends, ends, method)

    def result(**arguments):
        if function == "estimate":
            return clicks.estimate(log, method, **{"resamples": 2, **arguments}).draws.tolist()
        if function == "labels":
            return clicks.labels(log, known, correction, **arguments)["label"].tolist()
        return clicks.reordered(log, known, attraction[items], correction, **arguments)

    def changes(name, value):
        # without `least`, an estimate cancels
        others = {"least": 0.9} if (name, correction) == ("regression", "doubly_robust") else {}
        try:
            return result(**others, **{name: value}) != result(**others)
        except ValueError as error:
            return f"`{name}` must be" in str(error)

    same = [name for name, value in ARGUMENTS[use].items() if not changes(name, value)]
    are_ones = method == "none" and use == "estimate"  # whatever the seed of the draws
    assert same == ["seed"] * are_ones
    if function == "reordered" and method not in ("additive", *clicks.models.READING):
        same = clicks.reordered(log, known, np.zeros(len(items)), correction, least=0.5)
        assert (same["difference"].low, same["difference"].high) == (0.0, 0.0)


def test_additive_users_of_positions_that_nothing_connects_are_told():
    attraction = np.random.default_rng(1).uniform(0.2, 0.7, 50)
    query, item = np.repeat(np.arange(10), 50), np.tile(np.arange(5), 100)
    column = item.copy()
    is_swapped = np.repeat(np.random.default_rng(0).random(100) < 0.5, 5)
    column[is_swapped & (item < 2)] = 1 - item[is_swapped & (item < 2)]
    chance = attraction[query * 5 + item] / (1.0 + column)
    clicked = np.random.default_rng(0).binomial(200, chance)
    log = clicks.Log(query, item, column + 1, clicked, shown=np.full(500, 200))
    with pytest.warns(UserWarning, match="no clicked item connects positions 3, 4, 5"):
        found = clicks.estimate(log, "additive", resamples=5)
    np.testing.assert_allclose(found.values[2:], found.values[1])


def test_a_resample_without_a_click_at_a_position_says_nothing_of_it():
    log = clicks.Log(
        ["q"] * 6, list("ab") * 3, [1, 1, 2, 2, 3, 3], [40, 20, 20, 10, 1, 0], shown=[100] * 6
    )
    [one, other] = pairs.all_pairs(log, [np.ones(6), [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]])
    assert np.isfinite(one).all()
    np.testing.assert_allclose(other[:2] / other[0], [1.0, 0.5])
    assert np.isnan(other[2])
