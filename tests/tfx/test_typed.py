"""Lists of typed features: from a configuration to a served model, as in a plain run."""

import json

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests.tfx.conftest import Run
from tfrank_sel import data
from tfrank_sel.data import writing
from tfrank_sel.data.formats import Columns, Part
from tfrank_sel.data.formats.tfrecords import SequenceExampleReader
from tfrank_sel.data.spec import input_name
from tfrank_sel.pipelines import configuration, preparation, training
from tfrank_sel.pipelines.analysis import statistics
from tfrank_sel.pipelines.configuration import inputs
from tfrank_sel.pipelines.ingestion import ingest
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.splits import Split
from tfrank_sel.pipelines.tfx import lists
from tfrank_sel.pipelines.tfx.__main__ import app

CONFIG = """
[data]
query = "search"
label = "gain"
weight = "importance"
list_weight = "traffic"
propensity = "examined"
slice_by = "country"

[features]
"unit price" = "number"
clicks = {type = "number", missing = "refuse"}
brand = {type = "category", max_size = 3}
shop = {type = "hash", buckets = 5}
tags = {type = "set", max_values = 2, encoding = "one_hot"}
embedding = {type = "vector", size = 2}
published = {type = "timestamp", since = "shown", parts = true}
shown = {type = "timestamp", of = "query"}
words = {type = "number", of = "query"}

[model]
hidden_units = [8]

[training]
epochs = 2
batch_size = 8
loss = "SoftmaxLoss"
"""

LISTS = 120


def fixed(kind, shape=(), missing=None):
    default = None if missing is None else np.full(shape, missing).tolist()
    return tf.io.FixedLenFeature(shape, kind, default)


STORED = data.ListFeatures(
    {
        "gain": fixed(tf.float32),
        "importance": fixed(tf.float32),
        "examined": fixed(tf.float32),
        "unit price": fixed(tf.float32, missing=np.nan),
        "clicks": fixed(tf.int64),
        "brand": fixed(tf.string, missing=""),
        "shop": fixed(tf.int64, missing=0),
        "tags": tf.io.RaggedFeature(tf.string),
        "embedding": fixed(tf.float32, [2], np.nan),
        "published": fixed(tf.int64, missing=0),
        "left_out": fixed(tf.float32),
    },
    {
        "search": fixed(tf.string),
        "traffic": fixed(tf.float32),
        "country": fixed(tf.string),
        "shown": fixed(tf.int64),
        "words": fixed(tf.int64),
    },
)


def one_list(query, random):
    """A list with every kind of feature; its first item lacks what may be missing."""
    size = int(random.integers(2, 6))
    price = random.normal(size=size)
    may_lack = {
        "unit price": price.tolist(),
        "brand": random.choice(["a", "b", "c", "d", "e"], size).tolist(),
        "shop": random.integers(0, 9, size).tolist(),
        "tags": [["new", "red", "old"][: i % 4] for i in range(size)],
        "embedding": random.normal(size=(size, 2)).tolist(),
        "published": random.integers(1_600_000_000, 1_700_000_000, size).tolist(),
    }
    for values in may_lack.values():
        values[0] = None
    return {
        **may_lack,
        "gain": np.clip(np.round(price + 1.0), 0.0, 2.0).tolist(),
        "importance": random.uniform(0.5, 2.0, size).tolist(),
        "examined": random.uniform(0.1, 1.0, size).tolist(),
        "clicks": random.integers(0, 50, size).tolist(),
        "left_out": [0.0] * size,
        "search": f"q{query}",
        "traffic": float(query % 3 + 1),
        "country": "de" if query % 2 else "fr",
        "shown": 1_700_000_000 + query,
        "words": query % 4,
    }


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(CONFIG)
    return inputs.columns(configuration.load(path))


