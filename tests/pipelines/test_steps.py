import dataclasses
import importlib
import importlib.util
import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from tfrank_sel import data, export, models
from tfrank_sel.data import elwc, letor, synthetic
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import Category, Vector
from tfrank_sel.models import summary
from tfrank_sel.pipelines.analysis import schema, statistics
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation.saved import RecordScorer
from tfrank_sel.pipelines.export import requests
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import ingest, step, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import Source
from tfrank_sel.pipelines.learning import preparation

LAYOUT = Schema({"features": Vector(size=6)})
SPEC = data.FeatureSpec(num_features=6)
SCHEMA = Schema({"features": Vector(size=6)})


@pytest.fixture(scope="module")
def lists():
    return list(synthetic.lists(40, num_features=6, max_list_size=30, seed=2))


@pytest.fixture(scope="module")
def shards(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("records")
    return stored_in(folder, lists)


def stored_in(folder, lists):
    """Shards of lists."""
    letor.write(folder / "lists.txt", lists)
    inputs = ingest.Inputs([Source(str(folder / "lists.txt"), "train")])
    layout = Schema({"features": Vector(size=lists[0].features.shape[1])})
    return ingest.ingest(inputs, layout, folder).shards["train"]


def test_statistics_equal_those_of_numpy(tmp_path, lists, shards):
    found = statistics.summarise({"train": shards}, SPEC, tmp_path)["train"]
    features = np.concatenate([one.features for one in lists]).astype(np.float64)
    labels = np.concatenate([one.labels for one in lists])
    compressed = np.sign(features) * np.log1p(np.abs(features))
    expected = {
        "min": features.min(axis=0),
        "mean": features.mean(axis=0),
        "max": features.max(axis=0),
        "std": features.std(axis=0),
        "zeros": np.zeros(6),
        "missing": np.zeros(6),
        "compressed_mean": compressed.mean(axis=0),
        "compressed_variance": compressed.var(axis=0),
    }
    assert set(found.features) == {*expected, *statistics.SHARES}
    for name, values in expected.items():
        np.testing.assert_allclose(found.features[name], values, rtol=1e-9, err_msg=name)
    for name, share in statistics.SHARES.items():
        exact = np.quantile(features, share, axis=0, method="inverted_cdf")
        np.testing.assert_allclose(found.features[name], exact, rtol=1 / 8, err_msg=name)
    assert [sum(one.values()) for one in found.histograms] == [len(labels)] * 6
    assert found.labels == {f"{g:g}": int(np.sum(labels == g)) for g in np.unique(labels)}
    assert (found.lists, found.items) == (40, len(labels))
    assert found.comparable_lists == sum(len(set(one.labels)) > 1 for one in lists)
    assert sum(size * count for size, count in found.list_sizes.items()) == len(labels)
    assert statistics.Statistics.load(tmp_path / "train.json") == found


def test_statistics_do_not_depend_on_the_bundles(lists):
    values = np.random.default_rng(0).normal(1e6, 1.0, (50, 2))
    parts = [summary.Moments.of(part) for part in np.split(values, [0, 1, 30])]
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    np.testing.assert_allclose(total.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(total.variance(), values.var(axis=0), rtol=1e-6)


def test_anomalies_name_feature_rule_and_count(tmp_path, shards):
    found = statistics.summarise({"train": shards}, SPEC, tmp_path)["train"]
    inferred = schema.infer(found, SPEC, tmp_path / "schema.pbtxt")
    assert schema.load(tmp_path / "schema.pbtxt") == inferred
    assert schema.validate({"test": shards}, inferred, SPEC, tmp_path) == {"test": []}
    narrow = dataclasses.replace(found, labels={"0": 1, "3": 1})
    narrow.features["max"][1] = 0.0  # which all items exceed, being exp of something
    inferred = schema.infer(narrow, SPEC, tmp_path / "schema.pbtxt")
    [(label, feature)] = schema.validate({"test": shards}, inferred, SPEC, tmp_path).values()
    schema.write([label, feature], tmp_path / "anomalies.json")
    n, all_ = found.labels["4"], found.items
    expected, received = "values from 0 to 3, as in training", f"{n} of {all_} items outside"
    assert label == Anomaly("relevance", "range", expected, received, n, n / all_)
    assert (feature.feature, feature.rule, feature.count) == ("features[2]", "range", all_)
    written = json.loads((tmp_path / "anomalies.json").read_text())
    assert [(x["rule"], x["action"]) for x in written] == [("range", "warn")] * 2


def test_features_that_hardly_vary_do_not_blow_up_the_scaling(tmp_path):
    """A constant, one but for rounding, and one that varies in the last digit of float32."""
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 4)).astype(np.float32)
    features[:, 0], features[:, 1] = 0.1, 1e6
    features[::2, 1] = np.nextafter(np.float32(1e6), np.float32(2e6))
    features[:, 2] *= 1e-3
    labels = (np.arange(3) == 0).astype(np.float32)
    lists = [
        data.ItemList(f"q{i}", labels, rows, ("a", "b", "c"))
        for i, rows in enumerate(np.split(features, 100))
    ]
    shards = stored_in(tmp_path, lists)
    found = statistics.summarise({"train": shards}, data.FeatureSpec(4), tmp_path)["train"]
    layout = Schema({"features": Vector(size=4)})
    prepared = preparation.fit_preparation(found, layout, within_list=True)
    assert prepared.variance[:2] == [0.0, 0.0]
    assert min(prepared.variance[2:]) > 0.0
    model = models.ListScorer(prepared.mean, prepared.variance, [8])
    scores = model(features.reshape(100, 3, 4))
    assert np.abs(scores).max() < 20.0


