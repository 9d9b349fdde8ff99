"""`tfrank-sel-clicks`: tables in, labels, values and tests out."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from tfrank_sel import clicks
from tfrank_sel.clicks import comparison
from tfrank_sel.clicks.__main__ import app
from tfrank_sel.clicks.log import read as read_log
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


def read(log, **roles):
    """The log of a table as commands read it: identifiers are texts."""
    ids = {name: log[name].astype(str) for name in ("query", "item", "session")}
    return clicks.Log.of(log | ids, **roles)


def options():
    return [word for name, column in NAMES.items() for word in (f"--{name}", column)]


def test_a_log_becomes_a_table_of_corrected_labels(log, path, tmp_path):
    output = tmp_path / "train.parquet"
    done = invoke("correct", path, "--output", output, *options(), "--label", "y")
    assert done.exit_code == 0, done.output
    table = parquet.read_table(output)
    expected = clicks.labels(read(log), clicks.estimate(read(log)))
    found = {(x["search"], x["doc"]): x for x in table.to_pylist()}
    pairs = list(zip(expected["query"], expected["item"], strict=True))
    assert [found[x]["y"] for x in pairs] == expected["label"].tolist()
    assert [found[x]["price"] for x in pairs] == [int(q) * 100 + int(i) for q, i in pairs]
    first = dict.fromkeys(zip(log["query"].tolist(), log["item"].tolist(), strict=True))
    assert list(found) == [(str(q), str(i)) for q, i in first]
    names = parquet.read_schema(path).names
    assert table.column_names == [x for x in names if x not in ("place", "clicked")] + ["y"]
    assert not {"place", "clicked"} & set(table.column_names)
    saved = clicks.Propensities.load(tmp_path / "train.propensities.json")
    np.testing.assert_array_equal(saved.values, clicks.estimate(read(log)).values)
    assert f"{saved.values[1]:.3f}" in done.output
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "log.parquet",
        "train.parquet",
        "train.propensities.json",
    ]


def test_click_models_are_compared(log, path):
    done = invoke("models", path, *options(), "--session", "session")
    assert done.exit_code == 0, done.output
    *lines, last = done.output.splitlines()[1:]
    best = clicks.compare(read(log, session="session"))
    assert last == f"These may be right: {', '.join(comparison.choose(best))}"
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
    with open(tmp_path / "log.jsonl", "w", encoding="utf-8") as file:
        for session, team, click in rows:
            print(json.dumps({"session": session, "team": team, "click": click}), file=file)
    done = invoke("interleaved", tmp_path / "log.jsonl")
    assert "by 0: 0, by 1: 40, by none: 10" in done.output
    assert f"p-value: {2.0**-39:.4g}" in done.output


def test_credits_are_compared_by_their_mean(tmp_path):
    with (
        open(tmp_path / "log.jsonl", "w", encoding="utf-8") as file,
        open(tmp_path / "mixed.jsonl", "w", encoding="utf-8") as lists,
    ):
        for session in range(12):
            values = [0.5, 0.25, -0.75] if session % 4 else [-0.1, 0.0, 0.1]
            for value in values:
                row = {"session": f"s{session}", "credit": value, "click": int(value != -0.75)}
                print(json.dumps(row), file=file)
            line = {"session": f"s{session}", "items": ["a", "b", "c"], "credits": values}
            print(json.dumps(line), file=lists)
    clicked = [
        {"session": f"s{s}", "item": x} for s in range(12) for x in ("ab" if s % 4 else "ac")
    ]
    csv.write_csv(pa.Table.from_pylist(clicked), tmp_path / "clicks.csv")
    for arguments in (
        ["log.jsonl", "--credit", "credit"],
        ["mixed.jsonl", "--clicks", tmp_path / "clicks.csv"],
    ):
        done = invoke("interleaved", tmp_path / arguments[0], *arguments[1:])
        assert "by 0: 9, by 1: 0, by none: 3" in done.output, done.output
        assert f"p-value: {math.erfc(3.0 / math.sqrt(2.0)):.4g}" in done.output
    with open(tmp_path / "mixed.jsonl", "a", encoding="utf-8") as file:
        print(json.dumps({"session": "t", "items": ["a"], "teams": [1]}), file=file)
    done = invoke("interleaved", tmp_path / "mixed.jsonl", "--clicks", tmp_path / "clicks.csv")
    assert "mixed.jsonl, row 13: expected the log of `serve --interleave` or" in done.output
    assert "Received: KeyError" in done.output


def test_clicks_are_joined_with_the_log_of_interleaved_versions(tmp_path):
    with open(tmp_path / "teams.jsonl", "w", encoding="utf-8") as file:
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
    assert "2 of 10 clicks of" in done.stderr
    assert "such as '5 of s9', are not among the items of the sessions of" in done.stderr
    with open(tmp_path / "teams.jsonl", "a", encoding="utf-8") as file:
        print('{"session": "s9", "ite', json.dumps(line), file=file)  # of a server that was killed
        file.write('{"session": "s10", "items": ["')
    done = invoke("interleaved", tmp_path / "teams.jsonl", "--clicks", tmp_path / "clicks.csv")
    assert "by 0: 1, by 1: 2, by none: 27" in done.output, done.output
    assert "2 of 34 lines of the logs are torn, and left out; first: " in done.stderr
    done = invoke("interleaved", tmp_path / "clicks.csv", "--clicks", tmp_path / "clicks.csv")
    assert "clicks.csv, row 1: a row must be a JSON object" in done.output
    (tmp_path / "other.csv").write_text("session,item\nu,7\n")
    done = invoke("interleaved", tmp_path / "teams.jsonl", "--clicks", tmp_path / "other.csv")
    assert "at least half of the clicks of" in done.output
    assert "1 of 1 clicks of" in done.output
    (tmp_path / "other.csv").write_text("session,item,click\ns0,7,0\n")
    done = invoke("interleaved", tmp_path / "teams.jsonl", "--clicks", tmp_path / "other.csv")
    assert "other.csv: expected a click. Received: none" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["correct", "{log}", "--output", "{new}"], "expected a column 'query'"),
        (["correct", "{log}", "--output", "{log}", *options()], "exists"),
        (["correct", "{log}", "--output", "{new}", *options(), "--label", "price"], "price"),
        (["correct", "{log}", "--output", "{new}", *options(), "--label", ""], "--label must be"),
        (
            ["correct", "{log}", "--output", "{new}", *options(), "--item", "search"],
            "query and item must be different columns. Received: 'search'",
        ),
        (["correct", "{log}x", "--output", "{new}", *options()], "log.parquetx"),
        (["value", "{log}", "--score", "x", "--propensities", "{new}"], "new.parquet"),
        (["interleaved", "{log}", "--team", "price", "--click", "clicked"], "must be 0 or 1"),
        (
            ["interleaved", "{log}", "--clicks", "{log}", "--item", "doc"],
            "row 1: a row must be a JSON object",
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


@pytest.mark.parametrize("name", ["query", "item"])
def test_the_value_is_of_the_columns_that_are_named(log, path, tmp_path, name):
    known = tmp_path / "known.json"
    clicks.estimate(read(log), "pbm", resamples=2).save(known)
    given = ["value", path, "--score", "price", "--propensities", known, *options()]
    done = invoke(*given, f"--{name}", "sreach")
    assert (done.exit_code, "expected a column 'sreach'" in done.output) == (2, True), done.output


@pytest.mark.parametrize("name", ["session", "items", "text"])
@pytest.mark.parametrize("odd", [None, "", {"a": 1}])
def test_lists_and_clicks_without_an_identifier_are_not_those_of_one(tmp_path, name, odd):
    line = {"session": "s", "items": ["7"], "teams": [1], "text": "q"}
    other = line | {name: [odd] if name == "items" else odd}
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(other)}\n")
    (tmp_path / "clicks.csv").write_text("session,item\ns,7\n")
    event = {"action_name": "click", "query_id": "s", "text": "q"}
    object_ = {"search_configuration_uuid": A, "object_id": "7"}
    at = {"session": "query_id"}.get(name, name)
    other = event | ({} if name == "items" else {at: odd})
    others = object_ | ({"object_id": odd} if name == "items" else {})
    rows = [x | {"event_attributes": {"object": y}} for x, y in ((event, object_), (other, others))]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in rows))
    for log in (["log.jsonl", "--clicks", tmp_path / "clicks.csv"], ["events.jsonl"]):
        done = invoke("interleaved", tmp_path / log[0], *log[1:], "--query", "text")
        assert (done.exit_code, type(done.exception)) == (2, SystemExit), done.output
        [told] = done.stderr.strip().splitlines()
        assert told.startswith(f"{tmp_path / log[0]}, row 2: ")


A, B = "9c85-a", "1b24-b"  # search configurations; the first by name is B


def test_an_ab_test_of_opensearch_is_read_from_its_answers_or_from_events(tmp_path):
    """Sessions 0 to 4 click on A, 5 on both, 6 on B, 7 on none; 0 is asked twice."""
    answers, events = [], []
    clicked = {**{x: ["1"] for x in range(5)}, 5: ["1", "2"], 6: ["2"], 7: []}
    for session, items in clicked.items():
        hits = [
            {"_id": x, "_score": 1.0, "_search_configuration_id": y}
            for x, y in (("1", A), ("2", B), ("3", A))
        ]
        answer = {"test_id": "t", "hits": hits, "session": f"s{session}", "text": f"q{session % 3}"}
        answers += [answer] * (2 if session == 0 else 1)
        for x in items:
            given = {"search_configuration_uuid": A if x == "1" else B}
            given |= {"id": x} if session % 2 else {"object_id": x}
            event = {"action_name": "click", "query_id": f"s{session}", "text": f"q{session % 3}"}
            events.append(event | {"event_attributes": {"object": given, "ab_test_id": "t"}})
    events += [events[0], events[0] | {"action_name": "hover"}, {"action_name": "click"}]
    for name, rows in {"answers": answers, "events": events}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    pairs = [f"s{session},{x}\n" for session, items in clicked.items() for x in items]
    (tmp_path / "clicks.csv").write_text("".join(["session,item\n", *pairs]))
    joined = ["interleaved", tmp_path / "answers.jsonl", "--clicks", tmp_path / "clicks.csv"]
    alone = ["interleaved", tmp_path / "events.jsonl"]
    for arguments, none in ((joined, 2), (alone, 1)):
        done = invoke(*arguments, "--query", "text")
        assert f"sessions won by {B}: 1, by {A}: 5, by none: {none}" in done.output, done.output
        assert "sessions of 3 queries" in done.output
        assert f"p-value: {clicks.mean_test([-1.0, -2.0, -1.0]):.4g} " in done.output


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({}, "expected items of two search configurations. Received: none"),
        ({"search_configuration_uuid": A, "id": "1"}, "expected a click with a query_id"),
    ],
)
def test_events_that_tell_no_winner_are_one_line(tmp_path, event, message):
    row = {"action_name": "click", "event_attributes": {"object": event}}
    (tmp_path / "events.jsonl").write_text(json.dumps(row) + "\n")
    done = invoke("interleaved", tmp_path / "events.jsonl")
    assert (done.exit_code, message in done.output) == (2, True), done.output


def test_a_column_of_clicks_that_is_named_must_be_there(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"session": "s", "items": ["7"], "teams": [1]}\n')
    (tmp_path / "a.csv").write_text("session,item\ns,7\n")
    (tmp_path / "b.csv").write_text("session,item,click\ns,7,0\n")
    a, b = (["--clicks", tmp_path / x] for x in ("a.csv", "b.csv"))
    assert invoke("interleaved", tmp_path / "log.jsonl", *a).exit_code == 0
    for given in ([*a, "--click", "cliked"], [*a, *b], [*b, *a]):
        done = invoke("interleaved", tmp_path / "log.jsonl", *given)
        assert (done.exit_code, "expected a column 'cli" in done.output) == (2, True), done.output


def test_a_column_shown_of_something_else_is_left_out(log, path, tmp_path):
    table = parquet.read_table(path)
    flags = pa.array(np.zeros(len(table)))
    parquet.write_table(table.append_column("shown", flags), tmp_path / "flags.parquet")
    given = [
        "correct",
        tmp_path / "flags.parquet",
        *options(),
        "--output",
        tmp_path / "new.parquet",
    ]
    assert invoke(*given).exit_code == 2
    done = invoke(*given, "--shown", "")
    assert done.exit_code == 0, done.output
    counted = {"query": ["a", "b"], "item": ["c", "c"], "position": [1, 2], "click": [1, 0]}
    assert clicks.Log.of(counted | {"shown": [0, 0]}, shown=None).shown.tolist() == [1.0, 1.0]


def test_a_log_needs_its_roles_and_rows_with_no_more_clicks_than_impressions():
    counted = {"query": [7, 7, 7], "item": [1.0, -0.0, 0.0], "position": [1, 2, 1]}
    counted |= {"click": [1, 7, 1], "shown": [2, 2, 2]}
    roles, rejected = {x: x for x in counted}, []
    table = read_log(counted, roles, rejected=rejected)
    assert [x.number for x in rejected] == [1]
    assert "`click` must be from 0 to `shown`. Received: 7" in rejected[0].reason
    assert len(table) == 2
    log = clicks.Log.of(counted | {"click": [1, 0, 1]})
    assert (log.query_ids.tolist(), log.num_items) == ([7], 2)
    with pytest.raises(ValueError, match="`table` must have the roles"):
        clicks.Log.of(read_log(counted | {"click": [0, 1, 1]}, {"position": "position"}))
