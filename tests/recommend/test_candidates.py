"""Retrievers beside loops over histories, and features beside single pairs."""

import collections

import numpy as np
import pandas as pd
import pytest

from tests.recommend.made import QUICK, taken
from tfrank_sel.data import Sequences
from tfrank_sel.models.als import RGFactorizer
from tfrank_sel.recommend import (
    Encoder,
    Factors,
    Neighbours,
    Popular,
    Successors,
    candidates,
    pairs,
)
from tfrank_sel.recommend.columns import ItemColumns, UserColumns
from tfrank_sel.recommend.scores import Products, weigh

TAKEN = taken()
HISTORIES = [TAKEN.items[TAKEN.users == user] - 1 for user in range(len(TAKEN.user_ids))]
EACH = (*QUICK, Encoder(count=9, num_factors=8, max_length=5, epochs=2))
SHAPE = len(TAKEN.user_ids), len(TAKEN.item_ids)
ALL = tuple(np.indices(SHAPE).reshape(2, -1))


def values(source, name, histories=TAKEN):
    return source.scores(histories)[name].at(*ALL).reshape(SHAPE)


def test_successors_are_counted_as_the_formula_says():
    source = Successors(decay=0.6, reach=3, back=0.3).fit(TAKEN)
    follow = collections.Counter(
        (history[at], gap, history[at + gap])
        for history in HISTORIES
        for gap in (1, 2, 3)
        for at in range(len(history) - gap)
    )
    expected = np.zeros(SHAPE)
    for user, history in enumerate(HISTORIES):
        for n, a in enumerate(history[::-1][:3]):
            for b in range(SHAPE[1]):
                for gap in (1, 2, 3):
                    counts = follow[a, gap, b] + 0.3 * follow[b, gap, a]
                    expected[user, b] += 0.6 ** (n + gap - 1) * counts
    np.testing.assert_allclose(values(source, "soft"), expected, rtol=1e-5)
    last = [[follow[history[-1], 1, b] for b in range(SHAPE[1])] for history in HISTORIES]
    np.testing.assert_array_equal(values(source, "next"), last)
    second = [[follow[history[-2], 2, b] for b in range(SHAPE[1])] for history in HISTORIES]
    np.testing.assert_array_equal(values(source, "second"), second)
    before = [[follow[b, 1, history[-1]] for b in range(SHAPE[1])] for history in HISTORIES]
    np.testing.assert_array_equal(values(source, "before"), before)
    total = [sum(follow[a, 1, b] for a in range(SHAPE[1])) for b in range(SHAPE[1])]
    share = np.array(last) / (np.array(total) + 1.0)
    np.testing.assert_allclose(values(source, "share"), share, rtol=1e-6)


@pytest.mark.parametrize(("latest", "links"), [(100, 500), (3, 500), (100, 4)])
def test_neighbours_are_the_cosines_of_sets_of_users(latest, links, monkeypatch):
    monkeypatch.setattr(candidates, "_BLOCK", 7)
    source = Neighbours(decay=0.5, latest=latest, links=links).fit(TAKEN)
    sets = [{*history[-latest:]} for history in HISTORIES]
    users = [{u for u, own in enumerate(sets) if i in own} for i in range(SHAPE[1])]
    cosines = np.zeros((SHAPE[1], SHAPE[1]))
    for a in range(SHAPE[1]):
        for b in set(range(SHAPE[1])) - {a}:
            scale = np.sqrt((len(users[a]) + 1) * (len(users[b]) + 1))
            cosines[a, b] = len(users[a] & users[b]) / scale
        cosines[a, np.argsort(-cosines[a].astype("f4"), kind="stable")[links:]] = 0.0
    recent = [(0.5 ** np.arange(len(x))) @ cosines[x[::-1]] for x in HISTORIES]
    np.testing.assert_allclose(values(source, "recent"), recent, rtol=1e-5)
    np.testing.assert_allclose(values(source, "all"), [cosines[x].sum(0) for x in HISTORIES], 1e-5)


def test_the_vector_of_a_history_is_the_exact_solution_of_the_factorisation():
    source = Factors(num_factors=6, sweeps=4).fit(TAKEN)
    model = RGFactorizer(source.objective, 6, 0.6, sweeps=4, num_threads=1)
    matrix = weigh(TAKEN)
    matrix.data[:] = 1.0
    model.fit(matrix)
    expected = [[model.explain(user, item).score for item in range(SHAPE[1])] for user in range(5)]
    np.testing.assert_allclose(values(source, "product")[:5], expected, rtol=2e-3, atol=2e-4)


def test_an_encoder_learns_successors_and_is_fitted_again_to_others():
    source = Encoder(num_factors=16, max_length=5, epochs=20, rate=0.01)
    users = np.arange(200)
    items = (np.arange(4) + users[:, np.newaxis]).ravel() % SHAPE[1] + 1
    whole = Sequences(users.astype(str), TAKEN.item_ids, np.repeat(users, 4), items, items * 1.0)
    fitted = source.fit(TAKEN)
    scores = fitted.scores(TAKEN)["product"]
    again = fitted.fit(whole)
    ids, _ = again.candidates(whole, k=1)
    assert np.mean(ids[:, 0] == items[3::4] % SHAPE[1]) > 0.9
    np.testing.assert_array_equal(fitted.scores(TAKEN)["product"].users, scores.users)
    np.testing.assert_array_equal(ids, source.fit(whole).candidates(whole, k=1)[0])


