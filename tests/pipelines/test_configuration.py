"""The configuration of a run: what it refuses, and that it describes a run completely."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.pipelines.test_main import small_set
from tfrank_sel import losses
from tfrank_sel.features import Category, Number, of_config
from tfrank_sel.pipelines import classes, planning
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.configuration import ConfigurationError, Override, load, text
from tfrank_sel.pipelines.configuration.inputs import columns, inputs
from tfrank_sel.pipelines.evaluation.blessing import Rules

TABLE = "session,clicks,price,brand\na,1,2.5,x\na,0,1.5,y\nb,0,3.0,x\nb,1,2.0,x\n"
MODULE = """
from tfrank_sel import losses, models

def make_model(preparation, settings, scale):
    network = models.Perceptron(settings.hidden_units, num_heads=0)
    return models.Prepared(preparation, network, name=f"mine_{scale}")

def make_loss(k):
    return losses.SmoothTopKLoss(k, name="mine")
"""


def with_set(*sets):
    return load(overrides=[Override.parse(x) for x in sets])


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


def test_the_default_is_that_of_the_settings_and_rules():
    configuration = load()
    assert planning.settings(configuration) == Settings(hidden_units=[64, 32])
    assert planning.rules(configuration) == Rules()
    found = planning.candidate(configuration)
    assert [loss.name for loss in found.losses] == ["softmax_loss", "rg_cross_loss", "lambda_loss"]
    assert planning.baseline(configuration).loss.name == "softmax_loss"
    assert planning.baseline(with_set("evaluation.baseline=false")) is None


def test_the_command_prints_a_configuration_that_reads_as_the_default():
    printed = CliRunner().invoke(app, ["config"]).stdout
    kept = pathlib.Path(__file__).parents[2] / "pipelines" / "default.toml"
    assert printed == kept.read_text()
    assert load(kept).model_dump() == load().model_dump()
    for line in printed.splitlines():
        if " = " in line and not line.startswith("#"):
            before = printed[: printed.index(line)].rstrip("\n").splitlines()[-1]
            assert before.startswith("# "), line


def test_what_is_written_reads_as_the_same(tmp_path):
    sets = ["training.schedule={class='CosineDecay', warmup_steps=3}", "features.a.type=number"]
    sets += ["features.'b c'=category", "model.class=a:b", "model.depth=[1, 2]", "beam.options=-x"]
    configuration = with_set(*sets, "blessing.margin=inf", 'data.query=say "hi"')
    path = tmp_path / "written.toml"
    path.write_text(text(configuration))
    assert load(path).model_dump() == configuration.model_dump()


def test_set_replaces_what_the_file_says(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        "[training]\nepochs = 3\nloss = {class = 'SmoothTopKLoss', k = 2}\n"
        "[model]\nhidden_units = [8]\n"
    )
    overrides = ["training.loss.class=LambdaLoss", "model.class=Scorer", "training.patience=2"]
    found = load(path, map(Override.parse, [*overrides, "training.optimizer.weight_decay=0.1"]))
    assert found.training.loss == [{"class": "LambdaLoss"}]  # without the `k` of the other class
    assert (found.training.epochs, found.training.patience) == (3, 2)
    assert found.training.optimizer == {"class": "Adam", "weight_decay": 0.1}
    assert (found.model.class_, found.model.hidden_units) == ("Scorer", [8])
    assert load(path).training.loss == [{"class": "SmoothTopKLoss", "k": 2}]


@pytest.mark.parametrize(
    ("set", "line"),
    [
        (
            "training.epoch=3",
            "training has no such key. Accepted: epochs, loss, patience, batch_size, optimizer, "
            "learning_rate, schedule, averaging, max_items, truncation, seed. Received: 'epoch'",
        ),
        (
            "trainng.epochs=3",
            "the file has no such key. Accepted: training, modules, data, features, model, "
            "evaluation, blessing, serving, beam. Received: 'trainng'",
        ),
        (
            "model.hidden_unit=3",
            "model has no such key. Accepted: hidden_units, class, dropout, num_heads. "
            "Received: 'hidden_unit'",
        ),
        (
            "training.epochs=0",
            "training.epochs must be greater than or equal to 1. Received: 0",
        ),
        ("training.epochs=many", "training.epochs must be a valid integer. Received: 'many'"),
        (
            "training.loss=[]",
            "training.loss must be a loss, or a list of at least one. Received: []",
        ),
        (
            "training.truncation=heads",
            "training.truncation must be 'random', 'head' or 'top'. Received: 'heads'",
        ),
        (
            "training.loss=3",
            "training.loss must be the name of a class, or a table such as "
            '{class = "Name", argument = 1}. Received: 3',
        ),
        (
            "evaluation.baseline=true",
            "evaluation.baseline must be the name of a class, or a table such as "
            '{class = "Name", argument = 1}. Received: True',
        ),
        (
            "model.class=Scorrer",
            "model.class must be module:function, or one of Scorer, ListScorer. "
            "Received: 'Scorrer'",
        ),
        (
            "model.num_heads=5",
            "model `num_heads` must divide the last of `hidden_units` or be 0. "
            "Received: hidden_units=[64, 32], num_heads=5",
        ),
        (
            "features.price=numbr",
            "features.price must be a type of feature: `type` must be one of number, bool, "
            "category, hash, set, vector, timestamp. Did you mean 'number'? Received: 'numbr'",
        ),
        (
            "features.relevance=number",
            "data.label and features.relevance must name different columns. Received: "
            "'relevance' for both: the label as a feature tells the model the answer",
        ),
        (
            "data.doc_id=relevance",
            "data.label and data.doc_id must name different columns. "
            "Received: 'relevance' for both",
        ),
    ],
)
def test_what_is_not_allowed_is_one_line_that_names_the_key(set, line):
    with pytest.raises(ConfigurationError) as caught:
        with_set(set)
    assert str(caught.value) == f"--set {set}: {line}"


def test_every_error_of_a_file_is_a_line(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[training]\nepochs = 0\nseed = 'x'\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value).splitlines() == [
        f"{path}: training.epochs must be greater than or equal to 1. Received: 0",
        f"{path}: training.seed must be a valid integer. Received: 'x'",
    ]
    path.write_text("epochs = = 2")
    with pytest.raises(ConfigurationError, match=r"run\.toml: expected TOML\. Received: Invalid"):
        load(path)
    with pytest.raises(ConfigurationError, match=r"none\.toml: expected a file\. Received: No"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("set", "line"),
    [
        (
            "training.loss.class=SofmaxLoss",
            "training.loss.class must be one of SoftmaxLoss, UniqueSoftmaxLoss, MarginSoftmaxLoss",
        ),
        (
            "training.loss=[{class='RGCrossLoss'}, {class='SmoothTopKLoss', k=0}]",
            "training.loss[1]: SmoothTopKLoss cannot be made: `k` must be",
        ),
        (
            "training.loss={class='MatchingLoss', link={class='Expp'}}",
            "training.loss.link.class must be one of Exp, ",
        ),
        (
            "training.loss={class='SelectiveSoftmaxLoss', scaling={class='Exp', scale=1.5}}",
            "training.loss must say by `label_map` which score stands for a grade",
        ),
        ("training.loss.class=Exp", "training.loss must be an object of Loss. Received: Exp"),
        (
            "training.loss=['RGCrossLoss', 'RGCrossLoss']",
            "training.loss: `loss` must be one or several, of different names",
        ),
        (
            "training.loss.class=nowhere:make",
            "training.loss must name a function that can be imported",
        ),
        (
            "evaluation.baseline.class=SofmaxLoss",
            "evaluation.baseline.class must be one of SoftmaxLoss",
        ),
        ("training.optimizer.class=Adm", "training.optimizer.class must be one of Adam, "),
        (
            "training.schedule.class=Cosine",
            "training.schedule.class must be one of CosineDecay, ",
        ),
        ("model.class=math:nothing", "model.class must name a function that can be imported"),
        ("modules=none.py", "modules must be files that can be imported. Received: 'none.py'"),
    ],
)
def test_classes_and_functions_that_cannot_be_used_are_one_line(set, line):
    configuration = with_set(set)
    make = planning.baseline if "baseline" in set else planning.candidate
    with pytest.raises(ConfigurationError) as caught:
        make(configuration)
    [told] = str(caught.value).splitlines()
    assert told.startswith(f"--set {set}: {line}")


def test_a_model_without_the_arguments_of_the_section_is_refused():
    model = "tfrank_sel.pipelines.candidates:list_scorer"
    with pytest.raises(ConfigurationError, match=r"a function of \(preparation, settings, depth\)"):
        planning.candidate(with_set(f"model.class={model}", "model.depth=2"))


def test_classes_are_made_with_their_arguments():
    scaling = "{class='Exp', scale=1.5}"
    found = classes.loss(
        with_set(
            f"training.loss={{class='SelectiveSoftmaxLoss', scaling={scaling}, label_map='gain'}}",
            "training.loss.label_map.class=gain",
        ).training.loss[0]
    )
    assert isinstance(found, losses.SelectiveSoftmaxLoss)
    assert found.scaling.scale == 1.5
    settings = Settings(optimizer={"class": "SGD", "momentum": 0.5}, learning_rate=0.2)
    made = classes.optimizer(settings, 10)
    assert (type(made), made.momentum) == (keras.optimizers.SGD, 0.5)
    assert made.use_ema
    rate = classes.optimizer(Settings(schedule={"class": "CosineDecay"}), 10)._learning_rate
    assert (rate.initial_learning_rate, rate.decay_steps) == (1e-3, 10)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ({"class": "OrdinalLoss", "ordinal_size": 2}, "ordinal_loss_ordinal_size_2 must accept"),
        (
            {"class": "FenchelYoungLoss", "link": "Sigmoid", "label_map": "Identity"},
            "must be finite for the labels of the files, where padding is NaN",
        ),
        ({"class": "keras.losses:Huber"}, "must be finite for the labels of the files"),
    ],
    ids=["shape", "range", "padding"],
)
def test_a_loss_must_take_the_labels_that_are_found(loss, reason):
    table = {x: {"class": y} if x in ("link", "label_map") else y for x, y in loss.items()}
    with pytest.raises(ValueError, match=reason):
        Candidate(classes.loss(table)).check([0.0, 1.0, 4.0])


def test_a_loss_is_tried_on_the_labels_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr("tfrank_sel.pipelines.run.training.train", None)  # not called
    files = [f"--{split}={path}" for split, path in small_set(tmp_path).items()]
    loss = "training.loss={class = 'OrdinalLoss', ordinal_size = 2}"
    line = refused("run", *files, "--output", tmp_path / "out", "--set", loss)
    assert line.startswith("train: ordinal_loss_ordinal_size_2 must accept the labels")
    assert "Received: labels from 0 to 2, " in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--label", "click"],
            "--label: data.label must be a column of {}: clicks, session, price, brand. "
            "Received: 'click'",
        ),
        (
            ["--slice-by", "brands"],
            "--slice-by: data.slice_by[0] must be a column of {}: brand, session, clicks, price. "
            "Received: 'brands'",
        ),
        (
            ["--set", "features.prise=number"],
            "--set features.prise=number: features.prise must be a column of {}: price, session, "
            "clicks, brand. Received: 'prise'",
        ),
        (
            ["--set", "features.price={type='vector', size=2}"],
            "{}: expected a column 'price' that can be of type vector. Received: float",
        ),
        (
            ["--features", "price,clicks"],
            "data.label and features.clicks must name different columns. Received: 'clicks' for "
            "both: the label as a feature tells the model the answer",
        ),
        (["--data", "none.csv"], "none.csv: expected a file. Received: no such file"),
    ],
)
def test_wrong_columns_are_one_line_before_anything_is_read(
    table, tmp_path, monkeypatch, options, line
):
    monkeypatch.setattr(planning, "plan", None)  # not called
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
    assert found.layout().texts == ["brand"]
    assert columns(with_set("features.price={type='number', missing='refuse'}")).types is None
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
    model = keras.models.load_model(folder / "models" / "ours.keras", compile=False)
    return [np.asarray(x) for x in model.weights]


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
    assert len(weights(first)) == 2 * 4
    report = json.loads((first / "metrics.json").read_text())
    assert report["training"]["ours"]["model"] == "ensemble"
    assert [fit["loss"] for fit in report["training"]["ours"]["fits"]] == [
        "selective_softmax_loss_scaling_exp_label_map_signed_expm1_scale_0_6931471805599453",
        "mine",
    ]
