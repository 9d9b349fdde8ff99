"""Odd columns through commands and keys of click logs: as `data.read`, or one line."""

import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from tests.data.test_any_type import arrays
from tests.test_tables import (
    ARRAYS,
    BAD,
    LOG,
    NUMBERS,
    PLAIN,
    ROWS,
    SESSIONS,
    attempt,
    by_read,
    invoked,
    written,
)
from tfrank_sel import clicks, data
from tfrank_sel.clicks.__main__ import app as clicks_app
from tfrank_sel.data import InputError, formats
from tfrank_sel.data.formats import Columns
from tfrank_sel.features import Category
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.ingestion.clicks import correct_log
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source


def by_correct(path, role, folder):
    output = folder / "out.parquet"
    output.unlink(missing_ok=True)
    output.with_suffix(".propensities.json").unlink(missing_ok=True)
    name = {"query": "query", "doc_id": "item"}[role]
    invoked(clicks_app, "correct", path, "--output", output, f"--{name}", "x")
    return sorted(set(parquet.read_table(output)["x"].to_pylist()))


def by_run(path, role, folder):
    names = {"query": "query", "doc_id": "item", role: "x"}
    columns = Columns(names["query"], "click", names["doc_id"], ("n",))
    inputs = Inputs([Source(str(path))], columns, {"train": 1.0})
    output = folder / f"run{len(list(folder.iterdir()))}"
    made, *_ = correct_log(inputs, Clicks(position="position", session="session"), output)
    shown = parquet.read_table(output / "shown.parquet")["query" if role == "query" else "item"]
    found = set(parquet.read_table(made.sources[0].path)["x"].to_pylist())
    assert found == set(shown.to_pylist())
    return sorted(found)


def by_interleaved(path, role, folder):
    told = invoked(clicks_app, "interleaved", path, "--session", "x")
    parts = told.splitlines()[0].replace(",", "").split()
    return sum(int(x) for x, before in zip(parts[1:], parts, strict=False) if before[-1] == ":")


def by_clicks(path, role, folder):
    """The identifiers whose clicks are joined with a log of those that `data.read` finds."""
    known = by_read(path, role, folder)
    sessions = known if role == "query" else dict.fromkeys(LOG["session"])
    items = ["i0", "i1"] if role == "query" else known
    lines = [{"session": x, "items": items, "teams": [1] * len(items)} for x in sessions]
    (folder / "served.jsonl").write_text("\n".join(map(json.dumps, lines)))
    roles = ["--session", "x"] if role == "query" else ["--item", "x"]
    table = [folder / "served.jsonl", "--clicks", path]
    told = invoked(clicks_app, "interleaved", *table, *roles, "--click", "position")
    return known if "left out" not in told and f"by 1: {len(lines)}," in told else [told]


DOORS = {
    "correct": (by_correct, by_read, ("query", "doc_id")),
    "run": (by_run, by_read, ("query", "doc_id")),
    "interleaved": (by_interleaved, lambda *x: len(by_read(*x)), ("query",)),
    "interleaved --clicks": (by_clicks, by_read, ("query", "doc_id")),
}


NO_ID = {"nothing", "NaN"}  # of an item, which lists may lack and clicks may not


@pytest.mark.sample(24)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("door", DOORS)
def test_identifiers_are_those_of_read(tmp_path, door, suffix):
    run, read, roles = DOORS[door]
    for name, values in {**PLAIN, **ARRAYS}.items():
        for role in roles:
            place = {"query": 1, "doc_id": 2}[role]
            path = written(tmp_path, values, lambda row, at=place: row[at], suffix)
            if path is None:
                continue
            wanted, found = (attempt(x, path, role, tmp_path) for x in (read, run))
            if wanted is None or name in NO_ID:
                assert found is None, (name, role)
            else:
                assert found == wanted, (name, role)


NUMBERED = [
    ("correct", "position"),
    ("correct", "click"),
    ("models", "position"),
    ("models", "click"),
    ("value", "position"),
    ("value", "click"),
    ("value", "score"),
    ("interleaved", "team"),
    ("interleaved", "click"),
    ("interleaved", "credit"),
    ("interleaved --clicks", "click"),
]


ANY_SIGN = ("score", "credit")


def numbered(command, role, path, folder):
    """The output of a command."""
    arguments = [command.split()[0], path, f"--{role}", "x"]
    if command == "correct":
        (folder / "out.parquet").unlink(missing_ok=True)
        (folder / "out.propensities.json").unlink(missing_ok=True)
        arguments += ["--output", folder / "out.parquet"]
    elif command == "value":
        arguments += ["--propensities", folder / "known.json"]
        arguments += [] if role == "score" else ["--score", "n"]
    elif command.endswith("--clicks"):
        lines = [{"session": f"s{s}", "items": ["i0", "i1"], "teams": [0, 1]} for s in range(12)]
        served = folder / "served.jsonl"
        served.write_text("".join(json.dumps(line) + "\n" for line in lines))
        arguments = ["interleaved", served, "--clicks", path, f"--{role}", "x"]
    return invoked(clicks_app, *arguments)


