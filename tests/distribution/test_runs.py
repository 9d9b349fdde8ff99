"""Runs of several workers: their models, and recovery from a killed worker."""

import json
import os
import shutil

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from tests import refusals
from tests.pipelines.test_main import small_set
from tfrank_sel.distribution import Cluster
from tfrank_sel.pipelines.__main__ import app

SETS = {
    "training.epochs": 3,
    "training.batch_size": 8,
    "training.loss": "SoftmaxLoss",
    "evaluation.baseline": "false",
    "model.hidden_units": [8],
    "model.dropout": 0.0,
}
KILLED_IN = 12  # a step of the second epoch, of 8 steps each
KILL = f"""
import os, pathlib, signal
from tfrank_sel import distribution

killed, calls = pathlib.Path(__file__).with_suffix(".killed"), []
add = distribution.Workers.sum


def add_or_die(workers, values):
    calls.append(values.dtype == "float32")  # gradients
    if calls.count(True) == {KILLED_IN} and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return add(workers, values)


if '"index": 1' in os.environ.get("TF_CONFIG", ""):
    distribution.Workers.sum = add_or_die
"""


def take(step, output, *options):
    result = CliRunner().invoke(app, [step, "--output", str(output), *map(str, options)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def train(output, *options):
    told = take("train", output, *options)
    model = keras.models.load_model(output / "train" / "ours.keras", compile=False)
    figures = json.loads((output / "train" / "training.json").read_text())
    [fit] = figures["ours"]["fits"]
    return told, model.get_weights(), fit["history"]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The folder of a run, and what one process trained."""
    folder = tmp_path_factory.mktemp("one")
    files = {f"data.{split}": [str(path)] for split, path in small_set(folder).items()}
    sets = [part for key, x in (SETS | files).items() for part in ("--set", f"{key}={x}")]
    take("ingest", folder / "out", *sets, "--", "--direct_num_workers=1")
    take("analyze", folder / "out")
    _, *found = train(folder / "out")
    return folder / "out", *found


@pytest.fixture(scope="module")
def two_workers(one_process, tmp_path_factory):
    """The folder of the same run by two workers, and what they trained."""
    output = shutil.copytree(one_process[0], tmp_path_factory.mktemp("two") / "out")
    _, *found = train(output, "--set", "training.workers=2")
    return output, *found


def test_two_workers_train_the_weights_and_logs_of_one_process(one_process, two_workers):
    (_, weights, history), (_, found_weights, found_history) = one_process, two_workers
    assert len(history["val_ndcg"]) == SETS["training.epochs"]
    for found, expected in zip(found_weights, weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found_history.keys() == history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(found_history[name], values, rtol=1e-5, err_msg=name)


def test_a_killed_worker_changes_no_bit_of_the_weights(one_process, two_workers, tmp_path):
    output = shutil.copytree(one_process[0], tmp_path / "out")
    module = tmp_path / "kill.py"
    module.write_text(KILL)
    told, weights, history = train(output, "--module", module, "--set", "training.workers=2")
    assert (tmp_path / "kill.killed").exists()
    assert "worker 1 ended" in told
    for mine, expected in zip(weights, two_workers[1], strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert history == two_workers[2]


def test_a_worker_beside_the_chief_ends_when_training_is_up_to_date(two_workers, monkeypatch):
    [(name, value)] = Cluster(["127.0.0.1:1", "127.0.0.1:2"], 1).environment().items()
    monkeypatch.setenv(name, value)
    assert take("train", two_workers[0]) == take("run", two_workers[0]) == ""


@pytest.mark.parametrize(("sets", "reason"), refusals.of("workers"))
def test_workers_that_cannot_share_a_batch_are_refused(tmp_path, sets, reason):
    options = [part for x in sets for part in ("--set", f"training.{x}")]
    line = refused(tmp_path, *options)
    assert reason in line


@pytest.mark.parametrize(("value", "reason"), refusals.of("cluster"))
def test_a_cluster_that_cannot_be_used_is_refused(tmp_path, monkeypatch, value, reason):
    monkeypatch.setenv("TF_CONFIG", value if isinstance(value, str) else json.dumps(value))
    assert reason in refused(tmp_path, "--set", "training.workers=2")
    assert os.listdir(tmp_path) == []


def refused(folder, *options):
    result = CliRunner().invoke(app, ["run", "--output", str(folder / "out"), *options])
    assert result.exit_code == 2, (result.output, result.exception)
    [line] = result.stderr.splitlines()
    return line
