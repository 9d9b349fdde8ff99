import numpy as np

from tfrank_sel import metrics
from tfrank_sel.metrics.importance import importances

LISTS, ITEMS = 40, 8


def scored(inputs):
    """The first column of `a`, and, of texts, whether they are "yes"."""
    return inputs["a"][..., 0] + 10.0 * (inputs["b"][..., 1] == b"yes")


def lists():
    """Labels that the score orders without error; padding before, between and behind items."""
    random = np.random.default_rng(0)
    a = random.normal(size=(LISTS, ITEMS, 2))
    b = random.choice([b"yes", b"no"], (LISTS, ITEMS, 2))
    inputs = {"a": a, "b": b}
    labels = scored(inputs).argsort().argsort().astype(np.float32)
    labels[:, [0, 3, 7]] = np.nan
    return inputs, labels


def found(columns, **options):
    inputs, labels = lists()
    return importances(scored, inputs, labels, metrics.NDCG(), columns, **options)


def test_importance_is_the_drop_of_the_metric_under_a_shuffle_within_lists():
    inputs, labels = lists()
    drops = found({"number": [("a", 0)], "idle": [("a", 1), ("b", 0)], "text": [("b", 1)]})
    assert drops["idle"].drop == drops["idle"].margin == 0.0
    assert drops["text"].drop > drops["number"].drop > drops["number"].margin > 0.0

    seen = []
    importances(
        lambda x: seen.append(x) or scored(x), inputs, labels, metrics.NDCG(), {"a": [("a", 0)]}
    )
    before, after = (x["a"][..., 0] for x in seen)
    valid = ~np.isnan(labels)
    np.testing.assert_array_equal(before[~valid], after[~valid])
    for old, new, own in zip(before, after, valid, strict=True):
        np.testing.assert_array_equal(np.sort(old[own]), np.sort(new[own]))
    assert np.any(before != after)


def test_columns_of_a_feature_move_together_and_a_seed_repeats():
    apart = found({"1": [("a", 0)], "2": [("b", 1)]})
    together = found({"both": [("a", 0), ("b", 1)]})
    assert together["both"].drop > max(x.drop for x in apart.values())
    assert found({"1": [("a", 0)]}) == {"1": apart["1"]}
    assert found({"1": [("a", 0)]}, seed=1) != {"1": apart["1"]}


def test_a_feature_of_the_query_has_importance_0():
    inputs, labels = lists()
    inputs["a"][:] = inputs["a"][:, :1]
    drops = importances(scored, inputs, labels, metrics.NDCG(), {"query": [("a", 0)]})
    assert drops["query"].drop == 0.0
