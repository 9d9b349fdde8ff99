"""The search for a configuration, through the command line and by several workers."""

import json
import shutil
import sys
import threading
import time

import optuna
import pytest
from optuna.trial import TrialState
from rich.console import Console
from typer.testing import CliRunner

from tests import refusals
from tests.pipelines.test_main import small_set
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration import ConfigurationError, Override, load
from tfrank_sel.pipelines.console import Activity
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.run import tuning
from tfrank_sel.pipelines.run.tuning import Study

SEARCH = """
[search]
trials = 3
[search.keys]
"training.learning_rate" = {low = 1e-4, high = 1e-1, log = true}
"training.loss" = {choices = [
    "SoftmaxLoss", ["SoftmaxLoss", {class = "LambdaLoss", temperature = 2.0}],
]}
"""
SETTINGS = """
[training]
epochs = 2
batch_size = 8
[model]
hidden_units = [4]
[beam]
options = ["--direct_num_workers=1"]
"""


FIT = {"validation_ndcg": 0.5}


def tune(output, *options):
    result = CliRunner().invoke(app, ["tune", "--output", str(output), *options])
    return result, [line for line in result.stdout.splitlines() if line.startswith("trial ")]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    files = "".join(f'{name} = "{path}"\n' for name, path in small_set(folder).items())
    path = folder / "run.toml"
    path.write_text(f"[data]\n{files}{SETTINGS}{SEARCH}")
    return path


@pytest.fixture(scope="module")
def study(config, tmp_path_factory):
    """A study of three trials, the first of which was interrupted after its first epoch."""
    output = tmp_path_factory.mktemp("study") / "out"
    tell, told = Activity.epoch, []

    def interrupting(self, epoch):
        tell(self, epoch)
        told.append(epoch)
        if len(told) == 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Activity, "epoch", interrupting)
        stopped, lines = tune(output, "--config", str(config))
        assert (stopped.exit_code, lines) == (130, [])
        assert f"continue with: tfrank-sel-pipelines tune --output {output}" in stopped.stderr
        result, lines = tune(output)
    assert result.exit_code == 0, (result.output, result.exception)
    return output, result, lines, told


def trials(output):
    return optuna.load_study(study_name="study", storage=f"sqlite:///{output}/study.db").trials


def test_a_study_tells_a_line_a_trial_and_ends_with_the_next_command(study):
    output, result, lines, _ = study
    assert [line.partition(",")[0] for line in lines] == [
        f"trial {i}: {i + 1} of 3" for i in range(3)
    ]
    assert all("training.learning_rate=" in line for line in lines)
    assert f"run --config {output}/best.toml --output RUN" in result.stdout
    assert result.stderr == ""


def test_the_value_is_the_mean_of_the_best_epochs_of_the_losses(study):
    output, *_ = study
    for trial in trials(output):
        folder = output / "trials" / str(trial.number)
        fits = json.loads((folder / "train" / "training.json").read_text())["ours"]["fits"]
        values = [fit["validation_ndcg"] for fit in fits]
        assert trial.value == pytest.approx(sum(values) / len(values))
        assert sorted(trial.intermediate_values) == list(range(1, 2 * len(fits) + 1))


def test_an_interrupted_trial_goes_on_after_its_last_epoch(study):
    output, _, _, told = study
    first = trials(output)[0]
    assert first.state == TrialState.COMPLETE
    losses = 2 if "Lambda" in first.params["training.loss"] else 1
    assert len(trials(output)) == 3
    # the epoch that was interrupted had not been kept yet, and no other is trained twice
    own = [(epoch.loss, epoch.number) for epoch in told[: 2 * losses + 1]]
    assert own[1:] == sorted(set(own), key=own.index)


def test_data_is_read_once_and_trials_only_train(study):
    output, *_ = study
    shared = output / "data" / "ingest" / "records" / "train-00000-of-00001.tfrecord"
    for number in range(3):
        folder = output / "trials" / str(number)
        steps = {path.name for path in folder.iterdir() if path.is_dir()}
        assert steps == {"ingest", "analyze", "train"}
        assert (folder / "ingest" / "records" / shared.name).samefile(shared)
        assert not (folder / "train" / "baseline.keras").exists()


def test_the_best_configuration_is_written_whole(study):
    output, *_ = study
    best = max(trials(output), key=lambda trial: trial.value)
    found = load(output / "best.toml")
    assert found.training.learning_rate == best.params["training.learning_rate"]
    assert found.search.keys == {}
    assert found.evaluation.baseline == {"class": "RGCrossLoss"}
    assert found.training.epochs == 2


@pytest.mark.long
def test_one_process_finds_the_same_study_again(study, config, tmp_path):
    output, *_ = study
    result, _ = tune(tmp_path / "out", "--config", str(config), "--trials", "2")
    assert result.exit_code == 0, (result.output, result.exception)
    again = [(trial.params, trial.value) for trial in trials(tmp_path / "out")]
    assert again == [(trial.params, trial.value) for trial in trials(output)[:2]]


def test_a_finished_study_goes_on_only_for_more_trials(study, tmp_path, monkeypatch):
    output = tmp_path / "out"
    shutil.copytree(study[0], output)
    monkeypatch.setattr(Study, "_value", lambda self, trial, console: 0.1)
    _, lines = tune(output)
    assert lines == []
    result, lines = tune(output, "--trials", "4")
    assert result.exit_code == 0, (result.output, result.exception)
    assert [line.partition(",")[0] for line in lines] == ["trial 3: 4 of 4"]


