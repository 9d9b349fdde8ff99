"""The configuration of a run: what it holds, and what it refuses."""

import pathlib
import re

import keras
import pytest
import typer
from typer.testing import CliRunner

from tests import refusals
from tfrank_sel import losses
from tfrank_sel.arguments import Natural
from tfrank_sel.features import Number
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.candidates import Settings
from tfrank_sel.pipelines.commands import options
from tfrank_sel.pipelines.commands.options import Given, take_options
from tfrank_sel.pipelines.configuration import (
    Configuration,
    ConfigurationError,
    Override,
    load,
    reference,
    text,
    with_overrides,
)
from tfrank_sel.pipelines.configuration.section import option, option_name
from tfrank_sel.pipelines.configuration.training import TrainingSection
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.ingestion.inputs import columns
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.run import tuning


def with_set(*sets):
    return load(overrides=[Override.parse(x) for x in sets])


def test_the_default_is_that_of_the_settings_and_rules():
    configuration = load()
    assert configuration.settings == Settings()
    assert configuration.blessing == Rules()
    found = instantiate.candidate(configuration)
    assert [loss.name for loss in found.losses] == ["rg_cross_loss"]
    assert instantiate.baseline(configuration).loss.name == "rg_cross_loss"
    assert instantiate.baseline(with_set("evaluation.baseline=false")) is None


def test_the_command_prints_a_configuration_that_reads_as_the_default():
    printed = CliRunner().invoke(app, ["config", "--all"]).stdout
    kept = pathlib.Path(__file__).parents[2] / "pipelines" / "default.toml"
    assert printed == kept.read_text()
    assert load(kept).model_dump() == load().model_dump()
    for line in printed.splitlines():
        if " = " in line and not line.startswith("#"):
            before = printed[: printed.index(line)].rstrip("\n").splitlines()[-1]
            assert before.startswith("# "), line


class OwnTraining(TrainingSection):
    """A section with one more key, declared by one line."""

    warm_up: Natural = option(3, "Number of epochs of warm-up.")


class OwnConfiguration(Configuration):
    training: OwnTraining = OwnTraining()


def test_a_key_is_declared_once():
    @take_options(*options.keys("training", of=OwnConfiguration))
    def command(given: Given) -> None:
        [(key, value, origin)] = [(x.key, x.value, x.origin) for x in given.overrides]
        print(OwnConfiguration.model_validate({"training": {"warm_up": value}}).training.warm_up)
        assert (key, origin) == ("training.warm_up", "--warm-up")

    own = typer.Typer()
    own.command()(command)
    assert CliRunner().invoke(own, ["--warm-up", "5"]).stdout == "5\n"
    shown = CliRunner().invoke(own, ["--help"]).stdout
    assert re.search(r"--warm-up +<int> +Number of epochs of warm-up\. +\[default: \(3\)\]", shown)
    assert "# Number of epochs of warm-up.\nwarm_up = 3\n" in text(OwnConfiguration())
    row = "| `training.warm_up` | `3` | Number of epochs of warm-up. |"
    assert row in reference(OwnConfiguration).splitlines()


def test_every_key_reaches_the_command_line_the_file_and_the_reference():
    printed, table = text(load()), reference().splitlines()[2:]
    fields = Configuration.by_key()
    assert [row.split("`")[1] for row in table] == list(fields)
    told = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    for key, field in fields.items():
        assert field.description, key
        assert (
            f"\n{key.rpartition('.')[2]} = " in printed.replace("\n# ", "\n") or key == "features"
        )
        if (name := option_name(key, field)) and key != "search.trials":
            assert f"--{name.replace('_', '-')} " in told, key


def test_files_of_an_unquoted_pattern_are_no_options_of_beam():
    files = ["--data", "a.parquet", "b.parquet", "--output", "run"]
    told = CliRunner().invoke(app, ["run", *files], env={"COLUMNS": "200"})
    assert told.exit_code == 2
    assert "Received: 'b.parquet'. Quote patterns of files" in told.stderr


def test_what_is_written_reads_as_the_same(tmp_path):
    sets = ["training.schedule={class='CosineDecay', warmup_steps=3}", "features.a.type=number"]
    sets += ["features.'b c'=category", "model.class=a:b", "model.depth=[1, 2]", "beam.options=-x"]
    configuration = with_set(*sets, "blessing.margin=inf", 'data.query=say "hi"')
    path = tmp_path / "written.toml"
    path.write_text(text(configuration))
    assert load(path).model_dump() == configuration.model_dump()


def test_the_example_of_the_guide_is_a_configuration(tmp_path):
    guide = pathlib.Path(__file__).parents[2] / "docs" / "search.md"
    path = tmp_path / "run.toml"
    path.write_text(guide.read_text().partition("```toml\n")[2].partition("```")[0])
    found = load(path)
    assert columns(found).types["age"] == Number(missing=0.0)
    for table in found.training.loss[:-1]:  # the last is of a file of the user
        assert instantiate.loss(table).name
    assert type(instantiate.optimizer(found.settings, 10)) is keras.optimizers.AdamW


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


@pytest.mark.parametrize(("set", "line"), refusals.of("configuration"))
def test_what_is_not_allowed_is_one_line_that_names_the_key(set, line):
    with pytest.raises(ConfigurationError) as caught:
        with_set(set)
    assert str(caught.value) == f"--set {set}: {line}"