def test_a_served_model_scales_raw_features_itself(tmp_path, lists, shards):
    """What training computed on Beam travels in the SavedModel: serving has no other scaling."""
    found = statistics.summarise({"train": shards}, SPEC, tmp_path)["train"]
    mean, variance = (found.features[f"compressed_{name}"] for name in ("mean", "variance"))
    model = models.Scorer(mean, variance, [4])
    model.build((None, None, 6))
    export.export(model, SPEC, tmp_path / "model")
    raw = next(one.features for one in lists if len(one.labels) > 5)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["predict"]
    scores = served(features=tf.constant(raw[None]), mask=tf.constant([[True]]))["scores"][0]
    values = (np.sign(raw) * np.log1p(np.abs(raw)) - mean) / np.sqrt(variance)
    *kernels, last = [
        layer.get_weights() for layer in (*model.network._hidden, model.network._score)
    ]
    for kernel, bias in kernels:
        values = np.maximum(values @ kernel + bias, 0.0)
    np.testing.assert_allclose(scores, (values @ last[0] + last[1])[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_a_saved_model_of_other_weights_is_not_let_through(tmp_path, shards):
    model, other = (models.ListScorer([0.0] * 6, [1.0] * 6, [4]) for _ in range(2))
    for scorer in (model, other):
        scorer.build((None, None, 6))
    export.export(model, SPEC, tmp_path / "model")
    arguments = {"schema": SCHEMA, "shards": shards, "lists": 8}
    exported = RecordScorer(str(tmp_path / "model"), SCHEMA.features)
    assert requests.infra_validate(exported, model, **arguments) <= 1e-5
    with pytest.raises(ValueError, match="must score as the model does"):
        requests.infra_validate(exported, other, **arguments)


def test_the_synthetic_set_has_its_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "SYNTHETIC_LISTS", {"train": 5, "validation": 2, "test": 3})
    made = step.synthesise(tmp_path / "synthetic", 1, Progress(Console(quiet=True)))
    assert [source.split for source in made.sources] == ["train", "validation", "test"]
    ids = [[one.query_id for one in letor.read(source.path, 20)] for source in made.sources]
    assert [len(part) for part in ids] == [5, 2, 3]
    assert len({query_id for part in ids for query_id in part}) == 10


def test_a_server_is_sent_the_lists_that_are_stored(shards):
    found = requests.first_lists(shards, SCHEMA, 3)
    parsed = elwc.parse(tf.constant(found), SPEC)
    for i, one in zip(range(3), stored_lists.lists(shards, SPEC), strict=False):
        size = len(one.labels)
        np.testing.assert_array_equal(parsed["features"][i, :size], one.features)
        assert parsed["doc_id"][i, :size].numpy().tolist() == [x.encode() for x in one.doc_ids]


def test_without_pyarrow_the_import_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else name
    )
    with pytest.raises(ImportError, match=r"tfrank_sel\[pipelines\]"):
        importlib.reload(sys.modules["tfrank_sel.pipelines"])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"a": 9}, "two values of 'brand', or one and items without. Received: 'a' for all 9"),
        ({"": 9}, "two values of 'brand'"),
        ({"a": 1, "b": 1, "": 7}, "a value of 'brand' that occurs 2 times. Received: at most 1"),
    ],
)
def test_a_category_that_tells_nothing_apart_is_refused(tmp_path, shards, counts, message):
    found = statistics.summarise({"train": shards}, SPEC, tmp_path)["train"]
    layout = Schema({"features": Vector(size=6), "brand": Category()})
    alone = dataclasses.replace(found, texts={"brand": counts})
    with pytest.raises(data.InputError, match=message):
        preparation.fit_preparation(alone, layout, within_list=False)
    known = dataclasses.replace(found, texts={"brand": {"a": 2, "": 7}})
    made = preparation.fit_preparation(known, layout, within_list=False)
    assert made.vocabularies == {"brand": ["a"]}


def test_a_preparation_keeps_the_vocabularies_and_indicators_of_the_one_before(tmp_path, shards):
    found = statistics.summarise({"train": shards}, SPEC, tmp_path)["train"]
    kinds = {"features": Vector(size=6), "brand": Category(max_size=3), "kind": Category()}
    counts = {"brand": {"d": 9, "b": 5, "c": 7}, "kind": {"k": 9}}
    counted = dataclasses.replace(found, texts=counts)
    known, missing = {"brand": ["a", "b"], "kind": ["j"]}, ["features"]
    before = models.Preparation([0.5] * 6, [1.0] * 6, False, kinds, known, missing)

    def made(**options):
        layout = Schema({**kinds, "brand": Category(**options)})
        return preparation.fit_preparation(counted, layout, within_list=False, before=before)

    # "d" is more frequent than "c", and a value that is no longer there keeps its place
    assert made().vocabularies == {"brand": ["a", "b", "d", "c"], "kind": ["j", "k"]}
    assert made(max_size=3).vocabularies["brand"] == ["a", "b", "d"]
    assert made(max_size=1).vocabularies["brand"] == ["a", "b"]
    assert made().missing == ["features"]
    assert made().mean == pytest.approx(found.features["compressed_mean"])


def test_a_folder_that_a_killed_run_has_locked_is_new(tmp_path):
    (tmp_path / ".lock").touch()
    with folders.only_here(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    (tmp_path / "other").touch()
    with pytest.raises(data.InputError, match="must be new, empty"), folders.only_here(tmp_path):
        pass
