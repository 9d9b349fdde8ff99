"""Learning from a synthetic click log: columns of all types, and missing values."""

import keras
import numpy as np
import pytest

from tfrank_sel import data, features, losses, metrics, models
from tfrank_sel.data import synthetic

TYPES = {
    "price": features.Number(),
    "rating": features.Number(missing=3.0),
    "in_stock": features.Bool(),
    "brand": features.Category(min_count=20),
    "device": features.Category(of="query", encoding="one_hot"),
    "tags": features.Set(max_values=3),
    "embedding": features.Vector(size=8),
    "published_at": features.Timestamp(since="shown_at"),
    "shown_at": features.Timestamp(of="query"),
}
COLUMNS = {"query": "session", "label": "clicked", "doc_id": "item", "features": TYPES}


@pytest.fixture(scope="module")
def ranker():
    keras.utils.set_random_seed(0)
    train = data.frames.dataset(synthetic.clicks(60_000, seed=1), **COLUMNS, seed=0)
    preparation = models.Preparation.of(train, TYPES, within_list=False)
    network = models.Perceptron([32], embeddings=preparation.embeddings)
    model = models.Prepared(preparation, network)
    model.compile(keras.optimizers.Adam(0.003), losses.SoftmaxLoss())
    model.fit(train, epochs=8, verbose=0, shuffle=False)
    return model


def scores(ranker, **columns):
    """Scores of items that are alike but for the columns given."""
    size = len(next(iter(columns.values())))
    alike = {
        "session": "s",
        "clicked": 0.0,
        "price": 20.0,
        "rating": 3.0,
        "in_stock": True,
        "brand": "brand-1",
        "device": "phone",
        "tags": [],
        "embedding": [0.0] * 8,
        "published_at": 1_750_000_000,
        "shown_at": 1_751_000_000,
    }
    frame = {**{name: [value] * size for name, value in alike.items()}, **columns}
    [(inputs, _)] = data.frames.dataset(frame, **{**COLUMNS, "doc_id": "doc_id"})
    return ranker(inputs).numpy()[0]


def test_it_ranks_nearly_as_well_as_what_made_the_clicks(ranker):
    log = synthetic.clicks(10_000, seed=2)
    measure = metrics.NDCG(k=10)
    test = data.frames.dataset(log, **COLUMNS, shuffle=False, batch_size=10_000, bucket_edges=1)
    [(inputs, labels)] = test
    truth = data.frames.dataset(
        log,
        **{**COLUMNS, "features": ["utility"]},
        shuffle=False,
        batch_size=10_000,
        bucket_edges=1,
    )
    [(known, _)] = truth
    best = float(measure(labels, known["features"][..., 0]))
    found = float(measure(labels, ranker(inputs)))
    assert best - 0.06 < found < best
    assert best > 0.6


def test_brands_are_liked_as_they_were_made(ranker):
    liked = np.random.default_rng(0).normal(size=200)[:12]
    found = scores(ranker, brand=[f"brand-{i}" for i in range(12)])
    assert np.corrcoef(found, liked)[0, 1] > 0.9


def test_a_missing_price_is_worse_than_any_other(ranker):
    cheap, dear, missing = scores(ranker, price=[5.0, 80.0, None])
    assert missing < dear < cheap


def test_a_missing_rating_is_one_of_three(ranker):
    bad, middle, missing, good = scores(ranker, rating=[1.0, 3.0, None, 5.0])
    assert missing == middle
    assert bad < middle < good


def test_stock_and_age_count(ranker):
    there, gone = scores(ranker, in_stock=[True, False])
    assert there > gone
    days = [0, 30, 300]
    new, *older = scores(ranker, published_at=[1_751_000_000 - 86_400 * day for day in days])
    assert new > older[0] > older[1]
