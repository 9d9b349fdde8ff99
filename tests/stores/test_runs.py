"""Runs in a store, on a real S3 server: sent step by step, and gone on with on another machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from tests.pipelines.test_daily import KEPT, SMALL, SPLITS, day, done, invoke, taken
from tests.ports import free_port
from tests.stores.conftest import forget
from tfrank_sel.data import leases, stores
from tfrank_sel.pipelines.run.steps import STEPS


@pytest.fixture
def sources(bucket, tmp_path):
    """The files of a day, in a store."""
    for path in day(tmp_path).values():
        with stores.open_file(f"{bucket}/day/{path.name}", "wb") as file:
            file.write(path.read_bytes())
    return [f"data.{split}=['{bucket}/day/{split}.txt.gz']" for split in SPLITS]


@pytest.fixture
def other_machine(tmp_path, monkeypatch):
    """Leaves what this machine knows of the store behind."""

    def move():
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)

    return move


def content(url):
    found = {}
    for path in stores.find(url):
        with stores.open_file(path) as file:
            found[path.removeprefix(f"{url}/")] = file.read()
    return found


def model(run):
    return keras.models.load_model(stores.near(f"{run}/train/ours.keras"), compile=False)


def test_a_run_in_a_store_is_that_on_disk_and_goes_on_anywhere(
    bucket, sources, tmp_path, other_machine
):
    sets = [*SMALL, *sources, f"serving.folder={tmp_path}/served"]
    sets.append("blessing.allow_leaks=['features[1]']")  # which orders the made labels
    url = f"{bucket}/runs/1"
    stdout = done(invoke("run", url, sets=sets))
    assert taken(stdout) == list(STEPS)
    here = tmp_path / "here"
    done(invoke("run", here, sets=sets))
    on_disk = {str(x.relative_to(here)) for x in here.rglob("*") if x.is_file()}
    kept = {name for name in content(url) if "events.out" not in name}
    assert kept == {name for name in on_disk if "events.out" not in name}
    for x, y in zip(model(url).get_weights(), model(here).get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
    other_machine()
    stdout = done(invoke("run", url, sets=["training.epochs=1"]))
    assert KEPT.format("ingest") in stdout
    assert taken(stdout) == ["train", "evaluate", "export", "push"]
    other_machine()
    assert taken(done(invoke("run", url))) == []
    second = f"{bucket}/runs/2"
    stdout = done(invoke("run", second, sets=[*sets, f"data.continue_from={url}"]))
    assert "joined to 1 earlier" in stdout
    statistics = json.loads(content(second)["analyze/statistics/train.json"])
    assert statistics["lists"] == 60


def test_a_killed_training_goes_on_on_another_machine(bucket, sources, tmp_path, other_machine):
    sets = [*SMALL, *sources, "training.epochs=300", "training.patience=300"]
    url = f"{bucket}/runs/1"
    for step in ("ingest", "analyze"):
        for output in (url, tmp_path / "here"):
            done(invoke(step, output, sets=sets))
    command = [sys.executable, "-m", "tfrank_sel.pipelines", "train", "--output", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    backup, epochs = f"{url}/.train.partial/backup/ours/rg_cross_loss.npz", 0
    while process.poll() is None and not epochs:
        time.sleep(0.1)
        if stores.is_file(backup):
            with np.load(stores.near(backup)) as found:
                epochs = json.loads(str(found["record"]))["epochs"]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < epochs < 300
    other_machine()
    for output in (url, tmp_path / "here"):
        done(invoke("train", output))
    for x, y in zip(model(url).get_weights(), model(tmp_path / "here").get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert not [name for name in content(url) if ".partial" in name]


def test_one_process_at_a_time_works_on_a_run(bucket, sources):
    url = f"{bucket}/runs/1"
    with leases.hold(url, renewed=0.2):
        told = invoke("ingest", url, sets=sources)
    assert told.exit_code == 2
    assert told.stderr.startswith(f"{url}: one process at a time can work on a run. Received: ")


def test_something_else_is_not_taken_for_a_run(bucket, sources):
    told = invoke("ingest", f"{bucket}/day", sets=sources)
    assert told.exit_code == 2
    assert told.stderr == (
        f"{bucket}/day: the output folder must be new, empty, or contain a run. "
        "Received: a folder with other contents\n"
    )


def test_a_store_that_goes_away_ends_in_one_line_and_the_run_goes_on(
    bucket, sources, s3, monkeypatch
):
    url = f"{bucket}/runs/1"
    done(invoke("ingest", url, sets=[*SMALL, *sources]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    forget()
    told = invoke("analyze", url)
    assert told.exit_code == 2
    [line] = told.stderr.splitlines()
    assert line.startswith(f"{url}/config.toml: the store must be within reach. Received: ")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    forget()
    assert "done statistics" in done(invoke("analyze", url))


def test_records_that_were_removed_are_made_again(bucket, sources):
    url = f"{bucket}/runs/1"
    done(invoke("ingest", url, sets=[*sources, "data.num_features=3"]))
    before = content(url)
    told = invoke("ingest", url, sets=["data.num_features=2"])
    assert told.exit_code == 2, told.output
    assert "ingest/manifest.json" not in content(url)
    assert "done ingest" in done(invoke("ingest", url, sets=["data.num_features=3"]))
    after = content(url)
    records = [name for name in before if name.startswith("ingest/records/")]
    assert [after[name] for name in records] == [before[name] for name in records]
