"""The driver of the benchmarks of speed, and the form of their rows."""

import argparse
import importlib.util
import itertools
import json
import sys

import numpy as np
import pytest

from benchmarks.speed import (
    __main__ as speed,
    memory,
    rows,
    topk,
    training,
    training_profile,
    training_step,
    training_systems as systems,
)
from benchmarks.speed.rows import LeftOut, Peer, Row
from tfrank_sel.data import synthetic


def test_a_row_tells_medians_in_its_unit_and_how_many_times_faster_ours_is():
    times = {"ours": iter([5.0, 9.0, 2.0, 9.0, 1.0, 9.0, 3.0]), "theirs": itertools.repeat(8.0)}
    now = [0.0]

    def taking(name):
        return lambda: now.__setitem__(0, now[0] + next(times[name]))

    (row,) = rows.compare(
        {"a case": taking("ours")},
        {Peer("peer", "1.0"): taking("theirs")},
        rounds=3,
        unit="ms a list",
        per=4.0,
        clock=lambda: now[0],
    )

    assert row == Row("a case", Peer("peer", "1.0"), 500.0, 2000.0, "ms a list", first=5.0)
    assert row.ratio == 4.0
    assert str(row) == "| a case | 500 ms a list | peer 1.0 | 2,000 | 4 | 5.0 s |"


def test_who_is_not_installed_is_named():
    made, left_out = rows.installed(
        {"numpy": lambda: 1, "no-peer": lambda: importlib.import_module("no_peer")}
    )

    assert list(made.values()) == [1]
    assert left_out == [LeftOut("no-peer", "No module named 'no_peer'")]


@pytest.mark.parametrize("found", [Row("case", Peer("by hand"), 1.0, 2.0), LeftOut("peer", "why")])
def test_what_is_shown_is_read_back(found, capsys):
    rows.show([found], as_json=True)

    head, line = capsys.readouterr().out.splitlines()
    assert json.loads(head)["versions"]["NumPy"]
    assert rows.from_json(line) == found


def collected(report, run, printed, code=""):
    """Collects from a program that prints rows among other lines, and then runs the code."""
    program = (
        "from benchmarks.speed import rows; from benchmarks.speed.rows import LeftOut, Peer, Row;"
        f"print('news'); rows.show({printed!r}, as_json=True); {code}"
    )
    speed.collect(report, run, [sys.executable, "-c", program], None)


def test_a_report_has_what_ran_once_and_names_the_rest(tmp_path):
    report = speed.Report()
    fast, slow, late = (
        Row("fast", Peer("here", "1"), 1.0, 4.0),
        Row("slow `x`", Peer("by hand"), 2.0, 1.0),
        Row("before the end", Peer("here", "1"), 1.0, 1.0),
    )

    collected(report, speed.Run("data", "1"), [fast, slow, LeftOut("there", "not found")])
    collected(report, speed.Run("data", "2", speed.TFR), [slow, LeftOut("here", "not found")])
    collected(report, speed.Run("als", "3"), [late], "raise SystemExit(3)")
    speed.collect(report, speed.Run("topk", "4", speed.TFR), ["no/python"], None)
    report.write(tmp_path)

    written = json.loads((tmp_path / "speed.json").read_text())
    assert [x["case"] for x in written["rows"]] == ["fast", "slow `x`", "before the end"]
    assert [x["ratio"] for x in written["rows"]] == [4.0, 0.5, 1.0]
    assert [x["name"] for x in written["left_out"]] == ["there", speed.TFR]
    (failed,) = written["failed"]
    assert "status 3" in failed
    table = (tmp_path / "speed.md").read_text()
    assert str(fast) in table
    assert rows.from_markdown(table) == {"data": [fast, slow], "als": [late]}
    assert "Left out: there (not found)" in table
    assert "Left out: here" not in table
    assert sorted(x.name for x in tmp_path.iterdir()) == ["speed.json", "speed.md", "speed.png"]


def test_a_benchmark_goes_on_without_its_peers():
    report = speed.Report()
    run = speed.Run("data", "data --only writers texts --lists 32 --rounds 1 --json")
    command = [sys.executable, "-m", *f"benchmarks.speed.{run.options}".split()]

    speed.collect(report, run, command, None)

    assert report.failed == []
    peers = {x.name for _, x in report.left_out()} | {x.peer.name for x in report.rows["data"]}
    assert peers == {"joining the bytes", "scikit-learn", "xgboost"}


