"""Odd columns through requests in files: as `data.read`, or one line."""

import datetime
import json
import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from typer.testing import CliRunner

from tfrank_sel import data
from tfrank_sel.data import InputError, requests
from tfrank_sel.features import Category

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


def by_rank(path, role, folder):
    lists = requests.item_list(
        requests.read(path).drop_columns(["X", *LOG]), {"x": Category()}, doc_id="y"
    )
    return sorted({str(x) for x in lists.texts.ravel()})


def by_texts(path, role, folder):
    """The texts of a category, which differ from identifiers in the spelling of texts."""
    found = data.read(path, query="query", label="click", features={"x": Category()})
    return sorted({text for one in found for text in one.texts.ravel()})


def attempt(run, *arguments):
    """The result, or None for one line."""
    try:
        return run(*arguments)
    except InputError as error:
        problem = error
    assert "\n" not in str(problem)
    return None


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


@pytest.mark.sample(3)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_texts_of_requests_are_those_of_read(tmp_path, suffix):
    for name, values in {**PLAIN, **ARRAYS}.items():
        path = written(tmp_path, values, lambda row: row[1], suffix)
        if path is not None:
            wanted, found = (attempt(x, path, "query", tmp_path) for x in (by_texts, by_rank))
            assert found == wanted, name