def test_a_study_keeps_its_configuration(study):
    output, *_ = study
    result, _ = tune(output, "--set", "training.epochs=3")
    assert result.exit_code == 2
    assert result.stderr == (
        f"{output}: training.epochs must not change within a study; use another folder for a "
        "new study. Received: 3, was 2\n"
    )


def test_a_study_keeps_its_gain_and_the_content_of_its_files(study, tmp_path, monkeypatch):
    output = tmp_path / "out"
    shutil.copytree(study[0], output)
    result, _ = tune(output, "--set", "evaluation.gain=linear")
    assert result.exit_code == 2
    assert "evaluation.gain must not change within a study" in result.stderr
    path = load(output / "config.toml").data.train[0]
    copy = tmp_path / "train.txt.gz"
    shutil.copy(path, copy)
    try:
        shutil.copy(load(output / "config.toml").data.test[0], path)
        result, _ = tune(output)
    finally:
        shutil.copy(copy, path)
    assert result.exit_code == 2
    assert result.stderr == (
        f"{path}: must not change within a study; use another folder for a new study. "
        "Received: a changed file\n"
    )
    assert tune(output)[0].exit_code == 0


def test_a_trial_that_is_pruned_leaves_nothing_of_its_training(study, tmp_path, monkeypatch):
    output = tmp_path / "out"
    shutil.copytree(study[0], output)
    pruner = optuna.pruners.ThresholdPruner(lower=2.0)
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda: pruner)
    result, [line] = tune(output, "--trials", "4")
    assert result.exit_code == 0, (result.output, result.exception)
    assert line.startswith("trial 3: 4 of 4, pruned, best ")
    pruned = trials(output)[3]
    assert (pruned.state, list(pruned.intermediate_values)) == (TrialState.PRUNED, [1])
    folder = output / "trials" / "3"
    assert {path.name for path in folder.iterdir()} == {"config.toml", "ingest", "analyze"}
    assert (output / "best.toml").read_text() == (study[0] / "best.toml").read_text()


class Killed(BaseException):
    """Stands for the end of a process, which nothing in it is told of."""


def test_a_trial_whose_process_was_killed_is_taken_up_and_fails_the_third_time(
    config, tmp_path, monkeypatch
):
    def killed(self, trial, console):
        raise Killed

    configuration = load(config, [Override.parse("search.trials=1")])
    monkeypatch.setattr(Study, "_value", killed)
    for _ in range(2):
        with pytest.raises(Killed):
            Study(configuration, tmp_path / "out").run(Console(quiet=True))
    assert [trial.state for trial in trials(tmp_path / "out")] == [TrialState.RUNNING]
    monkeypatch.setattr(Study, "_value", lambda self, trial, console: 0.5)
    Study(configuration, tmp_path / "out").run(Console(quiet=True))
    states = [trial.state for trial in trials(tmp_path / "out")]
    assert states == [TrialState.FAIL, TrialState.COMPLETE]


def test_several_workers_share_a_study(config, tmp_path, monkeypatch):
    def value(self, trial, console):
        time.sleep(0.05)
        return trial.params["training.learning_rate"]

    monkeypatch.setattr(Study, "_value", value)
    configuration = load(config, [Override.parse("search.trials=9")])
    ran = []

    def work():
        Study(configuration, tmp_path / "out").run(Console(quiet=True))
        ran.append(threading.get_ident())

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(ran) == 3
    found = trials(tmp_path / "out")
    assert [trial.state for trial in found] == [TrialState.COMPLETE] * 9
    best = load(tmp_path / "out" / "best.toml").training.learning_rate
    assert best == max(trial.value for trial in found)


@pytest.mark.parametrize(("keys", "line"), refusals.of("search")[::6])
def test_a_search_that_cannot_be_made_is_refused_at_once(keys, line, config, tmp_path):
    result, _ = tune(tmp_path / "out", "--config", str(config), "--set", f"search.keys={keys}")
    assert result.exit_code == 2, (result.output, result.exception)
    assert line in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_trial_whose_values_do_not_go_together_fails_with_the_keys(config, tmp_path, monkeypatch):
    def trained(configuration, folder, progress, *, only):
        folders.write_json(folder / only / "training.json", {"ours": {"fits": [FIT]}})

    heads, units = {"choices": [2, 4]}, {"choices": [[8], [6]]}
    keys = {"model.num_heads": heads, "model.hidden_units": units}
    overrides = [Override("search.keys", keys, ""), Override.parse("search.trials=20")]
    monkeypatch.setattr(tuning, "run", trained)
    with pytest.raises(ConfigurationError) as caught:
        Study(load(config, overrides), tmp_path / "out").run(Console(quiet=True))
    *others, last = trials(tmp_path / "out")
    assert str(caught.value) == (
        f"trial {last.number}, model.num_heads: model `num_heads` must divide the last of "
        "`hidden_units` or be 0. Received: hidden_units=[6], num_heads=4"
    )
    assert last.state == TrialState.FAIL
    assert {trial.state for trial in others} <= {TrialState.COMPLETE}


def test_the_folder_of_something_else_is_refused(config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    result, _ = tune(tmp_path, "--config", str(config))
    assert result.exit_code == 2
    assert "must be new, empty, or contain a study. Received: a folder with other" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_without_the_extra_it_is_named(config, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "tfrank_sel.pipelines.run.tuning", raising=False)
    monkeypatch.delattr("tfrank_sel.pipelines.run.tuning", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    result, _ = tune(tmp_path / "out", "--config", str(config))
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr == "`tune` needs optuna: pip install 'tfrank_sel[tune]'\n"
    assert not (tmp_path / "out").exists()
