"""Flink and Spark leave what Beam's own DirectRunner leaves."""

import contextlib
import json
import os
import signal
import threading
import time
import tomllib

import keras
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from typer.testing import CliRunner

from tests.data import sets
from tests.engines import engines
from tfrank_sel import data, export, models
from tfrank_sel.data import letor
from tfrank_sel.features import Vector
from tfrank_sel.pipelines.__main__ import app

FILES = 4
LISTS = 200


def invoke(*arguments):
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    assert done.exit_code == 0, (done.output, done.exception)


def ingest(files, output, engine=None):
    given = ["--config", engine.configuration] if engine else []
    found = ["--set", f"data.data={json.dumps([str(files / '*.txt.gz')])}"]
    invoke("ingest", *given, *found, "--set", "data.split=[8,1,1]", "--output", output)


def on(engine):
    """The options of a command that takes those of Beam."""
    if engine is None:
        return []
    beam = tomllib.loads(engine.configuration.read_text())["beam"]
    return ["--runner", beam["runner"], "--", *beam["options"]]


def score(model, files, output, engine=None):
    given = ["--model", model, "--data", files / "*.txt.gz", "--output", output]
    invoke("score", *given, "--lists-per-file", "1", *on(engine))


def evaluate(model, files, metrics, engine=None):
    given = ["--model", model, "--data", files / "*.txt.gz", "--metrics", metrics]
    invoke("evaluate", *given, *on(engine))


def records(output):
    """The records of each split, in a fixed order."""
    return {
        split: sorted(x.numpy() for x in tf.data.TFRecordDataset([*map(str, found)]))
        for split in ("train", "validation", "test")
        if (found := [*(output / "ingest" / "records").glob(f"{split}-*")])
    }


def ranked(output):
    """The rows of the files of scores, in a fixed order."""
    files = [*output.glob("scores-*")]
    assert len(files) == LISTS == len([*output.iterdir()])
    rows = pa.concat_tables(map(parquet.read_table, files))
    return rows.sort_by([("query_id", "ascending"), ("rank", "ascending")]).to_pydict()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    lists = sets.made(LISTS)
    for i in range(FILES):
        letor.write(folder / f"{i}.txt.gz", lists[i::FILES])
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "exported"
    keras.utils.set_random_seed(1)
    scorer = models.Scorer([0.0] * 6, [1.0] * 6, [4])
    scorer.build((None, None, 6))
    names = Vector(size=6).numbers("features")
    export.export(scorer, data.FeatureSpec(6), folder, metadata={"feature_names": names})
    return folder


@pytest.fixture(scope="module")
def direct(files, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("direct")
    ingest(files, folder / "out")
    invoke("analyze", "--output", folder / "out")
    score(model, files, folder / "scores")
    evaluate(model, files, folder / "metrics.json")
    return folder


@pytest.fixture(scope="module", params=["flink", "spark"])
def engine(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine") / request.param
    with getattr(engines, request.param)(folder) as started:
        yield started


def check_ingested(output, direct):
    assert records(output) == records(direct)
    told = [json.loads((x / "ingest" / "ingest.json").read_text()) for x in (output, direct)]
    assert told[0] == told[1]


def check_scored(output, direct):
    found, known = ranked(output), ranked(direct)
    assert found.pop("score") == pytest.approx(known.pop("score"), rel=1e-6)
    assert found == known


def test_ingest_and_analyze_leave_what_they_do_here(engine, files, direct, tmp_path):
    output = tmp_path / "out"
    ingest(files, output, engine)
    check_ingested(output, direct / "out")
    invoke("analyze", "--output", output)
    for wanted in (direct / "out/analyze/statistics").glob("*.json"):
        found = json.loads((output / "analyze/statistics" / wanted.name).read_text())
        known = json.loads(wanted.read_text())
        for name in ("lists", "items", "labels", "list_sizes", "comparable_lists", "histograms"):
            assert found[name] == known[name]
        for name, values in known["features"].items():
            assert found["features"][name] == pytest.approx(values, rel=1e-6)


def test_scores_and_metrics_are_those_found_here(engine, model, files, direct, tmp_path):
    score(model, files, tmp_path / "scores", engine)
    check_scored(tmp_path / "scores", direct / "scores")
    evaluate(model, files, tmp_path / "metrics.json", engine)
    found, known = (json.loads((x / "metrics.json").read_text()) for x in (tmp_path, direct))
    assert found.keys() == known.keys()
    for part in ("metrics", "chance"):
        for name, values in known[part].items():
            assert found[part][name] == pytest.approx(values, rel=1e-6)


def test_taskmanagers_that_are_killed_change_nothing(model, files, direct, tmp_path):
    with engines.flink(tmp_path / "flink") as engine:
        log = engine.folder / "tasks1.log"
        with killed(engine, "tasks1", lambda: "to RUNNING" in log.read_text()):
            ingest(files, tmp_path / "out", engine)
        engines.start_taskmanager(engine, "tasks3")
        made = tmp_path / ".scores.partial/work/scores"
        with killed(engine, "tasks2", lambda: any(made.glob("scores-*"))):
            score(model, files, tmp_path / "scores", engine)
    check_ingested(tmp_path / "out", direct / "out")
    check_scored(tmp_path / "scores", direct / "scores")


@contextlib.contextmanager
def killed(engine, name, has_begun):
    """Kills a TaskManager amidst the job in the block, and checks that Flink restarted that."""

    def kill():
        while not has_begun():
            time.sleep(0.01)
        os.killpg(engine.started[name].pid, signal.SIGKILL)

    def restarts():
        return (engine.folder / "manager.log").read_text().count("to RESTARTING")

    before = restarts()
    threading.Thread(target=kill, daemon=True).start()
    yield
    assert engine.started[name].poll() == -signal.SIGKILL
    assert restarts() > before
