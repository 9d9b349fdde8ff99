import dataclasses
import importlib
import importlib.util
import sys

import numpy as np
import pytest

from pipelines import artefacts, evaluation, ingest, publication, run, schema, statistics
from tfrank_sel import data, export, models
from tfrank_sel.data import letor, synthetic

SPEC = data.FeatureSpec(num_features=6)


@pytest.fixture(scope="module")
def lists():
    return list(synthetic.lists(40, num_features=6, max_list_size=30, seed=2))


@pytest.fixture(scope="module")
def shards(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("records")
    letor.write(folder / "lists.txt", lists)
    return ingest.ingest(folder / "lists.txt", SPEC, folder / "train")


def test_statistics_equal_those_of_numpy(tmp_path, lists, shards):
    found = statistics.summarise(shards, SPEC, tmp_path / "statistics.json")
    features = np.concatenate([one.features for one in lists]).astype(np.float64)
    labels = np.concatenate([one.labels for one in lists])
    compressed = np.sign(features) * np.log1p(np.abs(features))
    expected = {
        "min": features.min(axis=0),
        "mean": features.mean(axis=0),
        "max": features.max(axis=0),
        "std": features.std(axis=0),
        "zeros": np.zeros(6),
        "compressed_mean": compressed.mean(axis=0),
        "compressed_variance": compressed.var(axis=0),
    }
    assert set(found.features) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found.features[name], values, rtol=1e-9, err_msg=name)
    assert found.labels == {f"{g:g}": int(np.sum(labels == g)) for g in np.unique(labels)}
    assert (found.lists, found.items) == (40, len(labels))
    assert found.comparable_lists == sum(len(set(one.labels)) > 1 for one in lists)
    assert sum(size * count for size, count in found.list_sizes.items()) == len(labels)


def test_statistics_do_not_depend_on_the_bundles(lists):
    values = np.random.default_rng(0).normal(1e6, 1.0, (50, 2))
    parts = [statistics._Moments.of(part) for part in np.split(values, [0, 1, 30])]
    total = parts[0]
    for part in parts[1:]:
        total = total.merged(part)
    np.testing.assert_allclose(total.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(total.variance(), values.var(axis=0), rtol=1e-6)


def test_anomalies_name_feature_rule_and_count(tmp_path, shards):
    found = statistics.summarise(shards, SPEC, tmp_path / "statistics.json")
    inferred = schema.infer(found, SPEC, tmp_path / "schema.pbtxt")
    assert schema.load(tmp_path / "schema.pbtxt") == inferred
    assert schema.validate(shards, inferred, SPEC, tmp_path / "none.json") == []
    narrow = dataclasses.replace(found, labels={"0": 1, "3": 1})
    narrow.features["max"][1] = 0.0  # which all items exceed, being exp of something
    inferred = schema.infer(narrow, SPEC, tmp_path / "schema.pbtxt")
    label, feature = schema.validate(shards, inferred, SPEC, tmp_path / "anomalies.json")
    assert label == schema.Anomaly("relevance", "at most 3 as in training", found.labels["4"])
    assert feature == schema.Anomaly("features[2]", "at most 0 as in training", found.items)
    assert '"count"' in (tmp_path / "anomalies.json").read_text()


def test_the_bootstrap_is_seeded_and_covers_the_mean():
    differences = np.random.default_rng(0).normal(0.1, 1.0, 400)
    low, high = evaluation.paired_bootstrap(differences, seed=1, resamples=500)
    assert (low, high) == evaluation.paired_bootstrap(differences, seed=1, resamples=500)
    assert low < differences.mean() < high
    # The interval of a mean of independent values: plus and minus 1.96 standard errors.
    np.testing.assert_allclose(high - low, 2 * 1.96 * differences.std() / 20.0, rtol=0.1)


def test_a_saved_model_of_other_weights_is_not_let_through(tmp_path, shards):
    model, other = (models.Scorer([0.0] * 6, [1.0] * 6, [4]) for _ in range(2))
    for scorer in (model, other):
        scorer.build((None, None, 6))
    export.export(model, SPEC, tmp_path / "model")
    arguments = {"spec": SPEC, "shards": shards, "lists": 8}
    assert publication.infra_validate(tmp_path / "model", model, **arguments) <= 1e-5
    with pytest.raises(ValueError, match="must score as the model does"):
        publication.infra_validate(tmp_path / "model", other, **arguments)


def test_a_failed_block_leaves_nothing(tmp_path):
    def fail():
        with artefacts.aside(tmp_path / "new" / "out") as folder:
            artefacts.write_json(folder / "deep" / "value.json", {"a": 1})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with artefacts.aside(tmp_path / "out") as folder:
        artefacts.write_text(folder / "text", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "text").read_text() == "whole"


def test_the_synthetic_set_has_its_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SYNTHETIC_LISTS", {"train": 5, "validation": 2, "test": 3})
    sources = run._synthesise(tmp_path / "synthetic", seed=1)
    ids = [[one.query_id for one in letor.read(path, 20)] for path in sources.values()]
    assert [len(part) for part in ids] == [5, 2, 3]
    assert len({query_id for part in ids for query_id in part}) == 10


def test_without_beam_the_import_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apache_beam" else name
    )
    with pytest.raises(ImportError, match=r"tfrank_sel\[pipelines\]"):
        importlib.reload(sys.modules["pipelines"])