@pytest.mark.long
@pytest.mark.parametrize(("command", "role"), NUMBERED)
def test_numbers_widen_or_are_refused_in_one_line(tmp_path, command, role):
    log = clicks.Log(**{x: LOG[x] for x in ("query", "item", "position", "click")})
    clicks.estimate(log).save(tmp_path / "known.json")
    of_role = {"score": "n", "credit": "team"}.get(role, role)
    values, told = [int(x) for x in LOG[of_role]], set()
    for suffix in ("parquet", "csv", "jsonl"):
        for name, kind in {**NUMBERS, **BAD}.items():
            if role == "position" and name in ("booleans", "words"):
                continue  # which hold no 2
            each = kind(values)
            path = written(tmp_path, each, lambda row: ROWS.index(row), suffix)
            if path is None or (name == "huge" and (role in ANY_SIGN or "inter" in command)):
                continue  # which is a number
            found = attempt(numbered, command, role, path, tmp_path)
            is_bad = name in BAD and not (name == "negative" and role in ANY_SIGN)
            assert (found is None) == is_bad, (suffix, name, found)
            told |= set() if name in BAD else {found}
    assert len(told) == 1


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_bad_number_is_told_with_file_row_column_and_value(tmp_path, suffix):
    path = written(tmp_path, [*map(str, LOG["position"][:-1]), "9.5"], ROWS.index, suffix)
    with pytest.raises(InputError) as error:
        numbered("correct", "position", path, tmp_path)
    told = "row 24: 'x' must be a whole number from 1. Received: '9.5'"
    assert str(error.value) == f"{path}, {told}: "


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_other_columns_are_features_as_in_the_log(tmp_path, suffix):
    """Of the corrected table of both roads: the same texts, numbers and proposed types."""
    for name, values in {**PLAIN, **ARRAYS}.items():
        path = written(tmp_path, values, lambda row: row[2], suffix)
        if path is None:
            continue
        output, made = tmp_path / "out.parquet", tmp_path / f"run {name} {suffix}"
        for file in (output, output.with_suffix(".propensities.json")):
            file.unlink(missing_ok=True)
        types = {"x": Category()}
        columns = Columns("query", "click", "item", types)
        inputs = Inputs([Source(str(path))], columns, {"train": 1.0})
        wanted = attempt(features, path, "click", types)
        if attempt(correct_log, inputs, Clicks(position="position"), made):
            assert attempt(features, made / "log.parquet", "click", types) == wanted, name
        else:
            assert wanted is None, name
        if attempt(invoked, clicks_app, "correct", path, "--output", output):
            assert attempt(features, output, "relevance", types) == wanted, name
            # Parquet has no dictionary of integers
            if name not in NAMES and (suffix, name) != ("arrow", "dictionary of integers"):
                assert proposed(output) == proposed(path), name


# texts that a proposal takes for numbers, some for equal ones
NAMES = {"leading zeros", "exponents", "days as text", "2^63", "2^64"}


@pytest.mark.long
def test_a_column_of_any_type_is_kept_or_refused_in_one_line(tmp_path):
    output, kept = tmp_path / "out.parquet", 0
    for number, column in enumerate(arrays()):
        path = tmp_path / f"{number}.arrow"
        try:
            table = pa.table({**LOG, "x": pa.chunked_array([column] * SESSIONS)})
            feather.write_feather(table, path, compression="zstd")
        except (pa.ArrowException, KeyError):  # the format has no such type
            continue
        for file in (output, output.with_suffix(".propensities.json")):
            file.unlink(missing_ok=True)
        kept += attempt(invoked, clicks_app, "correct", path, "--output", output) is not None
        columns = Columns("query", "click", "item", ("n",))
        inputs = Inputs([Source(str(path))], columns, {"train": 1.0})
        attempt(correct_log, inputs, Clicks(position="position"), tmp_path / f"run{number}")
    assert kept > 40


def features(path, label, types):
    """The texts of each query and item."""
    found = data.read(path, query="query", doc_id="item", label=label, features=types)
    return {
        (one.query_id, item): texts
        for one in found
        for item, texts in zip(one.doc_ids, one.texts.tolist(), strict=True)
    }


