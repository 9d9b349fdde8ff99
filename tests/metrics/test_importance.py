import numpy as np
import pytest

from tests.references import metrics as references
from tfrank_sel.metrics.importance import REPEATS, importances

SIZES = np.arange(40) % 8 + 1
STARTS = np.cumsum(SIZES)[:-1]


def scored(items):
    """The first column of `a`, and, of texts, whether they are "yes"."""
    return items["a"][:, 0] + 10.0 * (items["b"][:, 1] == b"yes")


@pytest.fixture
def items():
    random = np.random.default_rng(0)
    a = random.normal(size=(SIZES.sum(), 2))
    return {"a": a, "b": random.choice([b"yes", b"no"], a.shape)}


@pytest.fixture
def values(items):
    """NDCG of lists whose labels the score orders without error."""
    labels = scored(items).argsort().argsort() / 10.0

    def ndcg(shuffled):
        pairs = zip(np.split(labels, STARTS), np.split(scored(shuffled), STARTS), strict=True)
        return np.array([references.ndcg(x, y, np.ones_like(y), None) for x, y in pairs])

    return ndcg


def test_importance_is_the_drop_of_the_metric_under_shuffles_within_lists(items, values):
    columns = {"number": [("a", 0)], "idle": [("a", 1), ("b", 0)], "text": [("b", 1)]}
    drops = importances(values, items, SIZES, {**columns, "none": []})
    assert drops["idle"].drop == drops["idle"].margin == drops["none"].drop == 0.0
    assert drops["text"].drop > drops["number"].drop > drops["number"].margin > 0.0

    seen, found = [], []

    def watched(x):
        seen.append(x["a"][:, 0])
        found.append(values(x))
        return found[-1]

    own = importances(watched, items, SIZES, {"a": [("a", 0)]})["a"]
    before, *shuffled = seen
    assert len(shuffled) == REPEATS
    for after in shuffled:
        assert np.any(before != after)
        for old, new in zip(np.split(before, STARTS), np.split(after, STARTS), strict=True):
            np.testing.assert_array_equal(np.sort(old), np.sort(new))
    by_list = found[0] - np.mean(found[1:], axis=0)
    assert own.drop == pytest.approx(by_list.mean())
    assert own.margin == pytest.approx(1.96 * by_list.std() / np.sqrt(len(SIZES)))


def test_columns_of_a_feature_move_together_and_a_seed_repeats(items, values):
    def found(columns, **options):
        return importances(values, items, SIZES, columns, **options)

    apart = found({"1": [("a", 0)], "2": [("b", 1)]})
    together = found({"both": [("a", 0), ("b", 1)]})
    assert together["both"].drop > max(x.drop for x in apart.values())
    assert found({"1": [("a", 0)]}) == {"1": apart["1"]}
    assert found({"1": [("a", 0)]}, seed=1) != {"1": apart["1"]}


def test_a_feature_of_the_query_has_importance_0(items, values):
    items["a"][:, 0] = np.repeat(np.arange(len(SIZES)), SIZES)
    assert importances(values, items, SIZES, {"query": [("a", 0)]})["query"].drop == 0.0