@pytest.mark.parametrize(("keys", "line"), refusals.of("search"))
def test_a_key_that_cannot_vary_is_one_line(keys, line):
    with pytest.raises(ConfigurationError) as caught:
        tuning.check_ranges(with_set(f"search.keys={keys}"))
    [told] = str(caught.value).splitlines()
    assert line in told


def test_every_error_of_a_file_is_a_line(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[training]\nepochs = 0\nseed = 'x'\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value).splitlines() == [
        f"{path}: training.epochs must be positive. Received: 0",
        f"{path}: training.seed must be a valid integer. Received: 'x'",
    ]
    path.write_text("training = 5")
    with pytest.raises(ConfigurationError, match=r"run\.toml: training must be .* Received: 5"):
        load(path)
    path.write_text("epochs = = 2")
    with pytest.raises(ConfigurationError, match=r"run\.toml: expected TOML\. Received: Invalid"):
        load(path)
    with pytest.raises(ConfigurationError, match=r"none\.toml: expected a file\. Received: No"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(("set", "line"), refusals.of("classes"))
def test_classes_and_functions_that_cannot_be_used_are_one_line(set, line):
    configuration = with_set(set)
    make = instantiate.baseline if "baseline" in set else instantiate.candidate
    with pytest.raises(ConfigurationError) as caught:
        make(configuration)
    [told] = str(caught.value).splitlines()
    assert told.startswith(f"--set {set}: {line}")


def test_a_model_without_the_arguments_of_the_section_is_refused():
    model = "tfrank_sel.pipelines.candidates:list_scorer"
    with pytest.raises(ConfigurationError, match=r"a function of \(preparation, settings, depth\)"):
        instantiate.candidate(with_set(f"model.class={model}", "model.depth=2"))


def test_classes_are_made_with_their_arguments():
    scaling = "{class='Exp', scale=1.5}"
    found = instantiate.loss(
        with_set(
            f"training.loss={{class='SelectiveSoftmaxLoss', scaling={scaling}, label_map='gain'}}",
            "training.loss.label_map.class=gain",
        ).training.loss[0]
    )
    assert isinstance(found, losses.SelectiveSoftmaxLoss)
    assert found.scaling.scale == 1.5
    settings = Settings(optimizer={"class": "SGD", "momentum": 0.5}, learning_rate=0.2)
    made = instantiate.optimizer(settings, 10)
    assert (type(made), made.momentum) == (keras.optimizers.SGD, 0.5)
    assert made.use_ema
    assert made.weight_decay * 0.2 * 10 == pytest.approx(settings.weight_decay)
    own = Settings(optimizer={"class": "AdamW", "weight_decay": 0.1})
    assert instantiate.optimizer(own, 10).weight_decay == 0.1
    rate = instantiate.optimizer(Settings(schedule={"class": "CosineDecay"}), 10)._learning_rate
    assert (rate.initial_learning_rate, rate.decay_steps) == (1e-3, 10 * Settings().epochs)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (
            "evaluation.gain=x",
            "evaluation.gain must be 'exponential' or 'linear', or a valid n",
        ),
        ("blessing.champion=3", "blessing.champion must be a valid string, or False"),
        ("data.split=[1, 2]", "data.split must have at least 3 items"),
    ],
)
def test_an_error_of_a_value_of_several_types_is_one_line_of_its_key(setting, line):
    with pytest.raises(ConfigurationError) as error:
        with_set(setting)
    [told] = str(error.value).splitlines()
    assert told.startswith(f"--set {setting}: {line}")


def test_what_is_omitted_leaves_a_feature():
    both = 'features.a="number"', 'features.b="number"'
    assert {*with_set(*both, 'data.omit=["a"]').features} == {"b"}
    with pytest.raises(ConfigurationError, match=r"data.omit must leave a feature.*a, b"):
        with_set(*both, 'data.omit=["a", "b"]')


def test_a_loss_that_is_not_the_default_stays_with_a_region(tmp_path):
    named = "training.loss=[{class='LambdaLoss'}]", "evaluation.baseline={class='LambdaLoss'}"
    kept = with_set("training.region=0.1", *named)
    for one in (kept, with_overrides(kept, [Override.parse("training.epochs=3")])):
        assert one.training.loss == [{"class": "LambdaLoss"}]
        assert one.evaluation.baseline == {"class": "LambdaLoss"}
    printed = text(load())
    (tmp_path / "set.toml").write_text(printed)
    (tmp_path / "uncommented.toml").write_text(printed.replace("# region = 0.1", "region = 0.1"))
    region = Override.parse("training.region=0.1")
    for one in (
        with_overrides(load(), [region]),
        load(tmp_path / "set.toml", [region]),
        load(tmp_path / "uncommented.toml"),
    ):
        assert one.training.loss == [{"class": "design"}]
        assert one.evaluation.baseline == {"class": "MeanSquaredLoss", "lower": "region"}


def test_a_section_may_be_set_as_a_whole():
    assert with_set("training={epochs=1}").training.loss == load().training.loss
    named = with_set("training={loss=[{class='ListNetLoss'}]}")
    assert named.training.loss == [{"class": "ListNetLoss"}]


def test_secrets_of_addresses_are_not_in_errors():
    with pytest.raises(ConfigurationError) as error:
        with_set("data.query=3", "data.schema=['https://me:SECRET@host/a?sig=SECRET']")
    assert "https://host/a" in str(error.value)
    assert "SECRET" not in str(error.value)
