"""Invalid options of a pipeline."""

import math
import re
from pathlib import Path
from typing import Any

import keras
import pytest
import typer
from typer.testing import CliRunner

from tfrank_sel.data.formats import Columns
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.commands.options import Given
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.run.steps import STEPS


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (Candidate, "loss", "RGCrossLoss"),
        (Candidate, "make_model", keras.Model),
        (Columns, "features", "price"),
        (Gates, "zero", "stop"),
        (Gates, "missing", {"threshold": "0.2"}),
        (Gates, "missing", {"threshold": 1.5}),
        (Inputs, "sources", ["train.txt"]),
        (Inputs, "adjacent", "no"),
        (Rules, "margin", math.nan),
        (Rules, "min_queries", "many"),
        (Settings, "averaging", 1.0),
        (Settings, "weight_decay", -0.1),
        (Settings, "epochs", 2.5),
        (Settings, "epochs", 0),
        (Settings, "hidden_units", 64),
        (Settings, "learning_rate", math.inf),
        (Settings, "learning_rate", -0.1),
        (Settings, "seed", -1),
        (Source, "split", 1),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(
    options: Any, name: str, value: Any
) -> None:
    needed = {
        Inputs: {"sources": [Source("train.txt")]},
        Source: {"path": "train.txt"},
    }.get(options, {})
    options(**needed)
    with pytest.raises((TypeError, ValueError), match=name):
        options(**{**needed, name: value})


def test_an_infinite_bound_is_none() -> None:
    assert Rules(margin=math.inf).margin == math.inf


class TakenError(Exception):
    """What a command passes on."""


def _taken(*arguments: Any, **named: Any) -> Any:
    given = [x.load() if isinstance(x, Given) else x for x in (*arguments, *named.values())]
    raise TakenError(repr(given))


# a command with what it needs, and the name of the case
COMMANDS = {
    name: [*name.split()[:2], *needed]
    for name, needed in {
        "run": ["--output", "o"],
        "config": [],
        **{x: ["--output", "o"] for x in STEPS if x != "evaluate"},
        "tune": ["--output", "o"],
        "evaluate --output": ["o"],
        "evaluate --model": ["m", "--data", "d"],
        "score": ["--model", "m", "--data", "d", "--output", "o"],
        "runs list": [],
    }.items()
}
SPLITS = [f"--{split}=x" for split in ("train", "validation", "test")]
VALUES = {
    **dict.fromkeys((x.partition("=")[0] for x in SPLITS), SPLITS),
    "--module": ["--module=own_module.py"],
    "--set": ["--set=evaluation.gain=linear"],
    "--config": ["--config=run.toml"],
    "--bless-metric": ["--bless-metric=MRR"],
    "--split": ["--split=50,25,25"],
    "--workers": ["--workers=2"],
    "beam_options": ["--", "--parallelism=4"],
    "folder": ["runs"],
}


def _options(command: str) -> dict[str, list[list[str]]]:
    """The options of a command by name, each with values that it may take."""
    found: Any = typer.main.get_command(app)
    for word in command.partition(" --")[0].split():
        found = found.commands[word]
    values = {}
    for option in found.params:
        name = option.opts[0]
        tried = [f"{name}={x}" for x in ("x", "3", "0.25", "head", "train", "csv")]
        flags = [name, *option.secondary_opts] if getattr(option, "is_flag", False) else tried
        values[name] = [VALUES[name]] if name in VALUES else [[x] for x in flags]
    return {x: y for x, y in values.items() if x not in (*COMMANDS[command], "--help")}


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_is_read_or_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text('[evaluation]\ngain = "linear"\n', encoding="utf-8")
    Path("own_module.py").touch()
    Path("runs").mkdir()
    for module in ("run", "scoring"):
        monkeypatch.setattr(f"tfrank_sel.pipelines.commands.{module}.execute", _taken)
    monkeypatch.setattr("tfrank_sel.pipelines.commands.run.Job.of", _taken)
    monkeypatch.setattr("tfrank_sel.pipelines.commands.run.propose", lambda x: (x, {}, ""))
    monkeypatch.setattr("tfrank_sel.pipelines.analysis.leakage.suspects", lambda x: {})
    monkeypatch.setattr("tfrank_sel.pipelines.runners.beam_options", lambda given: given.beam)
    monkeypatch.setattr("tfrank_sel.pipelines.scoring.settings", lambda model: [])
    monkeypatch.setattr("tfrank_sel.pipelines.scoring.inputs", lambda *x, **y: (x, y))
    for name in ("judge", "score"):
        monkeypatch.setattr(f"tfrank_sel.pipelines.scoring.{name}", _taken)

    def outcome(*options: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, [*COMMANDS[command], *options])
        assert isinstance(done.exception, TakenError | SystemExit | None), (options, done.exception)
        told = re.sub(r"<[\w.]+ object at \w+>", "", str(done.exception))
        return done.exit_code, done.output, told

    plain = outcome()
    assert plain[0] in (0, 1), plain
    refused = "needs --model|is not read by this|Expected --output, or --model"
    for name, values in _options(command).items():
        found = [outcome(*value) for value in values]
        valid = [x for x in found if x[0] != 2 or re.search(refused, x[1])]
        assert valid, (name, found)
        assert any(x != plain for x in valid), f"{command} {name} is ignored"


def test_a_key_that_an_evaluation_does_not_read_is_refused() -> None:
    command = [*COMMANDS["evaluate --model"], "--set"]
    for given in ("training.epochs=3", "blessing.margin=0.1", "evaluation.baseline=false"):
        done = CliRunner().invoke(app, [*command, given])
        key = given.partition("=")[0]
        assert done.exit_code == 2
        assert done.stderr.startswith(f"--set {given}: {key} is not read by this command")
