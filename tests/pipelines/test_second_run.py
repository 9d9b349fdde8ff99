"""The second run in a folder: continued, repeated or interrupted, it ends as a first one does."""

import dataclasses
import json
import re
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.pipelines import second_run
from tests.pipelines.second_run import configured, graded, results
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration import Configuration, load
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.reporting import report
from tfrank_sel.pipelines.run.plan import Plan, state
from tfrank_sel.pipelines.run.steps import STEPS, RunStep

SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}
# which change where and how a step runs, not what it finds
BESIDE = {"beam.runner", "beam.options", "beam.shard_bytes", "training.workers"}
# values of keys whose types do not tell another one
OTHERS: dict[str, Any] = {
    "data.split": [50.0, 25.0, 25.0],
    "features": {"x": "number"},
    "gates.features": {"x": {"missing": "off"}},
    "model.class": "Scorer",
    "model.hidden_units": [8],
    "model.trees": {"num_leaves": 5},
    "training.loss": [{"class": "LambdaLoss"}],
    "training.optimizer": {"class": "SGD"},
    "evaluation.baseline": False,
    "evaluation.gain": "linear",
    "search.keys": {"training.learning_rate": {"low": 0.1, "high": 0.2}},
}


def read_by(step: RunStep) -> set[str]:
    """The keys, and sections, on which a step depends by itself or by the steps before it."""
    return {*step.keys}.union(*(read_by(STEPS[name]) for name in step.after))


def is_of(key: str, keys: set[str]) -> bool:
    return any(f"{key}.".startswith(f"{x}.") for x in keys)


