import numpy as np
import pytest
import scipy.sparse as sp

from tfrank_sel.models.als import RGFactorizer, retrieval

nearest = pytest.importorskip("tfrank_sel.models.als.nearest")


@pytest.fixture(scope="module")
def model():
    """Users who took up to 60 of 500 items."""
    rng = np.random.default_rng(0)
    taken = rng.random((200, 500)) < rng.choice([0.02, 0.05, 0.12], size=(200, 1))
    return RGFactorizer(num_factors=8, regularization=0.05, sweeps=3).fit(
        sp.csr_matrix(taken, dtype=float)
    )


@pytest.mark.parametrize("filter_seen", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_all_clusters_have_the_exact_best(model, filter_seen, threads):
    model.num_threads = threads
    index = nearest.ItemIndex(model.item_factors_, num_clusters=20, probes=20)
    users = np.arange(200)
    ids, scores = model.recommend(users, k=30, filter_seen=filter_seen, index=index)
    expected, best = model.recommend(users, k=30, filter_seen=filter_seen)
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-6)
    assert np.mean(ids == expected) > 0.99  # nearly equal scores may change places


def test_few_probes_find_most_and_nothing_seen(model):
    index = nearest.ItemIndex(model.item_factors_, probes=8)
    ids, scores = model.recommend(np.arange(200), k=10, index=index)
    expected, _ = model.recommend(np.arange(200), k=10)
    found = np.mean([np.isin(a, b).mean() for a, b in zip(expected, ids, strict=True)])
    assert 0.8 < found < 1.0
    assert not retrieval.mark_members(ids, model.seen_).any()
    assert np.all(np.diff(scores, axis=1) <= 0.0)
    rows = np.repeat(np.arange(200), 10)
    exact = np.sum(model.user_factors_[rows] * model.item_factors_[ids.ravel()], axis=1)
    np.testing.assert_allclose(scores.ravel(), exact, rtol=1e-4, atol=1e-6)


def test_too_few_items_leave_the_rest_empty(model):
    index = nearest.ItemIndex(model.item_factors_[:4], num_clusters=2, probes=2)
    ids, scores = index.best(model.user_factors_[:3], 6)
    assert np.all(np.sort(ids[:, :4], axis=1) == np.arange(4))
    assert np.all(ids[:, 4:] == -1)
    assert np.all(scores[:, 4:] == -np.inf)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n, m: n.ItemIndex(m.item_factors_[0]), "must be a matrix with rows"),
        (lambda n, m: n.ItemIndex(m.item_factors_, 5, 6), "probes=6, 500 items"),
        (lambda n, m: n.ItemIndex(m.item_factors_).best(m.user_factors_, 0), "`k` must be posit"),
        (
            lambda n, m: m.recommend(0, index=n.ItemIndex(m.item_factors_[:9])),
            "of the 500 items.*Received: 9 items",
        ),
        (
            lambda n, m: m.recommend(0, items=[1], index=n.ItemIndex(m.item_factors_)),
            r"excludes `items`.*items=\[1\]",
        ),
    ],
)
def test_wrong_arguments_are_refused(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(nearest, model)
