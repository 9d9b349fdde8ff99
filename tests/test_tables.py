"""Odd columns through every command and key that takes a table: as `data.read`, or one line."""

import datetime
import gzip
import json
import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from typer.testing import CliRunner

from tests.data.test_any_type import arrays
from tfrank_sel import clicks, data
from tfrank_sel.clicks.__main__ import app as clicks_app
from tfrank_sel.data import InputError, formats, requests
from tfrank_sel.data.formats import Columns
from tfrank_sel.features import Category
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.ingestion.clicks import corrected
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source

UUIDS = [uuid.uuid5(uuid.NAMESPACE_DNS, x) for x in "ab"]
NOON = datetime.datetime(2024, 1, 1, 12, 30)
# two values of a column, as texts and JSON have them, or as an array that Parquet and Arrow hold
PLAIN = {
    "leading zeros": ["007", "7"],
    "exponents": ["1e5", "100000"],
    "numbers as text": ["1", "1.0"],
    "booleans as text": ["false", "TRUE"],
    "times as text": ["2024-01-01T12:30:00Z", "2024-01-02 12:30:00"],
    "days as text": ["20240101", "20240102"],
    "uuids as text": [str(x) for x in UUIDS],
    "2^53": [2**53 + 1, 2**53 + 2],
    "2^63": [2**63 + 11, 2**63 + 13],
    "2^64": [2**64 + 11, 2**64 + 13],
    "whole floats": [7.0, 8.0],
    "floats": [0.5, 2.5e-05],
    "booleans": [False, True],
    "nothing": [None, "a"],
    "mixed": ["a", 7],
    "objects": [{"a": 1}, {"a": 2}],
    "lists": [[1, 2], [3]],
}
ARRAYS = {
    "unsigned": pa.array([7, 200], pa.uint8()),
    "halves": pa.array(np.array([1.5, 2.0], np.float16)),
    "times": pa.array([NOON, NOON + datetime.timedelta(1)], pa.timestamp("ns")),
    "zones": pa.array([NOON, NOON.replace(hour=0, minute=0)], pa.timestamp("us", "Asia/Tokyo")),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "dictionary of integers": pa.array([7, 8]).dictionary_encode(),
    "bytes": pa.array([b"a", b"b"]),
    "bytes that are no text": pa.array([b"a", b"\xff"]),
    "uuids": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([x.bytes for x in UUIDS], pa.binary(16))
    ),
    "decimals": pa.array([1, 2], pa.decimal128(10, 2)),
    "NaN": pa.array([float("nan"), 1.0]),
    "times of day": pa.array([NOON.time()] * 2),
}
SESSIONS = 12
ROWS = [(s, s % 2, (p + s // 2) % 2, p + 1) for s in range(SESSIONS) for p in range(2)]
ROLES = ("session", "query", "item", "position")
LOG = {
    "session": [f"s{s}" for s, _, _, _ in ROWS],
    "query": [f"q{q}" for _, q, _, _ in ROWS],
    "item": [f"i{i}" for _, _, i, _ in ROWS],
    "position": [p for *_, p in ROWS],
    "click": [int(p == 1 or s % 3 == 0) for s, _, _, p in ROWS],
    "team": [(s + p) % 2 for s, _, _, p in ROWS],
    "n": [float(i) for _, _, i, _ in ROWS],
}


def written(folder, values, index, suffix, encoding="utf-8"):
    """Files of the log with a column `x`; none if the format does not hold the values."""
    path, of_each = folder / f"log.{suffix}", [index(row) for row in ROWS]
    if isinstance(values, list) and suffix in ("csv", "tsv", "jsonl"):
        rows = [dict(zip(LOG, x, strict=True)) for x in zip(*LOG.values(), strict=True)]
        rows = [{"X": 1, "x": values[i]} | row for i, row in zip(of_each, rows, strict=True)]
        if suffix == "jsonl":
            text = "".join(json.dumps(row) + "\n" for row in rows)
        elif any(isinstance(x, dict | list) for x in values):
            return None
        else:
            mark = "," if suffix == "csv" else "\t"
            lines = [["" if x is None else str(x) for x in row.values()] for row in rows]
            text = "".join(mark.join(x) + "\n" for x in [list(rows[0]), *lines])
        path.write_text(text, encoding=encoding)
        return path
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        table = pa.table({"X": [1] * len(ROWS), "x": array.take(pa.array(of_each)), **LOG})
        if suffix == "parquet":
            parquet.write_table(table, path)
        elif suffix == "arrow":
            feather.write_feather(table, path)
        else:
            return None
    except (pa.ArrowException, OverflowError):
        return None
    return path


def invoked(app, *arguments):
    """The output of a command; an InputError if it ends with one line and status 2."""
    done = CliRunner().invoke(app, [str(x) for x in arguments])
    if done.exit_code == 0:
        return done.output
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), done.exception
    [line] = done.stderr.strip().splitlines()
    raise InputError(line, "")


def by_read(path, role, folder):
    columns = {"query": "query", "doc_id": "item", role: "x"}
    lists = list(data.read(path, **columns, label="click", features=["n"]))
    found = {one.query_id for one in lists} if role == "query" else {}
    return sorted(found or {item for one in lists for item in one.doc_ids})


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
    made, *_ = corrected(inputs, Clicks(position="position", session="session"), output)
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


def by_rank(path, role, folder):
    lists = requests.item_list(
        requests.read(path).drop_columns(["X", *LOG]), {"x": Category()}, doc_id="y"
    )
    return sorted({str(x) for x in lists.texts.ravel()})


def by_texts(path, role, folder):
    """The texts of a category, which differ from identifiers in the spelling of texts."""
    found = data.read(path, query="query", label="click", features={"x": Category()})
    return sorted({text for one in found for text in one.texts.ravel()})


DOORS = {
    "correct": (by_correct, by_read, ("query", "doc_id")),
    "run": (by_run, by_read, ("query", "doc_id")),
    "interleaved": (by_interleaved, lambda *x: len(by_read(*x)), ("query",)),
    "interleaved --clicks": (by_clicks, by_read, ("query", "doc_id")),
    "rank --file": (by_rank, by_texts, ("query",)),
}
NO_ID = {"nothing", "NaN"}  # of an item, which lists may lack and clicks may not


def attempt(run, *arguments):
    """The result, or None for one line."""
    try:
        return run(*arguments)
    except InputError as error:
        problem = error
    assert "\n" not in str(problem)
    return None


@pytest.mark.sample(6)
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
            if wanted is None or (name in NO_ID and door != "rank --file"):
                assert found is None, (name, role)
            else:
                assert found == wanted, (name, role)


def floats(values, kind=np.float64):
    return pa.array(np.array(values, kind))


# what numbers may be, from small integers; `data.read` takes all of them as labels
NUMBERS = {
    "integers": lambda x: x,
    "unsigned": lambda x: pa.array(x, pa.uint8()),
    "unsigned 32": lambda x: pa.array(x, pa.uint32()),
    "halves": lambda x: floats(x, np.float16),
    "floats": floats,
    "decimals": lambda x: pa.array(x, pa.decimal128(10, 2)),
    "dictionary": lambda x: pa.array(x).dictionary_encode(),
    "texts": lambda x: [str(i) for i in x],
    "texts of floats": lambda x: [f"{i}.0" for i in x],
    "bytes": lambda x: pa.array([str(i).encode() for i in x]),
    "mixed": lambda x: [str(i) if row % 2 else i for row, i in enumerate(x)],
    "booleans": lambda x: [bool(i) for i in x],
    "words": lambda x: [str(bool(i)) for i in x],
}
BAD = {
    "nothing": lambda x: [*x[:-1], None],
    "NaN": lambda x: floats([*x[:-1], np.nan]),
    "infinity": lambda x: floats([*x[:-1], np.inf]),
    "a word": lambda x: [*map(str, x[:-1]), "one"],
    "objects": lambda x: [{"a": i} for i in x],
    "lists": lambda x: [[i] for i in x],
    "times": lambda x: pa.array(x, pa.timestamp("s")),
    "negative": lambda x: [*x[:-1], -1],
    "huge": lambda x: floats([*x[:-1], 1e300]),
}
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


@pytest.mark.sample(3)
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


@pytest.mark.sample(3)
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
        if attempt(corrected, inputs, Clicks(position="position"), made):
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
        attempt(corrected, inputs, Clicks(position="position"), tmp_path / f"run{number}")
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