def test_a_training_step_is_timed_with_and_without_its_input(monkeypatch):
    monkeypatch.setattr(training_step, "SHAPES", ((4, 3),))

    found = list(training_step.found(lists=16, executions=1, rounds=1))

    case = "a step, [16, 4, 3]"
    assert [row.case for row in found] == [case, f"{case}, with its input"]
    assert {row.peer for row in found} == {training_step.FLOOR}


def test_an_epoch_from_disk_is_timed_and_its_memory_is_measured():
    timed, measured = training_step.streamed(32)

    assert timed.case == "an epoch of 32 lists from disk, [16, 20, 20]"
    assert timed.unit == "µs a document"
    assert timed.ours > 0.0
    assert measured.case == "peak memory, 32 lists from disk, [16, 20, 20]"
    assert measured.unit == "MiB"
    assert 0.0 < measured.ours < 2.0 * measured.theirs


def test_the_peak_begins_anew():
    np.ones(2**26, np.uint8)
    before = memory.peak()
    memory.start_peak()
    assert memory.resident() <= memory.peak() < before - 32.0


def test_a_set_has_the_shape_of_web30k():
    splits = training.web30k_like(30)

    assert {split: len(lists) for split, lists in splits.items()} == {
        "train": 30,
        "validation": 10,
        "test": 10,
    }
    features, labels, sizes = systems.arrays(splits["train"])
    assert features.shape == (sizes.sum(), training.NUM_FEATURES)
    assert set(labels) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert 100 < sizes.mean() < 140
    documents = synthetic.lists(50, num_features=training.NUM_FEATURES, max_list_size=1000)
    expected = np.concatenate([x.features for x in documents])[: len(features)]
    np.testing.assert_array_equal(features, expected)


def test_training_is_measured_in_a_process_of_its_own(capsys):
    training.main(["--lists", "6", "--epochs", "2", "--only", "bare Keras MLP"])

    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| 6 |"))
    assert row.count("|") == training.HEAD.splitlines()[0].count("|")
    assert row.startswith("| 6 | bare Keras MLP | 2 | 0.")


@pytest.mark.parametrize(
    "name",
    training.SYSTEMS,
)
def test_a_system_is_measured_to_the_last_pass(name, tmp_path):
    if name in training.TREES:
        pytest.importorskip(name.split(",")[0], reason="the extra `benchmarks` is not installed")

    fitted = training.SYSTEMS[name](training.web30k_like(6), 2, tmp_path)

    # without options, three networks stop by themselves
    assert fitted.passes == 2 or (name == "run without options" and fitted.passes > 3)
    assert 0.0 < fitted.ndcg <= 1.0
    assert fitted.first is None or 0.0 < fitted.first <= fitted.best <= fitted.total
    assert fitted.data <= fitted.peak


def test_the_parts_of_a_step_add_up_to_it():
    of_shape = training_profile.profile(4, 2, rounds=1)
    assert tuple(of_shape) == training_profile.PARTS
    assert of_shape["scores"] > 0.0
    assert sum(of_shape.values()) > of_shape["scores"]


def test_every_run_is_of_a_benchmark():
    modules = {run.options.split()[0] for run in speed.RUNS}

    assert [x for x in modules if importlib.util.find_spec(f"benchmarks.speed.{x}") is None] == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo a line of theirs; echo '{\"seconds\": 2.5}'", {"seconds": 2.5}),
        ("echo no json", {"error": "no json"}),
        ("echo first >&2; echo no torch >&2; exit 3", {"error": "no torch"}),
        ("exit 3", {"error": "no output, exit status 3"}),
    ],
)
def test_the_authors_code_of_top_k_gives_a_time_or_its_error(tmp_path, script, expected):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    options = argparse.Namespace(torch_python=str(python), authors=tmp_path)
    assert topk.of_authors(options, 100, 5, 1.0) == expected
    options.torch_python = str(tmp_path / "absent")
    assert "No such file" in topk.of_authors(options, 100, 5, 1.0)["error"]
