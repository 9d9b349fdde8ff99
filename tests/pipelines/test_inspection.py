import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import data, metrics
from tfrank_sel.data import synthetic
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import Number, Vector
from tfrank_sel.metrics.importance import REPEATS, importances
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.pipelines.evaluation import inspection
from tfrank_sel.pipelines.ingestion import stored_lists

SPEC = data.FeatureSpec(num_features=4)
LAYOUT = Schema({"a": Number(), "b": Number(), "c": Number(), "of the query": Number(of="query")})


@pytest.fixture(scope="module")
def lists():
    return list(synthetic.lists(30, num_features=4, max_list_size=10, seed=1))


def by_b(inputs):
    return inputs["features"][..., 1]


def test_a_sample_is_bounded_and_of_the_first_lists(monkeypatch, shards, lists):
    whole = stored_lists.sample(shards, SPEC, longest=10)
    assert np.sum(~np.isnan(whole.labels)) == sum(len(x.labels) for x in lists)
    monkeypatch.setattr(stored_lists, "SLOTS", 75)
    some = stored_lists.sample(shards, SPEC, longest=10)
    size = some.labels.shape[1]
    np.testing.assert_array_equal(some.labels, whole.labels[:7, :size])
    assert len(stored_lists.sample(shards, SPEC, longest=1000).labels) == 1


def test_importance_is_of_the_features_of_items(shards):
    sample = stored_lists.sample(shards, SPEC, longest=10)
    found = inspection.feature_importances(by_b, LAYOUT, sample, seed=0)
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"].drop == found["c"].drop == 0.0
    assert found["b"].drop != 0.0
    drops = [x.drop for x in found.values()]
    assert drops == sorted(drops, reverse=True)

    packed = Schema({"features": Vector(size=4)})
    split = inspection.feature_importances(by_b, packed, sample, seed=0)
    assert split["features[2]"] == found["b"]
    assert len(split) == 4


@pytest.mark.long
def test_importance_scores_only_what_can_change(monkeypatch, shards):
    sample, scored = stored_lists.sample(shards, SPEC, longest=10).by_size(), []
    mask, features = ~np.isnan(sample.labels), sample.inputs["features"]

    def counted(inputs):
        scored.append(int(tf.math.count_nonzero(inputs["mask"])))
        return by_b(inputs)

    def values(items):
        scores = np.zeros(mask.shape, np.float32)
        scores[mask] = items["features"][:, 1]
        return metrics.NDCG(10, ties=AVERAGED).evaluate(sample.labels, scores).values

    def found():
        scored.clear()
        return inspection.feature_importances(counted, LAYOUT, sample, seed=0)

    columns, items = inspection.columns(LAYOUT), {"features": features[mask]}
    expected = importances(values, items, mask.sum(axis=1), columns)
    for name, one in found().items():
        assert one.drop == pytest.approx(expected[name].drop, abs=1e-6)
    assert sum(scored) < 0.95 * mask.sum() * (1 + REPEATS * len(columns))
    for budget in (100, 500, 1000):
        monkeypatch.setattr(inspection, "SCORED", budget)
        found()
        assert 0.5 * budget < sum(scored) <= budget


def test_a_lead_is_explained_by_the_features_of_items(lists):
    one = next(one for one in lists if len(one.labels) > 1)
    inputs = stored_lists.batch_of(one, SPEC)
    found = inspection.explain_pair(by_b, LAYOUT, inputs, [1, 0])
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"] == found["c"] == 0.0
    assert found["b"] == pytest.approx(np.subtract(*one.features[[1, 0], 1]), rel=1e-5)


def test_calibration_is_the_mean_label_of_equal_parts_by_score(shards, lists):
    sample = stored_lists.sample(shards, SPEC, longest=10)
    scored = {"ours": inspection.scores(by_b, sample.inputs)}
    mean_scores, mean_labels = inspection.calibrations(scored, sample)["ours"]
    scores = np.concatenate([one.features[:, 1] for one in lists])
    labels = np.concatenate([one.labels for one in lists])[np.argsort(scores, kind="stable")]
    assert np.all(np.diff(mean_scores) > 0.0)
    parts = [len(x) for x in np.array_split(labels, 10)]
    np.testing.assert_allclose(mean_labels @ parts, labels.sum(), rtol=1e-5)
    np.testing.assert_allclose(mean_labels[-1], labels[-parts[-1] :].mean(), rtol=1e-5)