def proposed(path):
    columns = Columns("query", None, "item")
    types, left_out = formats.reader([str(path)], columns).propose([str(path)])
    return types.get("x"), left_out.get("x", "").partition(":")[0].partition(" in ")[0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_text_has_any_encoding_of_utf_8_and_no_other(tmp_path, suffix):
    path = written(tmp_path, ["é", "7"], lambda row: row[1], suffix)
    whole = path.read_bytes()
    for name, content in {
        f"log.{suffix}": b"\xef\xbb\xbf" + whole,
        f"log.{suffix}.gz": gzip.compress(whole),
        "log.inter": whole,
    }.items():
        place = path.with_name(name)
        place.write_bytes(content)
        options = ["--format", suffix] if name.endswith("inter") else []
        output = tmp_path / f"{name}.parquet"
        invoked(clicks_app, "correct", place, "--output", output, "--query", "x", *options)
        assert set(parquet.read_table(output)["x"].to_pylist()) == {"é", "7"}
        assert "by 0: " in invoked(clicks_app, "interleaved", place, *options)
        table = ["--clicks", place, "--session", "x", *options]
        lines = [{"session": x, "items": ["i0", "i1"], "teams": [x == "é"] * 2} for x in "é7"]
        (tmp_path / "served.log").write_text("\n".join(map(json.dumps, lines)))
        assert "by 1: 1" in invoked(clicks_app, "interleaved", tmp_path / "served.log", *table)
    path.write_bytes(whole.decode().encode("utf-16"))
    for arguments in (
        ["correct", path, "--output", tmp_path / "new.parquet"],
        ["models", path],
        ["interleaved", path],
        ["interleaved", tmp_path / "served.log", "--clicks", path],
        ["interleaved", path, "--clicks", tmp_path / f"log.{suffix}.gz"],
        ["ubi", path, path, "--output", tmp_path / "new.parquet"],
    ):
        with pytest.raises(InputError, match=r"expected text in UTF-8.*Received: UTF-16"):
            invoked(clicks_app, *arguments)


def test_several_files_are_one_table(tmp_path):
    """A pattern, the files that a shell makes of it, a folder, and partitions."""
    for number, values in enumerate(([7, 8], ["007", "8"])):
        part = tmp_path / "logs" / f"x=0{number}"
        part.mkdir(parents=True)
        file = written(part, values, lambda row: row[2], "parquet")
        table = parquet.read_table(file, partitioning=None)
        parquet.write_table(table.rename_columns(["X", "y", *LOG]), part / f"{number}.parquet")
        file.unlink()
    files = sorted((tmp_path / "logs").rglob("*.parquet"))
    pairs = {(f"q{q}", item) for q in (0, 1) for item in ("7", "8", "007")}
    for number, given in enumerate(([tmp_path / "logs" / "*" / "*.parquet"], files)):
        output = tmp_path / f"{number}.parquet"
        invoked(clicks_app, "correct", *given, "--output", output, "--item", "y")
        table = parquet.read_table(output)
        columns = table["query"].to_pylist(), table["y"].to_pylist()
        assert set(zip(*columns, strict=True)) == pairs
    output = tmp_path / "folder.parquet"
    invoked(clicks_app, "correct", tmp_path / "logs", "--output", output, "--query", "x")
    table = parquet.read_table(output)
    assert set(table["x"].to_pylist()) == {"00", "01"}
    assert set(table["y"].to_pylist()) == {"7", "8", "007"}
    (tmp_path / "link.parquet").symlink_to(files[0])
    for again in (files[0], "logs/../logs/x=00/0.parquet", "link.parquet"):
        with pytest.raises(InputError, match="expected each file once"):
            invoked(clicks_app, "models", *files, tmp_path / again)
    with pytest.raises(InputError, match="a pattern that matches no file"):
        invoked(clicks_app, "models", tmp_path / "*.csv")


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
def test_insights_have_the_identifiers_of_read(tmp_path, suffix):
    """Of queries and of their events, which are joined by them."""
    for name, values in {**PLAIN, **ARRAYS}.items():
        path = written(tmp_path, values, lambda row: row[1], suffix)
        output = tmp_path / "made.parquet"
        output.unlink(missing_ok=True)
        if path is None or name in NO_ID:  # which is left out
            continue
        wanted = attempt(by_read, path, "query", tmp_path)
        files = []
        for file, more in (("queries", ASKED), ("events", CLICKED)):
            files.append(tmp_path / f"{file}.{suffix}")
            if suffix == "jsonl":
                rows = [json.loads(line) for line in path.read_text().splitlines()]
                text = "".join(json.dumps({"query_id": x["x"], **more}) + "\n" for x in rows)
                files[-1].write_text(text)
                continue
            read = parquet.read_table if suffix == "parquet" else feather.read_table
            rows = pa.Table.from_pylist([more] * len(ROWS))
            table = rows.append_column("query_id", read(path)["x"])
            (parquet.write_table if suffix == "parquet" else feather.write_feather)(
                table, str(files[-1])
            )
        told = attempt(invoked, clicks_app, "ubi", *files, "--output", output)
        assert (told is None) == (wanted is None), name
        if told:
            assert sorted(set(parquet.read_table(output)["session"].to_pylist())) == wanted, name


ASKED = {"user_query": "q", "query_response_hit_ids": ["a", "b"]}


CLICKED = {"action_name": "click", "event_attributes": {"object": {"object_id": "a"}}}


def test_each_command_that_reads_a_log_is_tried() -> None:
    tried = {command.split()[0] for command, _ in NUMBERED} | {"ubi"}
    assert {x.name or x.callback.__name__ for x in clicks_app.registered_commands} == tried
