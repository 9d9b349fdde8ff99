"""Mixed rankings: what each position may hold and give, who wins, and by how many sessions."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from tfrank_sel import clicks
from tfrank_sel.clicks import interleaving


@pytest.mark.long
def test_a_ranker_beside_itself_wins_five_percent_of_trials_and_a_better_one_wins():
    random = np.random.default_rng(0)
    better = -np.arange(6.0)

    def p_values(first, second, drafts, trials):
        mixed = [clicks.team_draft(first, second, seed=i) for i in range(drafts)]
        items, teams = (np.stack(x) for x in zip(*mixed, strict=True))
        np.testing.assert_array_equal(np.sort(items, axis=1), np.tile(range(6), [drafts, 1]))
        np.testing.assert_array_equal(teams.reshape(drafts, 3, 2).sum(axis=2), 1)
        probable = 0.6 / (1.0 + items) / np.arange(1, 7) ** 0.5
        for _ in range(trials):
            drawn = random.integers(drafts, size=500)
            clicked = random.random([500, 6]) < probable[drawn]
            yield clicks.sign_test(*((clicked & (teams[drawn] == t)).sum(axis=1) for t in (0, 1)))

    found = np.array([*p_values(better, better, 20_000, 1000)])
    assert 0.04 <= np.mean(found < 0.05) <= 0.06
    assert max(p_values(better, -better, 1000, 10)) < 1e-6
    with pytest.raises(ValueError, match="`second` must have the shape of `first`"):
        clicks.team_draft([1.0], [1.0, 2.0])


def prefixes(first, second, depth):
    """Lists whose every item is the best one left of a ranking."""
    lists = [()]
    for _ in range(depth):
        lists = [
            (*one, item)
            for one in lists
            for item in {next(x for x in order if x not in one) for order in (first, second)}
        ]
    return sorted(lists)


def credit(first, second, item):
    """The difference of inverse ranks, 11 beyond the tenth."""
    ranks = [
        [*order[:10], *[item] * (item not in order[:10])].index(item) for order in (first, second)
    ]
    return 1.0 / (1.0 + ranks[0]) - 1.0 / (1.0 + ranks[1])


def rankings(num_items, noise, seed):
    random = np.random.default_rng(seed)
    scores = -np.arange(num_items) + noise * random.standard_normal([2, num_items])
    return np.argsort(-scores, axis=1).tolist()


def allocation(lists, values):
    """Probabilities of the lists, with a bound of 1e-9 on the expected credit of each position."""
    found = interleaving.allocation(np.array([[values[item] for item in one] for one in lists]))
    expected = found @ [[values[item] for item in one] for one in lists]
    np.testing.assert_allclose(expected, 0.0, atol=1e-9)
    assert found.min() >= 0.0
    assert found.sum() == pytest.approx(1.0)
    return found


def test_clicks_at_random_by_rank_expect_no_credit():
    for size in range(2, 6):
        for order in itertools.permutations(range(size)):
            values = [1.0 / (1 + x) - 1.0 / (1 + order.index(x)) for x in range(size)]
            allocation(prefixes(range(size), order, size), values)


@pytest.mark.parametrize(("num_items", "noise"), [(10, 1.0), (12, 4.0), (14, 100.0)])
def test_probabilities_are_those_of_the_best_unbiased_programme(num_items, noise):
    for seed in range(5):
        first, second = rankings(num_items, noise, seed)
        lists = prefixes(first, second, 10)
        values = [credit(first, second, item) for item in range(num_items)]
        found = allocation(lists, values)
        examined = 1.0 / np.arange(1, 11)
        entropies = []
        for one in lists:
            gained = np.array([values[item] for item in one])
            won = np.array([examined[gained > 0.0].sum(), examined[gained < 0.0].sum()])
            won = won[won > 0.0]
            entropies.append(-np.sum(won * np.log(won / won.sum())))
        constraints = np.array([[1.0, *(values[item] for item in one)] for one in lists]).T
        best = linprog(-np.array(entropies), A_eq=constraints, b_eq=[1.0] + [0.0] * 10)
        assert found @ entropies == pytest.approx(-best.fun, abs=1e-8)


@pytest.mark.long
def test_lists_are_drawn_with_these_probabilities():
    first, second = [0, 1, 2, 3], [3, 1, 0, 2]
    lists = prefixes(first, second, 4)
    values = [1.0 / (1 + first.index(x)) - 1.0 / (1 + second.index(x)) for x in range(4)]
    drawn = [clicks.credited(first, second, seed=seed) for seed in range(4000)]
    for one, probable in zip(lists, allocation(lists, values), strict=True):
        share = np.mean([tuple(x) == one for x in drawn])
        assert share == pytest.approx(probable, abs=5 * 0.5 / 4000**0.5)
    assert drawn[0] == {item: pytest.approx(values[item]) for item in drawn[0]}


def test_a_long_list_is_optimised_at_the_top_and_drafted_below():
    for seed in range(20):
        first, second = rankings(30, 5.0, seed)
        mixed = clicks.credited(first, second, seed=seed)
        assert sorted(mixed) == list(range(30))
        items = list(mixed)
        for place, item in enumerate(items):
            left = [next(x for x in order if x not in items[:place]) for order in (first, second)]
            assert item in left
            expected = credit(first, second, item) if place < 10 else 0.0
            assert mixed[item] == pytest.approx(expected)
        best = clicks.credited(first[:12], second[:12], seed=seed)
        assert list(best.items()) == list(mixed.items())[:12]


def test_without_an_unbiased_allocation_the_list_is_a_draft_without_credit(monkeypatch):
    assert interleaving.allocation(np.array([[0.5], [0.25]])) is None
    monkeypatch.setattr(interleaving, "allocation", lambda credits: None)
    first, second = rankings(12, 4.0, 0)
    mixed = clicks.credited(first, second, seed=3)
    assert list(mixed) == list(clicks.drafted(first, second, seed=3))
    assert set(mixed.values()) == {0.0}


def power(probable, values):
    """Mean credit of sessions by the root of its mean square."""
    mean = (probable * values).sum(axis=1)
    square = mean**2 + (probable * (1.0 - probable) * values**2).sum(axis=1)
    return mean.mean() / np.sqrt(square.mean())


@pytest.mark.long
def test_optimised_rankers_win_five_percent_without_a_reason_and_need_fewer_sessions():
    first, second = list(range(8)), [0, 2, 1, 3, 7, 5, 6, 4]
    same = clicks.credited(first, first, seed=0)
    assert same == dict.fromkeys(first, 0.0)
    assert clicks.mean_test([*same.values()]) == 1.0
    random = np.random.default_rng(0)
    values = np.array([1.0 / (1 + x) - 1.0 / (1 + second.index(x)) for x in first])
    lists = prefixes(first, second, 8)
    drawn = random.choice(lists, 500_000, p=allocation(lists, values))
    examined = 0.6 * np.arange(1, 9) ** -0.5
    credits = (values[drawn] * (random.random(drawn.shape) < examined)).sum(axis=1)
    found = [clicks.mean_test(x) for x in credits.reshape([1000, 500])]
    assert 0.04 <= np.mean(np.array(found) < 0.05) <= 0.06
    drafts = [clicks.drafted(first, second, seed=seed) for seed in range(4000)]
    teams = np.array([[1.0 - 2.0 * x for x in one.values()] for one in drafts])
    relevant = 1.0 / (1.0 + np.arange(8))
    optimised = power(examined * relevant[drawn], values[drawn])
    assert optimised > 1.2 * power(examined * relevant[[[*x] for x in drafts]], teams) > 0.0


def test_the_test_of_the_mean_is_normal_and_bad_credits_are_refused():
    x = [0.5, -0.2, 0.0, 0.1]
    z = sum(x) / np.sqrt(np.square(x).sum())
    assert clicks.mean_test(x) == pytest.approx(2.0 * norm.sf(z), rel=1e-12)
    assert clicks.mean_test([-v for v in x]) == clicks.mean_test(x)
    with pytest.raises(ValueError, match="credits"):
        clicks.mean_test([np.nan])
    with pytest.raises(ValueError, match="`second` must have the shape of `first`"):
        clicks.optimised([1.0], [1.0, 2.0])


@pytest.mark.parametrize("kind", ["teams", "credits"])
def test_rankers_equal_on_average_are_told_apart_rarely_where_queries_repeat(kind):
    """A ranker is better for some queries and worse for others, and few have most sessions."""
    share = 1.0 / np.arange(1, 51)
    wrong = {"clustered": 0, "independent": 0}
    for seed in range(200):
        random = np.random.default_rng(seed)
        better = random.normal(0.0, 0.15, 50)
        query = random.choice(50, 1000, p=share / share.sum())
        won = random.random(1000) < 0.5 + better[query]
        credits = np.where(won, 1.0, -1.0) * (1.0 if kind == "teams" else random.random(1000))
        for name, queries in (("clustered", query), ("independent", None)):
            if kind == "teams":
                p = clicks.sign_test(credits, 0.0 * credits, queries)
            else:
                p = clicks.mean_test(credits, queries)
            wrong[name] += p < 0.05
    assert wrong["clustered"] <= 18  # of 200, at the level of 5 %
    assert wrong["independent"] >= 60
    every = np.arange(1000)
    single = clicks.sign_test(credits, 0.0 * credits, every)
    assert single == pytest.approx(clicks.sign_test(credits, 0.0 * credits), abs=0.03)
    with pytest.raises(ValueError, match="`query` must have a value for each of"):
        clicks.mean_test([1.0, 2.0], ["q"])
    with pytest.raises(ValueError, match="`second` must have a value for each of"):
        clicks.sign_test([1.0, 2.0, 3.0], [1.0])