def another(key: str, field: Any, value: Any) -> Any:
    """Another value of a key."""
    if key in OTHERS:
        return OTHERS[key]
    if value is None:
        return field.examples[0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return type(value)(value + 1) if value < 1e9 else 1.0
    if key.startswith("gates."):
        return {**value, "action": "off"} if isinstance(value, dict) else "off"
    if isinstance(value, list):
        return [*value, "more"]
    accepted = [x for x in typing.get_args(field.annotation) if isinstance(x, str)]
    return next((x for x in accepted if x != value), f"{value}x")


def changed(configuration: Configuration, key: str, value: Any) -> Configuration:
    """A configuration with another value, which must not fit to the others."""
    name, _, rest = key.partition(".")
    if not rest:
        return configuration.model_copy(update={name: value})
    section = getattr(configuration, name)
    own = {of_alias(section, rest): value}
    return configuration.model_copy(update={name: section.model_copy(update=own)})


def of_alias(section: Any, key: str) -> str:
    """The field of a key."""
    return next(x for x, y in type(section).model_fields.items() if (y.alias or x) == key)


def test_a_step_depends_on_the_keys_that_it_reads(finished):
    _, told = finished
    assert {*told.reads} == {*STEPS}
    for name, keys in told.reads.items():
        assert keys, name
        assert not [x for x in keys if not is_of(x, read_by(STEPS[name]) | BESIDE)], name
    assert {"blessing.metric", "serving.model_name"} <= {*told.reads["export"]}


def test_each_key_makes_the_steps_that_read_it_and_the_report_stale(finished):
    output, told = finished
    job = Job.of(load(output / "config.toml"), output)
    assert not Plan.of(job).is_due()
    there = {"modules": [__file__], "data.schema": str(output / "analyze" / "schema.pbtxt")}
    there |= dict.fromkeys(("data.reference", "data.continue_from"), str(output))
    for key, field in Configuration.by_key().items():
        value = job.configuration
        for part in key.split("."):
            value = getattr(value, of_alias(value, part))
        other = changed(job.configuration, key, there.get(key) or another(key, field, value))
        plan = Plan.of(Job(other, job.inputs, output))
        assert plan.is_due(), key
        late = {x for x, step in STEPS.items() if is_of(key, read_by(step))}
        assert {*plan.stale} == late, key
        assert key in BESIDE or {x for x, keys in told.reads.items() if key in keys} <= late, key


@pytest.mark.long
def test_a_report_is_of_the_run_as_it_is(finished, tmp_path, monkeypatch):
    output = Path(shutil.copytree(finished[0], tmp_path / "out"))
    page, options = output / "report.html", ["run", "--output", str(output)]
    whole = page.read_text()
    monkeypatch.setattr(report, "write", lambda run, mark: page.write_text(mark))
    for damaged in ("", whole.rpartition("<!--")[0], whole[: len(whole) // 2]):
        page.write_text(damaged)
        assert "done report" in CliRunner().invoke(app, options).stdout
        assert "done report" not in CliRunner().invoke(app, options).stdout
    told = json.loads((output / "push" / "pushed.json").read_text())
    stricter = ["--set", "blessing.min_value=0.99999"]
    pushed = CliRunner().invoke(app, ["push", "--output", str(output), *stricter])
    assert pushed.exit_code == 3, pushed.output
    assert json.loads((output / "push" / "pushed.json").read_text())["blessed"] != told["blessed"]

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(report, "write", interrupted)
        assert CliRunner().invoke(app, options).exit_code == 130
    assert "done report" in CliRunner().invoke(app, options).stdout


def test_a_run_is_the_same_in_another_folder(finished, tmp_path):
    output = Path(shutil.copytree(finished[0], tmp_path / "out"))
    one, other = (Job.of(load(x / "config.toml"), x) for x in (finished[0], output))
    assert state(one) == state(other)


def test_a_path_is_the_same_from_any_folder(finished, monkeypatch):
    output, _ = finished
    monkeypatch.chdir(output.parent)
    names = ("train", "validation", "test")
    files = [x for name in names for x in (f"--{name}", f"{name}.txt.gz")]
    told = CliRunner().invoke(app, ["run", *files, "--output", str(output), "--dry-run"])
    assert "keep ingest" in told.stdout, told.output


def test_a_run_that_is_damaged_hides_no_other(finished, tmp_path):
    for name in "ab":
        shutil.copytree(finished[0], tmp_path / name)
    (tmp_path / "a" / "evaluate" / "metrics.json").write_text("{}")
    options = {"env": {"COLUMNS": "300"}}
    shown = CliRunner().invoke(app, ["runs", "list", str(tmp_path)], **options)
    assert shown.exit_code == 0, (shown.output, shown.exception)
    rows = {x.split()[1]: x for x in shown.stdout.splitlines() if x.startswith("│")}
    assert "damaged: " in rows["a"]
    assert "version 1" in rows["b"]
    listed = CliRunner().invoke(app, ["runs", "list", "--json", str(tmp_path)], **options).stdout
    found = {Path(x["folder"]).name: x for x in json.loads(listed)}
    assert "metrics.json: differs from what evaluate wrote" in found["a"]["damage"]
    assert found["b"]["damage"] is None


def test_a_configuration_that_is_a_folder_is_told(tmp_path):
    (tmp_path / "run" / "config.toml").mkdir(parents=True)
    told = CliRunner().invoke(app, ["run", "--output", str(tmp_path / "run")])
    assert told.exit_code == 2
    assert told.stderr == (
        f"{tmp_path}/run/config.toml: expected a file. Received: Is a directory\n"
    )


def test_values_that_no_step_reads_are_kept(finished, tmp_path):
    output = Path(shutil.copytree(finished[0], tmp_path / "out"))
    told = CliRunner().invoke(app, ["ingest", "--output", str(output), "--set", "search.trials=7"])
    assert told.exit_code == 0, told.output
    assert load(output / "config.toml").search.trials == 7
    told = CliRunner().invoke(
        app, ["run", "--output", str(output), "--set", "training.loss.class=Nope"]
    )
    assert told.exit_code == 2
    assert "Nope" not in (output / "config.toml").read_text()


# what a second run changes, of each section and each kind of effect
CHANGES: dict[str, dict[str, Any]] = {
    "data.split": {"data.split": [50.0, 25.0, 25.0]},
    "data.weight": {"data.weight": "w"},
    "data.slice_by": {"data.slice_by": ["shop"]},
    "features": {"features": {"x": "number"}},
    "gates.leak": {"gates.leak": {"action": "warn", "threshold": 0.1}},
    "model.class": {"model.class": "Scorer"},
    "model.trees": {"model.trees": {"loss": "RGCrossLoss", "num_leaves": 4}},
    "training.loss": {"training.loss": "LambdaLoss"},
    "training.seed": {"training.seed": 1},
    "evaluation.gain": {"evaluation.gain": "linear"},
    "evaluation.baseline": {"evaluation.baseline": {"class": "RGCrossLoss"}},
    "blessing.metric": {"blessing.metric": "MRR"},
    "blessing.min_value": {"blessing.min_value": 0.99999},
    "serving.model_name": {"serving.model_name": "shoes"},
    "serving.description": {"serving.description": "Ranks shoes."},
    "serving.recalibration": {"serving.recalibration": "platt"},
    "search.trials": {"search.trials": 7},
}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A folder with a finished run `out`, of labels from 1, and its files."""
    folder = tmp_path_factory.mktemp("first")
    files = {"data.data": [graded(folder)], "data.slice_by": ["market"]}
    with pytest.MonkeyPatch.context() as patch:
        second_run.of_no_time(patch)
        second_run.run(configured(**files), folder / "out")
    return folder, files


def told(output: Path) -> dict[str, Any]:
    """The results of a run; whether it is the first version or the next does not matter."""
    found = results(output)
    if pushed := found.get("push/pushed.json"):
        pushed["saved_model"] = bool(pushed["saved_model"])
        for name in ("blessing.json", "pushed.json"):
            found[f"push/{name}"].pop("champion")
    return found


@pytest.mark.long
@pytest.mark.parametrize("key", CHANGES)
def test_a_changed_run_ends_as_a_new_one_of_its_configuration(first, tmp_path, monkeypatch, key):
    second_run.of_no_time(monkeypatch)
    folder, files = first
    made = configured(**{**files, "blessing.champion": False, **CHANGES[key]})
    again = Path(shutil.copytree(folder / "out", tmp_path / "1" / "out"))
    second_run.run(made, again)
    second_run.run(made, tmp_path / "2" / "out")
    one, other = told(again), told(tmp_path / "2" / "out")
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert name == "report.html" or value == other[name], name
    assert words(one["report.html"]) == words(other["report.html"])


def words(page: list[str]) -> list[str]:
    """The lines of a page without the version that is published and the speed of training."""
    speed = r'(<td class="n">[\d.,]+){2}$'
    lines = [re.sub(r"(ranker|shoes)[ /]\d+|version \d+", "V", line) for line in page]
    return [re.sub(speed, "", x) if "<td>list_scorer<td" in x else x for x in lines]


@pytest.mark.long
@pytest.mark.parametrize("part", [*STEPS, "report"])
def test_an_interrupt_in_any_part_changes_nothing(first, tmp_path, monkeypatch, part):
    second_run.of_no_time(monkeypatch)
    folder, files = first
    output = tmp_path / "out"

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if part == "report":
            patch.setattr(report, "write", interrupted)
        else:
            patch.setitem(STEPS, part, dataclasses.replace(STEPS[part], take=interrupted))
        with pytest.raises(KeyboardInterrupt):
            second_run.run(configured(**files), output)
    second_run.run(configured(**files), output)
    one, other = told(output), told(folder / "out")
    assert one == other


@pytest.mark.long
def test_queries_that_an_earlier_increment_trained_on_are_told(tmp_path):
    weeks = []
    for week in range(5):
        path = Path(graded(tmp_path, week))
        text = path.read_text(encoding="utf-8").replace("\nq", f"\n{week}q")
        path.write_text(text, encoding="utf-8")
        weeks.append(str(path))
    first, second = (
        {f"data.{x}": [weeks[i]] for x, i in zip(("train", "validation", "test"), of, strict=True)}
        for of in ((0, 1, 2), (3, 4, 0))
    )
    second["data.continue_from"] = str(tmp_path / "a")
    second_run.run(configured(**first), tmp_path / "a")
    for step in ("ingest", "analyze"):
        second_run.run(configured(**second), tmp_path / "b", step)
    found = json.loads((tmp_path / "b" / "analyze" / "anomalies" / "test.json").read_text())
    [shared] = [x for x in found if x["rule"] == "shared_queries"]
    assert shared["received"] == "90 of 180 lists"
