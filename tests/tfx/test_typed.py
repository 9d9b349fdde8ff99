"""Lists of typed features: from a configuration to a served model, as in a plain run."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tfx.conftest import run_pipeline
from tfrank_sel import data
from tfrank_sel.data import writing
from tfrank_sel.data.formats import Columns, Part
from tfrank_sel.data.formats.binary import SequenceExampleReader
from tfrank_sel.data.spec import input_name
from tfrank_sel.features import Hash
from tfrank_sel.pipelines import configuration
from tfrank_sel.pipelines.analysis import statistics
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.ingestion import ingest, inputs
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.learning import preparation
from tfrank_sel.pipelines.tfx import base_models, local, sequences
from tfrank_sel.training import fitting

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

[blessing]
max_milliseconds = 10000.0
"""

LISTS = 120
LATER_BRANDS = {"a": "d", "b": "e", "c": "f", "d": "g", "e": "h"}


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


def made_lists():
    random = np.random.default_rng(0)
    return [one_list(query, random) for query in range(LISTS)]


def run_over(made, folder, *options):
    """Runs the pipeline over lists."""
    (folder / "data").mkdir()
    with tf.io.TFRecordWriter(str(folder / "data" / "lists.tfrecord")) as writer:
        for one in made:
            writer.write(writing.serialize_sequence_example(one, STORED))
    (folder / "config.toml").write_text(CONFIG)
    given = [f"--data={folder / 'data'}", f"--config={folder / 'config.toml'}"]
    return run_pipeline(folder / "out", *given, *options)


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
    made = made_lists()
    train = fitting.train

    def kept(*args, **kwargs):
        trained.append(train(*args, **kwargs))
        return trained[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "train", kept)
        return run_over(made, folder)


@pytest.fixture(scope="module")
def continued(run, tmp_path_factory):
    """A run that goes on from `run`, over the same numbers with other texts, and hardly trains."""
    folder = tmp_path_factory.mktemp("continued")
    (folder / "out").mkdir()
    shutil.copy(run.output / "metadata.sqlite", folder / "out")
    made = made_lists()
    for one in made:
        one["brand"] = [brand and LATER_BRANDS[brand] for brand in one["brand"]]
        one["tags"] = [x and ["sale" if tag == "new" else tag for tag in x] for x in one["tags"]]
    hardly = ["--epochs", "1", "--set", "training.learning_rate=1e-9"]
    hardly += ["--set", "training.weight_decay=0.0"]
    return run_over(made, folder, "--warm-start", *hardly)


def scaling(run):
    return json.loads((run.artefact("Scaling", "scaling") / "scaling.json").read_text())


def read(run, split, columns, layout):
    """The lists of a split as a plain run reads them."""
    [file] = tf.io.gfile.glob(run.split(split))
    return [x for some in SequenceExampleReader(columns).lists(Part(file), layout) for x in some]


def test_the_preparation_is_that_of_a_plain_run(run, columns, tmp_path):
    found = scaling(run)["preparation"]
    files = {"train": "train", "validation": "eval", "test": "test"}
    sources = [
        Source(file, split)
        for split, name in files.items()
        for file in tf.io.gfile.glob(run.split(name))
    ]
    read_alike = Inputs(sources, columns, format="sequence-example")
    layout = read_alike.schema()
    shards = ingest.ingest(read_alike, layout, tmp_path).shards
    types = layout.features
    statistics.summarise(shards, layout.spec, tmp_path, features=types)
    known = Statistics.load(tmp_path / "train.json")
    wanted = preparation.fit_preparation(known, layout, within_list=True).get_config()
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
    batch = list(sequences.records(run.split("test")))
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


