"""A regularization that is not given."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.models.als.test_factorizer import TRIPLES, factorizer
from tfrank_sel.models.als import RGFactorizer, tune


def plays(num_users=600, num_items=400):
    """Users draw without replacement from topics of items of very different popularity."""
    rng = np.random.default_rng(3)
    topics = rng.integers(12, size=num_items)
    appeal = (1.0 + rng.permutation(num_items)) ** -1.0
    columns = []
    for user, taste in enumerate(rng.dirichlet(np.full(12, 0.2), num_users)):
        odds = appeal * (0.02 + taste[topics])
        count = min(4 + rng.poisson(12.0 * rng.lognormal(0.0, 0.6)), num_items // 2)
        items = rng.choice(num_items, count, replace=False, p=odds / odds.sum())
        columns.append([np.full(count, user), items, np.sort(rng.random(count))])
    user, item, time = map(np.concatenate, zip(*columns, strict=True))
    return pd.DataFrame({"user": user, "item": item, "time": time})


def recall(model, late):
    """The recall at 10 of the users of the fit."""
    late = late[late["user"].isin(model.user_ids_)]
    best, _ = model.recommend(late["user"])
    hits = pd.Series(np.any(best == late["item"].to_numpy()[:, np.newaxis], axis=1))
    return hits.groupby(late["user"].to_numpy()).mean().mean()


@pytest.mark.long
def test_a_regularization_that_is_not_given_is_chosen_and_told(capsys, tmp_path):
    taken = plays()
    is_late = taken["time"] > taken["time"].quantile(0.8)
    early, late = taken[~is_late], taken[is_late]
    model = RGFactorizer(num_threads=1).fit(early)
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"regularization=2 is the best of 0\.2, 0\.6, 2, 6, 20 by [\d,]+ held-out interactions: "
        r"NDCG@10 0\.\d+, recall@10 0\.\d+; the most popular items: NDCG@10 0\.\d+, recall@10 .*\n",
        told,
    )
    given = RGFactorizer(num_threads=1, regularization=2.0).fit(early)
    np.testing.assert_array_equal(given.item_factors_, model.item_factors_)
    before = RGFactorizer(num_threads=1, regularization=0.6).fit(early)
    assert capsys.readouterr().err == ""
    popular = early.value_counts("item").index
    of_users = early.groupby("user")["item"].agg(set)
    first = {user: [x for x in popular if x not in seen][:10] for user, seen in of_users.items()}
    pairs = late[late["user"].isin(of_users.index)]
    hits = pairs.apply(lambda row: row["item"] in first[row["user"]], axis=1)
    of_popular = hits.groupby(pairs["user"]).mean().mean()
    assert recall(before, late) < of_popular < recall(model, late)
    assert model.regularization is None
    model.save(tmp_path / "model")
    loaded = RGFactorizer.load(tmp_path / "model")
    assert loaded.regularization_ == loaded.regularization == model.regularization_ == 2.0
    assert loaded.explain(0, 3).score == model.explain(0, 3).score
    tuned, trials = tune(RGFactorizer(num_threads=1, sweeps=5), early)
    assert tuned.regularization == trials[0]["regularization"]
    assert sorted(trial["regularization"] for trial in trials[:-1]) == [0.2, 0.6, 2.0, 6.0, 20.0]


def test_a_fit_tells_if_popular_items_are_better_and_if_interactions_are_too_few(capsys):
    rng = np.random.default_rng(0)
    early = rng.integers(0, 60, 900), rng.integers(10, 60, 900)
    late = np.repeat(np.arange(60), 2), np.tile([0, 1], 60)  # everybody takes the popular items
    popular = np.repeat(np.arange(100, 190), 2), np.tile([0, 1], 90)
    user, item = (np.concatenate(x) for x in zip(popular, early, late, strict=True))
    taken = pd.DataFrame({"user": user, "item": item, "time": np.arange(1200)})
    with pytest.warns(UserWarning, match="^the most popular items are better: regularization="):
        RGFactorizer(num_factors=8, num_threads=1, sweeps=3).fit(taken)
    assert capsys.readouterr().err == ""
    model = RGFactorizer(num_factors=3, num_threads=1).fit(TRIPLES)
    assert model.regularization_ == 0.6
    assert "regularization=0.6 is not searched: fewer than 100" in capsys.readouterr().err
    given = factorizer(regularization=0.6).fit(TRIPLES)
    np.testing.assert_array_equal(given.user_factors_, model.user_factors_)
