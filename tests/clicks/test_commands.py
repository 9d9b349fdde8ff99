"""`tfrank-sel-clicks`: tables in, labels, values and tests out."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from tfrank_sel import clicks
from tfrank_sel.clicks.__main__ import app
from tfrank_sel.data import synthetic

NAMES = {"query": "search", "item": "doc", "position": "place", "click": "clicked"}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(x) for x in arguments])


@pytest.fixture(scope="module")
def log():
    labels = [np.random.default_rng(i).integers(0, 3, 6).astype(float) for i in range(20)]
    return synthetic.sessions(labels, 20_000, temperature=1.0, size=6)


@pytest.fixture
def path(log, tmp_path):
    columns = {NAMES.get(name, name): values for name, values in log.items()}
    columns["price"] = columns["search"] * 100 + columns["doc"]
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def options():
    return [word for name, column in NAMES.items() for word in (f"--{name}", column)]


def test_a_log_becomes_a_table_of_corrected_labels(log, path, tmp_path):
    output = tmp_path / "train.parquet"
    done = invoke("correct", path, "--output", output, *options(), "--label", "y")
    assert done.exit_code == 0, done.output
    table = parquet.read_table(output)
    read = clicks.Log.of(log)
    expected = clicks.labels(read, clicks.estimate(read))
    np.testing.assert_array_equal(table["search"], expected["query"])
    np.testing.assert_array_equal(table["price"], expected["query"] * 100 + expected["item"])
    np.testing.assert_array_equal(table["y"], expected["label"])
    assert not {"place", "clicked"} & set(table.column_names)
    saved = clicks.Propensities.load(tmp_path / "train.propensities.json")
    np.testing.assert_array_equal(saved.values, clicks.estimate(read).values)
    assert f"{saved.values[1]:.3f}" in done.output
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "log.parquet",
        "train.parquet",
        "train.propensities.json",
    ]


def test_click_models_are_compared(log, path):
    done = invoke("models", path, *options(), "--session", "session")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()[1:]
    best = clicks.compare(clicks.Log.of(log, session="session"))
    assert [line.split()[0] for line in lines] == [fit.model for fit in best]
    assert f"{best[0].log_likelihood:.4f}" in lines[0]


def test_the_value_of_the_true_order_is_that_of_its_sessions(log, tmp_path):
    read = clicks.Log.of(log)
    clicks.estimate(read).save(tmp_path / "p.json")
    csv.write_csv(pa.table(log), tmp_path / "log.csv")
    arguments = [tmp_path / "log.csv", "--propensities", tmp_path / "p.json"]
    done = invoke("value", *arguments, "--score", "attraction")
    assert done.exit_code == 0, done.output
    logged, new, more = (float(line.split()[1]) for line in done.output.splitlines()[1:])
    assert logged == pytest.approx(log["click"].sum() / (log["session"].max() + 1), abs=1e-4)
    _, sessions = np.unique(log["session"], return_inverse=True)
    order = np.lexsort([-log["attraction"], sessions])
    best = log["attraction"][order].reshape([-1, 6]) / np.arange(1, 7)
    assert new == pytest.approx(best.sum(axis=1).mean(), rel=0.03)
    assert more == pytest.approx(new - logged, abs=2e-4)
    assert more > 0.0


def test_two_rankers_are_compared_by_the_sessions_they_win(tmp_path):
    rows = [(s, team, int(team == 1 and s % 5)) for s in range(50) for team in (0, 1)]
    with open(tmp_path / "log.jsonl", "w") as file:
        for session, team, click in rows:
            print(json.dumps({"session": session, "team": team, "click": click}), file=file)
    done = invoke("interleaved", tmp_path / "log.jsonl")
    assert "by 0: 0, by 1: 40, by none: 10" in done.output
    assert f"p-value: {2.0**-39:.4g}" in done.output


def test_clicks_are_joined_with_the_log_of_interleaved_versions(tmp_path):
    with open(tmp_path / "teams.jsonl", "w") as file:
        for session in range(30):
            line = {"session": f"s{session}", "items": ["7", "8", "9"], "teams": [1, 0, 1]}
            print(json.dumps(line), file=file)
            if session == 4:  # asked again, and for a second page
                print(json.dumps(line), file=file)
                print(json.dumps(line | {"items": ["1", "2", "3"]}), file=file)
    clicked = [("s0", 8, 1), ("s1", 8, 1), ("s1", 7, 1), ("s1", 9, 0), ("s2", 9, 1), ("s2", 9, 1)]
    clicked += [("s4", 1, 1), ("s4", 7, 1), ("s4", 8, 1), ("s9", 5, 1), ("t", 7, 1)]
    columns = dict(zip(("session", "item", "click"), zip(*clicked, strict=True), strict=True))
    csv.write_csv(pa.table({x: list(y) for x, y in columns.items()}), tmp_path / "clicks.csv")
    done = invoke("interleaved", tmp_path / "teams.jsonl", "--clicks", tmp_path / "clicks.csv")
    assert "by 0: 1, by 1: 2, by none: 27" in done.output, done.output
    done = invoke("interleaved", tmp_path / "clicks.csv", "--clicks", tmp_path / "clicks.csv")
    assert "clicks.csv: line 1: expected the log of `serve --interleave`" in done.output
    (tmp_path / "other.csv").write_text("session,item\nu,7\n")
    done = invoke("interleaved", tmp_path / "teams.jsonl", "--clicks", tmp_path / "other.csv")
    assert "other.csv: no click is on an item of a session of" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["correct", "{log}", "--output", "{new}"], "has no column query for query"),
        (["correct", "{log}", "--output", "{log}", *options()], "exists"),
        (["correct", "{log}", "--output", "{new}", *options(), "--label", "price"], "price"),
        (["correct", "{log}x", "--output", "{new}", *options()], "log.parquetx"),
        (["value", "{log}", "--score", "x", "--propensities", "{new}"], "new.parquet"),
        (["interleaved", "{log}", "--team", "price", "--click", "clicked"], "must be 0 or 1"),
        (
            ["interleaved", "{log}", "--clicks", "{log}", "--item", "doc"],
            "line 1: expected the log",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_and_status_2(path, tmp_path, arguments, message):
    before = path.read_bytes()
    places = {"log": path, "new": tmp_path / "new.parquet"}
    done = invoke(*(x.format(**places) for x in arguments))
    assert (done.exit_code, message in done.output) == (2, True), done.output
    assert len(done.output.strip().splitlines()) == 1
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