def test_the_time_for_a_list_is_held_against_the_rules(run):
    found = json.loads((run.artefact("Evaluator", "evaluation") / "blessing.json").read_text())
    [check] = [x for x in found["checks"] if "(99th percentile)" in x["told"]]
    taken = found["beside"]["milliseconds"]["ours"]["p99"]
    assert check["told"].startswith(f"{taken:.1f} ms to score a list")
    assert found["beside"]["milliseconds"]["ours"]["p50"] > 0.0


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
    requests = sequences.requests([run.split("test")], layout, 5)
    records = tf.stack(list(sequences.records(run.split("test")).take(5)))
    inputs, *_ = layout.inputs(records)
    named, _ = layout.predict_inputs(records)
    mask = inputs["mask"].numpy()
    wanted = trained[0].scores(inputs).numpy()[mask]
    assert np.ptp(wanted) > 0.0
    assert list(trained[0].model.preparation.features) == list(columns.features)
    for found in (
        signatures["serving_default"](examples=tf.constant(requests)),
        signatures["predict"](**named),
    ):
        np.testing.assert_allclose(found["scores"].numpy()[mask], wanted, rtol=1e-5, atol=1e-6)


def vocabularies(run):
    return scaling(run)["preparation"]["vocabularies"]


def test_a_warm_start_keeps_the_integers_of_texts(run, continued):
    before, after = vocabularies(run), vocabularies(continued)
    assert before["tags"] == ["new", "red"]
    assert after["tags"] == ["new", "red", "sale"]
    assert after["brand"] == before["brand"]  # which has `max_size` texts


def test_a_warm_start_scores_as_the_blessed_model_does(run, continued, columns):
    inputs, *_ = run.layout(columns).inputs(tf.stack(list(sequences.records(run.split("test")))))
    mask = inputs["mask"].numpy()
    before, after = (
        keras.models.load_model(x.artefact("Trainer", "model") / "model.keras")(inputs)
        for x in (run, continued)
    )
    assert np.ptp(before.numpy()[mask]) > 0.0
    np.testing.assert_allclose(after.numpy()[mask], before.numpy()[mask], rtol=1e-5, atol=1e-6)


def test_the_blessed_model_is_the_champion_of_the_next(run, continued):
    folder = continued.artefact("Evaluator", "evaluation")
    assert json.loads((folder / "metrics.json").read_text())["against"] == "champion"
    found = json.loads((folder / "blessing.json").read_text())
    assert any(", champion " in x["told"] for x in found["checks"])
    assert found["beside"]["milliseconds"].keys() == {"ours", "champion"}
    assert 0.0 <= found["beside"]["top_10_agreement"] <= 1.0
    blessing = local.latest(continued.output / "metadata.sqlite", "ModelBlessing")
    champion = blessing.custom_properties["baseline_model"].string_value
    assert champion == str(run.artefact("Trainer", "model"))


def test_what_a_warm_start_needs_is_not_pushed(continued):
    kept = {x.name for x in continued.artefact("Trainer", "model").iterdir()}
    assert kept == {"Format-Serving", "model.keras", "scaling.json"}
    [version] = (continued.output / "serving" / "ranker").iterdir()
    assert not [*version.rglob("model.keras"), *version.rglob("scaling.json")]


def test_the_data_is_held_against_that_of_the_champion(run, continued):
    artefact = str(run.artefact("Trainer", "model"))
    assert base_models.statistics(artefact) == Statistics.of(scaling(run)["statistics"])
    assert "of those of the champion's training. Received:" in " ".join(continued.stdout.split())


def test_a_base_model_of_other_features_is_refused(run, columns):
    artefact = str(run.artefact("Trainer", "model"))
    known = run.layout(columns).features
    assert base_models.preparation(artefact, known).vocabularies == vocabularies(run)
    other = {**known, "brand": Hash(buckets=5)}
    with pytest.raises(data.InputError, match=r"model/\d+: .*features of the lists.* brand$"):
        base_models.preparation(artefact, other)


def test_a_base_model_that_was_not_kept_is_told(tmp_path):
    for needed in (lambda x: base_models.preparation(x, {}), base_models.model):
        with pytest.raises(data.InputError, match=rf"^{tmp_path}: .* Run once without"):
            needed(str(tmp_path))