@pytest.fixture(scope="module")
def trained():
    """What the pipeline trains is kept here."""
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained):
    folder = tmp_path_factory.mktemp("typed")
    random = np.random.default_rng(0)
    (folder / "data").mkdir()
    with tf.io.TFRecordWriter(str(folder / "data" / "lists.tfrecord")) as writer:
        for query in range(LISTS):
            writer.write(writing.serialize_sequence_example(one_list(query, random), STORED))
    (folder / "config.toml").write_text(CONFIG)
    train = training.train

    def kept(*args, **kwargs):
        trained.append(train(*args, **kwargs))
        return trained[-1]

    options = ["--data", str(folder / "data"), "--output", str(folder / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", kept)
        done = CliRunner().invoke(app, ["run", *options, "--config", str(folder / "config.toml")])
    assert done.exit_code == 0, (done.output, done.exception)
    return Run(folder / "out", done.stdout)


def read(run, split, columns, layout):
    """The lists of a split as a plain run reads them."""
    [file] = tf.io.gfile.glob(run.split(split))
    return [x.item_list for x in SequenceExampleReader(columns).lists(Part(file), layout)]


def test_the_preparation_is_that_of_a_plain_run(run, columns, tmp_path):
    found = json.loads((run.artefact("Scaling", "scaling") / "scaling.json").read_text())
    files = {"train": "train", "validation": "eval", "test": "test"}
    sources = [
        Source(file, split)
        for split, name in files.items()
        for file in tf.io.gfile.glob(run.split(name))
    ]
    read_alike = Inputs(sources, columns, format="sequence-example")
    layout = read_alike.layout()
    shards = ingest.ingest(read_alike, layout, tmp_path).shards
    types = layout.features
    statistics.summarise(shards, read_alike.spec(layout), tmp_path, features=types)
    split = Split.load(shards["train"], tmp_path / "train.json")
    wanted = preparation.prepared(split, layout, within_list=True).get_config()
    for name in ("mean", "variance"):
        np.testing.assert_allclose(found.pop(name), wanted.pop(name), rtol=1e-9, atol=1e-12)
    assert found == json.loads(json.dumps(wanted))
    assert list(found["vocabularies"]) == ["brand", "tags"]
    assert len(found["vocabularies"]["brand"]) == 3
    assert "unit price" in found["missing"]


def test_the_columns_travel_as_json(columns):
    assert Columns.from_config(json.loads(json.dumps(columns.get_config()))) == columns


def test_a_batch_is_read_as_a_plain_run_reads_it(run, columns):
    layout = run.layout(columns)
    batch = list(lists.records(run.split("test")))
    inputs, labels, weights = layout.inputs(tf.stack(batch))
    for row, one in enumerate(read(run, "test", columns, layout)):
        size = len(one.labels)
        np.testing.assert_array_equal(inputs["features"][row, :size], one.features)
        texts = np.vectorize(bytes.decode, otypes=[object])(inputs["texts"][row, :size])
        np.testing.assert_array_equal(texts, one.texts)
        np.testing.assert_array_equal(labels[row, :size], one.labels)
        np.testing.assert_array_equal(weights[row, :size], one.weights)
        assert inputs["mask"][row].numpy().sum() == size
        assert np.isnan(labels[row, size:]).all()


def test_a_weight_that_is_out_of_range_is_told(run, columns):
    layout = run.layout(columns)
    wrong = one_list(0, np.random.default_rng(0))
    wrong["examined"][0] = 0.0
    serialized = tf.constant([writing.serialize_sequence_example(wrong, STORED)])
    wanted = r"'examined' must be a number above 0, at most 1\. Received: 0\.0"
    with pytest.raises(ValueError, match=wanted):
        layout.inputs(serialized)


def test_the_evaluation_is_sliced_by_what_is_known_of_a_query(run):
    found = json.loads((run.artefact("Evaluator", "evaluation") / "metrics.json").read_text())
    assert {"country de", "country fr"} <= set(found["slices"])


def test_the_pushed_model_takes_the_features_by_name(run, columns):
    [version] = (run.output / "serving" / "ranker").iterdir()
    predict = tf.saved_model.load(str(version)).signatures["predict"]
    taken = predict.structured_input_signature[1]
    assert set(taken) == {*map(input_name, columns.features), "mask"}
    manifest = json.loads((version / "assets.extra" / "manifest.json").read_text())
    types = {name: feature.config() for name, feature in columns.features.items()}
    assert manifest["features"]["types"] == types


def test_the_served_scores_are_those_of_the_trained_model(run, trained, columns):
    [version] = (run.output / "serving" / "ranker").iterdir()
    signatures = tf.saved_model.load(str(version)).signatures
    layout = run.layout(columns)
    requests = lists.requests([run.split("test")], layout, 5)
    records = tf.stack(list(lists.records(run.split("test")).take(5)))
    inputs, *_ = layout.inputs(records)
    named, _ = layout.named(records)
    mask = inputs["mask"].numpy()
    wanted = trained[0].scores(inputs).numpy()[mask]
    assert np.ptp(wanted) > 0.0
    assert list(trained[0].model.preparation.features) == list(columns.features)
    for found in (
        signatures["serving_default"](examples=tf.constant(requests)),
        signatures["predict"](**named),
    ):
        np.testing.assert_allclose(found["scores"].numpy()[mask], wanted, rtol=1e-5, atol=1e-6)
