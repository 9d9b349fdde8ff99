"""Runs by a configuration: what is refused before they start, and that it makes them again."""

import json
import subprocess
import sys

import keras
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests import refusals
from tests.pipelines.test_configuration import with_set
from tests.pipelines.test_main import small_set
from tfrank_sel import data
from tfrank_sel.data import requests, synthetic, typed, writing
from tfrank_sel.features import Category, Number, of_config
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.candidates import Candidate
from tfrank_sel.pipelines.configuration import ConfigurationError, load
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.inputs import columns, inputs
from tfrank_sel.pipelines.learning import instantiate

TABLE = "session,clicks,price,brand\na,1,2.5,x\na,0,1.5,y\nb,0,3.0,x\nb,1,2.0,x\n"
MODULE = """
from tfrank_sel import losses, models

def make_model(preparation, settings, scale):
    network = models.Perceptron(settings.hidden_units, num_heads=0)
    return models.Prepared(preparation, network, name=f"mine_{scale}")

def make_loss(k):
    return losses.SmoothTopKLoss(k, name="mine")
"""
OF_ALL_TYPES = """\
[data]
data = ["{folder}/clicks.parquet"]
query = "session"
label = "clicked"
doc_id = "item"
weight = "weight"
slice_by = ["device"]

[features]
price = "number"
rating = {{ type = "number", missing = 3.0 }}
in_stock = "bool"
brand = "category"
device = {{ type = "category", of = "query", encoding = "one_hot" }}
tags = {{ type = "set", max_values = 4 }}
seller = {{ type = "hash", buckets = 500 }}
embedding = {{ type = "vector", size = 8 }}
published_at = {{ type = "timestamp", since = "shown_at" }}
shown_at = {{ type = "timestamp", of = "query", parts = true }}
"""


def refused(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ({"class": "OrdinalLoss", "ordinal_size": 2}, "ordinal_loss_ordinal_size_2 must accept"),
        (
            {"class": "FenchelYoungLoss", "link": "Sigmoid", "label_map": "Identity"},
            "must be finite for the labels, where padding is NaN",
        ),
        ({"class": "keras.losses:Huber"}, "must be finite for the labels"),
    ],
    ids=["shape", "range", "padding"],
)
def test_a_loss_must_take_the_labels_that_are_found(loss, reason):
    table = {x: {"class": y} if x in ("link", "label_map") else y for x, y in loss.items()}
    with pytest.raises(ValueError, match=reason):
        Candidate(instantiate.loss(table)).check([0.0, 1.0, 4.0])


def test_a_loss_is_tried_on_the_labels_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr("tfrank_sel.training.fitting.train", None)  # not called
    files = [f"--{split}={path}" for split, path in small_set(tmp_path).items()]
    loss = "training.loss={class = 'OrdinalLoss', ordinal_size = 2}"
    line = refused("run", *files, "--output", tmp_path / "out", "--set", loss)
    assert line.startswith("train: ordinal_loss_ordinal_size_2 must accept the labels")
    assert "Received: labels from 0 to 2. " in line
    assert not (tmp_path / "out" / "train").exists()


@pytest.mark.parametrize(("options", "line"), refusals.of("columns"))
def test_wrong_columns_are_one_line_before_anything_is_read(
    table, tmp_path, monkeypatch, options, line
):
    monkeypatch.setattr(instantiate, "candidate", None)  # not called
    named = ["--query", "session", "--label", "clicks", "--data", table]
    given = named[:4] if "--data" in options else named
    told = refused("run", "--output", tmp_path / "out", *given, *options)
    assert told.endswith(line.format(table))
    assert sorted(tmp_path.iterdir()) == [table]


