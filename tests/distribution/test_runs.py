"""Runs of several workers: their models, and recovery from a killed worker."""

import json
import os
import shutil
import signal

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.speed import local_group
from tests import refusals
from tests.pipelines.test_main import small_set
from tfrank_sel.pipelines.__main__ import app

SETS = {
    "training.epochs": 3,
    "training.batch_size": 8,
    "training.loss": "SoftmaxLoss",
    "evaluation.baseline": "false",
    "model.hidden_units": [8],
    "model.dropout": 0.0,
}
KILL = """
import os, pathlib, signal
from tfrank_sel.training.networks import Validation

killed, measure = pathlib.Path(__file__).with_suffix(".killed"), Validation.on_epoch_end


def measure_or_die(self, epoch, logs=None):
    if epoch == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    measure(self, epoch, logs)


if '"index": 1' in os.environ.get("TF_CONFIG", ""):
    Validation.on_epoch_end = measure_or_die
"""


def take(step, output, *options):
    result = CliRunner().invoke(app, [step, "--output", str(output), *map(str, options)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def trained(output):
    """The weights and the logs of a run."""
    model = keras.models.load_model(output / "train" / "ours.keras", compile=False)
    figures = json.loads((output / "train" / "training.json").read_text())
    [fit] = figures["ours"]["fits"]
    return model.get_weights(), fit["history"]


def by_two(output, *options):
    """Trains by two workers; returns status and errors of each."""
    step = "train", "--output", str(output), "--set", "training.workers=2", *map(str, options)
    found = local_group.run(["tfrank_sel.pipelines", *step], 2)
    return [status for status, _, _ in found], [errors for _, _, errors in found]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of a run before training."""
    folder = tmp_path_factory.mktemp("one")
    files = {f"data.{split}": [str(path)] for split, path in small_set(folder).items()}
    sets = [part for key, x in (SETS | files).items() for part in ("--set", f"{key}={x}")]
    take("ingest", folder / "out", *sets, "--", "--direct_num_workers=1")
    take("analyze", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def two_workers(prepared, tmp_path_factory):
    """The folder of a run trained by two workers."""
    output = shutil.copytree(prepared, tmp_path_factory.mktemp("two") / "out")
    status, errors = by_two(output)
    assert status == [0, 0], errors
    return output


def test_two_workers_train_the_weights_and_logs_of_one_process(prepared, two_workers, tmp_path):
    output = shutil.copytree(prepared, tmp_path / "out")
    take("train", output)
    (weights, history), (found_weights, found_history) = trained(output), trained(two_workers)
    assert len(history["val_ndcg"]) == SETS["training.epochs"]
    for found, expected in zip(found_weights, weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found_history.keys() == history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(found_history[name], values, rtol=1e-5, err_msg=name)


def test_a_killed_worker_changes_no_bit_of_the_weights(prepared, two_workers, tmp_path):
    output = shutil.copytree(prepared, tmp_path / "out")
    module = tmp_path / "kill.py"
    module.write_text(KILL)
    status, errors = by_two(output, "--module", module)
    assert status == [2, -signal.SIGKILL], errors
    assert "a worker ended or cannot be reached: start all again" in errors[0]
    status, errors = by_two(output, "--module", module)
    assert status == [0, 0], errors
    (weights, history), (expected_weights, expected_history) = trained(output), trained(two_workers)
    for mine, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert history == expected_history


def test_a_worker_beside_the_chief_ends_when_training_is_up_to_date(two_workers, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", local_group.configurations(2)[1])
    assert take("train", two_workers) == take("run", two_workers) == ""


@pytest.mark.parametrize(("sets", "reason"), refusals.of("workers"))
def test_workers_that_cannot_share_a_batch_are_refused(tmp_path, sets, reason):
    options = [part for x in sets for part in ("--set", f"training.{x}")]
    line = refused(tmp_path, "--dry-run", *options)
    assert reason in line


@pytest.mark.parametrize(("value", "reason"), refusals.of("cluster"))
def test_a_cluster_that_cannot_be_used_is_refused(tmp_path, monkeypatch, value, reason):
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    assert reason in refused(tmp_path, "--set", "training.workers=2")
    assert os.listdir(tmp_path) == []


def refused(folder, *options):
    result = CliRunner().invoke(
        app, ["run", "--synthetic", "--output", str(folder / "out"), *options]
    )
    assert result.exit_code == 2, (result.output, result.exception)
    [line] = result.stderr.splitlines()
    return line
