"""Towers trained against all items: the minimum of the factorisation, and new items."""

import keras
import numpy as np
import pytest

from tfrank_sel.models.als import RG2, RGCross, RGFactorizer, WeightedSquare, fit_towers

USERS, ITEMS, WIDTH = 50, 30, 4


def taken(seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=(USERS, 2)) @ rng.normal(size=(2, ITEMS))
    gains = np.where(odds > 1.0, rng.integers(1, 3, odds.shape), 0)
    users, items = gains.nonzero()
    return users, items, gains[users, items].astype(float)


def embeddings(count):
    start = keras.initializers.RandomNormal(0.0, 0.1, seed=count)
    table = keras.layers.Embedding(count, WIDTH, embeddings_initializer=start)
    return keras.Sequential([keras.Input([], dtype="int32"), table])


@pytest.mark.long
@pytest.mark.parametrize(
    "objective",
    [RG2(0.2), RGCross(0.2), WeightedSquare(unobserved=0.2)],
    ids=repr,
)
def test_embeddings_reach_the_objective_of_the_factors(objective):
    settings = {
        "num_factors": WIDTH,
        "regularization": 0.3,
        "popularity_exponent": 0.3,
        "activity_exponent": 0.25,
    }
    best = RGFactorizer(objective, sweeps=300, **settings).fit(taken()).history_
    model = RGFactorizer(objective, **settings)
    towers = tuple(map(embeddings, (USERS, ITEMS)))
    rate = keras.optimizers.schedules.CosineDecay(0.2, 160)
    fit_towers(
        model,
        taken(),
        towers,
        (np.arange(USERS), np.arange(ITEMS)),
        keras.optimizers.Adam(rate),
        epochs=80,
        batch_size=25,
    )
    limit, start = best[-1]["objective"], model.history_[0]["objective"]
    assert model.history_[-1]["objective"] - limit < 1e-3 * (start - limit)
    assert model.history_[-1]["objective"] - limit > -1e-4 * (start - limit)


@pytest.mark.long
def test_new_items_are_recommended_by_their_features():
    rng = np.random.default_rng(0)
    tastes, topics = np.eye(3)[np.arange(60) % 3], np.eye(3)[np.arange(42) % 3]
    likes = (tastes @ topics.T) * (rng.random([60, 42]) < 0.5)
    likes[:, 36:] = 0  # new items
    towers = [
        keras.Sequential([keras.Input([3], name=name), keras.layers.Dense(WIDTH)])
        for name in ("taste", "topic")
    ]
    features = {"taste": tastes}, topics
    towers[0] = keras.Model({"taste": towers[0].inputs[0]}, towers[0].outputs[0])
    model = RGFactorizer(num_factors=WIDTH)
    fit_towers(
        model,
        likes.nonzero(),
        towers,
        features,
        keras.optimizers.Adam(0.02),
        epochs=30,
        batch_size=20,
    )
    best, _ = model.recommend(np.arange(60), k=2, items=np.arange(36, 42))
    assert np.all(best % 3 == np.arange(60)[:, None] % 3)


def test_features_of_too_few_items_are_refused():
    towers = tuple(map(embeddings, (USERS, ITEMS)))
    features = np.arange(USERS), np.arange(ITEMS - 5)
    with pytest.raises(ValueError, match="item"):
        fit_towers(
            RGFactorizer(num_factors=WIDTH),
            taken(),
            towers,
            features,
            keras.optimizers.Adam(),
            epochs=1,
        )