def test_wrong_columns_are_told_without_tensorflow(table, tmp_path):
    script = (
        "import sys; from tfrank_sel.pipelines.__main__ import app\n"
        "try: app()\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'tensorflow', 'keras', 'apache_beam'} & set(sys.modules)))"
    )
    options = ["--data", table, "--query", "session", "--label", "click"]
    command = [sys.executable, "-c", script, "run", "--output", tmp_path / "out", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2 []\n"
    assert len(done.stderr.splitlines()) == 1


def test_columns_and_types_are_those_of_the_configuration(table):
    sets = ["data.query=session", "data.label=clicks", f"data.data={table}", "data.weight=price"]
    configuration = with_set(*sets, "features.brand={type='category', min_count=1}")
    found = inputs(configuration)
    assert found.shares == {"train": 0.8, "validation": 0.1, "test": 0.1}
    assert found.columns.features == {"brand": Category(min_count=1)}
    assert found.columns.weight == "price"
    assert found.schema().texts == ["brand"]
    assert columns(with_set("features.price={type='number', missing='refuse'}")).types == {}
    with pytest.raises(ConfigurationError, match="`since` of 'brand' must name a feature"):
        columns(with_set("features.brand={type='timestamp', since='shown'}"))


def test_the_command_proposes_types_for_the_columns_of_a_file(table, tmp_path):
    options = ["--data", str(table), "--query", "session", "--label", "clicks"]
    result = CliRunner().invoke(app, ["config", *options])
    assert result.exit_code == 0
    path = tmp_path / "run.toml"
    path.write_text(result.stdout)
    configuration = load(path)
    found = {name: of_config(x) for name, x in configuration.features.items()}
    assert found == {"price": Number(), "brand": Category()}
    assert (configuration.data.query, configuration.data.label) == ("session", "clicks")
    assert "data.query must be a column of" in refused("config", "--data", table)


def weights(folder):
    model = keras.models.load_model(folder / "train" / "ours.keras", compile=False)
    return [np.asarray(x) for x in model.weights]


@pytest.mark.long
def test_a_click_log_of_all_types_becomes_a_model_that_takes_its_columns(tmp_path):
    table = synthetic.clicks(4_000)
    pyarrow.parquet.write_table(table, tmp_path / "clicks.parquet")
    (tmp_path / "run.toml").write_text(OF_ALL_TYPES.format(folder=tmp_path))
    sets = ["training.epochs=2", "evaluation.baseline=false"]
    sets += ["beam.shard_bytes=100000", "model.trees.num_iterations=3"]
    options = [word for x in sets for word in ("--set", x)]
    output = tmp_path / "run"
    result = CliRunner().invoke(
        app, ["run", "--config", str(tmp_path / "run.toml"), "--output", str(output), *options]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    types = load(output / "config.toml").features
    model = output / "serving" / "ranker" / "1"
    manifest = json.loads((model / "assets.extra" / "manifest.json").read_text())
    served = {name: of_config(x) for name, x in manifest["features"]["types"].items()}
    assert served == {name: of_config(x) for name, x in types.items()}
    of_train = json.loads((output / "analyze" / "statistics" / "train.json").read_text())
    known = (model / "assets" / "brand.txt").read_text().split()
    assert set(known) == {x for x, count in of_train["texts"]["brand"].items() if count > 1}
    shards = folders.shards(output / "ingest" / "records" / "train")
    assert len(shards) > 1
    lists = stored_lists.lists(shards, data.FeatureSpec(15, num_texts=7, weight="weight"))
    found = {(one.texts[0, 1], *one.weights.tolist()) for one in lists}
    assert {x[0] for x in found} == {"desktop", "phone", "tablet", "tv"}
    assert all(set(weights) == {0.5 if device == "tv" else 1.0} for device, *weights in found)
    report = (output / "report.html").read_text()
    assert "device tablet" in report
    assert "published_at[age]" in report
    assert "Validation NDCG at 10 by tree" in report
    fits = json.loads((output / "train" / "training.json").read_text())["ours"]["fits"]
    names = ["rg_cross_loss", "mean_squared_loss_trees", "rg_cross_loss_trees"]
    assert [x["loss"] for x in fits] == names
    lines = (output / "export" / "one_query.jsonl").read_text().splitlines()
    items = requests.read(output / "export" / "one_query.jsonl")
    assert {*json.loads(lines[0])} == {*types, "doc_id"}
    one = requests.item_list(items, served)
    example = writing.serialize_elwc(typed.values(one, served), typed.list_features(served))
    signature = tf.saved_model.load(str(model)).signatures["serving_default"]
    scores = signature(examples=tf.constant([example]))["scores"].numpy()[0]
    assert len(set(scores.tolist())) == len(lines) > 1


@pytest.mark.long
def test_the_file_of_a_run_makes_the_same_model_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    splits = small_set(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "run.toml").write_text(
        """
        modules = "mine.py"
        [data]
        train = "train.txt.gz"
        validation = "validation.txt.gz"
        test = "test.txt.*"
        [model]
        class = "mine:make_model"
        hidden_units = [4]
        scale = 2
        [training]
        epochs = 1
        batch_size = 8
        max_items = 3
        truncation = "top"
        optimizer = {class = "AdamW", weight_decay = 0.01}
        schedule = {class = "CosineDecay"}
        loss = [
            {class = "SelectiveSoftmaxLoss", scaling.class = "Exp", label_map.class = "gain"},
            {class = "mine:make_loss", k = 2},
        ]
        [evaluation]
        baseline = false
        [blessing]
        min_value = 0.0
        """
    )
    options = ["--set", "training.seed=7"]
    for config, output in (("run.toml", "1"), (tmp_path / "1" / "config.toml", "2")):
        result = CliRunner().invoke(
            app, ["run", "--config", str(config), "--output", str(tmp_path / output), *options]
        )
        assert result.exit_code in (0, 3), (result.output, result.exception)
        options = []
        monkeypatch.chdir("/")  # the paths that are kept are absolute
    first, second = (tmp_path / name for name in ("1", "2"))
    kept = load(first / "config.toml")
    assert (kept.training.seed, kept.data.train) == (7, [str(splits["train"])])
    assert kept.modules == [str(tmp_path / "mine.py")]
    assert (first / "config.toml").read_text() == (second / "config.toml").read_text()
    for one, other in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(weights(first)) > 2 * 4  # those of two networks, and trees
    training = json.loads((first / "train" / "training.json").read_text())
    assert training["ours"]["model"] == "ensemble"
    assert [fit["loss"] for fit in training["ours"]["fits"]] == [
        "selective_softmax_loss_scaling_exp_label_map_signed_expm1_scale_0_6931471805599453",
        "mine",
        "mean_squared_loss_trees",
        "rg_cross_loss_trees",
    ]
