"""Flink and Spark leave what Beam's own DirectRunner leaves."""

import json
import os
import signal
import threading
import time

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests.data import sets
from tests.engines import engines
from tfrank_sel.data import letor
from tfrank_sel.pipelines.__main__ import app

FILES = 4


def invoke(*arguments):
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 0, (done.output, done.exception)


def ingest(data, output, config=None):
    given = ["--config", config] if config else []
    files = ["--set", f"data.data={json.dumps([str(data / '*.txt.gz')])}"]
    invoke("ingest", *given, *files, "--set", "data.split=[8,1,1]", "--output", output)


def records(output):
    """The records of each split, in a fixed order."""
    return {
        split: sorted(x.numpy() for x in tf.data.TFRecordDataset([*map(str, found)]))
        for split in ("train", "validation", "test")
        if (found := [*(output / "ingest" / "records").glob(f"{split}-*")])
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    lists = sets.made(200)
    for i in range(FILES):
        letor.write(folder / f"{i}.txt.gz", lists[i::FILES])
    return folder


@pytest.fixture(scope="module")
def direct(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("direct") / "out"
    ingest(data, output)
    invoke("analyze", "--output", output)
    return output


@pytest.fixture(scope="module", params=["flink", "spark"])
def engine(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine") / request.param
    with getattr(engines, request.param)(folder) as started:
        yield started


def check_ingested(output, direct):
    assert records(output) == records(direct)
    told = [json.loads((x / "ingest" / "ingest.json").read_text()) for x in (output, direct)]
    assert told[0] == told[1]


def test_ingest_and_analyze_leave_what_they_do_here(engine, data, direct, tmp_path):
    output = tmp_path / "out"
    ingest(data, output, engine.configuration)
    check_ingested(output, direct)
    invoke("analyze", "--output", output)
    for wanted in (direct / "analyze" / "statistics").glob("*.json"):
        found = json.loads((output / "analyze" / "statistics" / wanted.name).read_text())
        known = json.loads(wanted.read_text())
        for name in ("lists", "items", "labels", "list_sizes", "comparable_lists", "histograms"):
            assert found[name] == known[name]
        for name, values in known["features"].items():
            assert found["features"][name] == pytest.approx(values, rel=1e-6)


def test_a_taskmanager_that_is_killed_changes_nothing(data, direct, tmp_path):
    with engines.flink(tmp_path / "flink") as engine:
        threading.Thread(target=kill_amidst, args=[engine], daemon=True).start()
        ingest(data, tmp_path / "out", engine.configuration)
        assert engine.started["tasks1"].poll() == -signal.SIGKILL
        assert "RESTARTING" in (engine.folder / "manager.log").read_text()
    check_ingested(tmp_path / "out", direct)


def kill_amidst(engine):
    """Kills a TaskManager when the workers in Python have begun."""
    log = engine.folder / "tasks1.log"
    while "to RUNNING" not in log.read_text():
        time.sleep(0.1)
    os.killpg(engine.started["tasks1"].pid, signal.SIGKILL)