def test_popular_items_are_those_of_the_latest_interactions():
    source = Popular(window=0.2).fit(TAKEN)
    late = TAKEN.items[TAKEN.times >= np.quantile(TAKEN.times, 0.8)] - 1
    expected = np.log1p(np.bincount(late, minlength=SHAPE[1]))
    np.testing.assert_allclose(values(source, "window")[3], expected, rtol=1e-6)


@pytest.mark.parametrize("source", EACH, ids=lambda x: type(x).__name__)
def test_candidates_are_the_best_scores_without_the_history(source):
    fitted = source.fit(TAKEN)
    first = next(iter(fitted.scores(TAKEN)))
    scores = values(fitted, first)
    scores[weigh(TAKEN).nonzero()] = -np.inf
    ids, best = fitted.candidates(TAKEN, k=7)
    for user in range(SHAPE[0]):
        order = np.argsort(-scores[user], kind="stable")[:7]
        order = order[np.isfinite(scores[user, order]) & (scores[user, order] != 0.0)]
        np.testing.assert_array_equal(ids[user][ids[user] >= 0][: len(order)], order)
        np.testing.assert_array_equal(best[user][: len(order)], scores[user, order])


@pytest.mark.parametrize("source", EACH, ids=lambda x: type(x).__name__)
def test_a_user_scores_the_same_in_any_company_and_needs_no_place_in_the_fit(source):
    fitted = source.fit(TAKEN)
    ids, best = fitted.candidates(TAKEN)
    for user in (0, 17, 89):
        alone = fitted.candidates(TAKEN.take(np.array([user])))
        np.testing.assert_array_equal(alone[0][0], ids[user])
        np.testing.assert_array_equal(alone[1][0], best[user])
    stranger = Sequences(
        np.array(["?"], object),
        TAKEN.item_ids,
        *(getattr(TAKEN.take(np.array([17])), x) for x in ("users", "items", "times")),
    )
    np.testing.assert_array_equal(fitted.candidates(stranger)[0][0], ids[17])


def test_products_that_a_matrix_product_rounds_apart_keep_their_order():
    random = np.random.default_rng(0)
    vector = random.normal(size=64).astype("f4")
    products = Products(vector[np.newaxis], np.tile(vector, (40, 1)))
    none = weigh(TAKEN.take(np.array([-1])))[:, :1]
    none.resize((1, 40))
    assert products.best(9, none)[0].tolist() == [[*range(9)]]


def test_candidates_are_united_with_all_scores_and_ranks():
    fitted = {type(x).__name__: x.fit(TAKEN) for x in QUICK}
    seen = weigh(TAKEN)
    found = pairs.unite(fitted, TAKEN, seen)
    names = pairs.names(fitted, TAKEN)
    assert found.features.shape == (len(found.items), len(names))
    each = {name: source.candidates(TAKEN)[0] for name, source in fitted.items()}
    for user in range(SHAPE[0]):
        own = found.users == user
        union = {int(x) for ids in each.values() for x in ids[user] if x >= 0}
        assert found.items[own].tolist() == sorted(union)
        for n, ids in enumerate(each.values()):
            assert {*found.items[own][found.origins[own, n]]} == {*ids[user][ids[user] >= 0]}
    soft, rank = (names.index(f"Successors.{x}") for x in ("soft", "rank"))
    own = found.users == 4
    scores = found.features[own, soft]
    assert found.features[own, rank].tolist() == [(scores > x).sum() for x in scores]
    np.testing.assert_array_equal(scores, values(fitted["Successors"], "soft")[4, found.items[own]])


def test_columns_of_items_and_users_are_joined_by_id():
    items = pd.DataFrame({"item": TAKEN.item_ids[::-1][:-3]})
    items["price"] = [*range(len(items) - 1), np.nan]
    items["brand"] = ["a", "b", None] * (len(items) // 3)
    source = ItemColumns.read(items, "item", "item").fit(TAKEN)
    by_id = items.set_index("item").reindex(TAKEN.item_ids)
    price = by_id["price"].to_numpy()
    np.testing.assert_array_equal(values(source, "number: price")[1], price.astype("f4"))
    history = HISTORIES[7][::-1]
    weights = 0.8 ** np.arange(len(history))
    is_there = np.isfinite(price[history])
    mean = np.average(price[history][is_there], weights=weights[is_there])
    np.testing.assert_allclose(values(source, "difference: price")[7], price - mean, rtol=1e-4)
    brand = by_id["brand"].fillna("").to_numpy()
    share = weights[brand[history] == "a"].sum() / weights[brand[history] != ""].sum()
    of_a = np.flatnonzero(brand == "a")
    np.testing.assert_allclose(values(source, "share: brand")[7, of_a], share, rtol=1e-5)
    assert np.isnan(values(source, "share: brand")[7, brand == ""]).all()
    count = np.log1p(sum((brand[x] == "b").sum() for x in HISTORIES))
    np.testing.assert_allclose(values(source, "count: brand")[7, brand == "b"], count, rtol=1e-6)

    users = {"user": TAKEN.user_ids[:60], "age": np.arange(60.0), "town": ["x", "y"] * 30}
    source = UserColumns.read(users, "user", "user").fit(TAKEN)
    assert values(source, "number: age")[[3, 59, 60], 0].tolist()[:2] == [3.0, 59.0]
    assert np.isnan(values(source, "number: age")[60:]).all()
    counts = weigh(TAKEN)[np.arange(1, 60, 2)].sum(axis=0).A1
    np.testing.assert_allclose(values(source, "count: town")[5], np.log1p(counts), rtol=1e-6)
