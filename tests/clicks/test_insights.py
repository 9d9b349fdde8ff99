"""Logs of User Behavior Insights as tables of `tfrank-sel-clicks`."""

import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tests.clicks.test_commands import invoke


def event(action, query, item, ordinal=None, **more):
    position = {"xy": {"x": 3, "y": 4}} if ordinal is None else {"ordinal": ordinal}
    attributes = {"object": {"object_id": item}, "position": position}
    return {"action_name": action, "query_id": query, "event_attributes": attributes, **more}


ASKED = [
    {"query_id": "1", "user_query": "shoes", "query_response_hit_ids": ["a", "b", "c"]},
    {"query_id": "2", "user_query": "hats", "query_response_hit_ids": ["c", "a"]},
    {"query_id": "3", "user_query": "none", "query_response_hit_ids": []},
]
EVENTS = [
    event("impression", "1", "a", 1),
    event("impression", "1", 7, 2),  # an id may be a number
    event("click", "1", 7, 2),
    event("click", "1", 7),
    event("click", "2", "c", 4),
    event("add_to_cart", "1", "a", 1),
    event("click", "9", "a", 1),
    {"action_name": "login", "query_id": None, "event_attributes": {"object": 5}},
]


def ubi_files(folder, asked, events, suffix="jsonl"):
    paths = folder / f"queries.{suffix}", folder / f"events.{suffix}"
    for path, rows in zip(paths, (asked, events), strict=True):
        if suffix == "parquet":
            parquet.write_table(pa.Table.from_pylist(rows), path)
        elif suffix == "csv":
            nested = ({x: json.dumps(y) for x, y in row.items() if y is not None} for row in rows)
            texts = [{x: y.strip('"') for x, y in row.items()} for row in nested]
            csv.write_csv(pa.Table.from_pylist(texts), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


def ubi_rows(*arguments):
    output = arguments[0].parent / "log.parquet"
    done = invoke("ubi", *arguments, "--output", output)
    assert done.exit_code == 0, done.output
    return [tuple(row.values()) for row in parquet.read_table(output).to_pylist()]


@pytest.mark.parametrize("is_export", [False, True])
def test_insights_become_a_log_of_what_was_shown(tmp_path, is_export):
    rows = [ASKED, EVENTS]
    if is_export:
        rows = [[{"_index": "ubi", "_source": row} for row in part] for part in rows]
    assert ubi_rows(*ubi_files(tmp_path, *rows)) == [
        ("1", "shoes", "a", 1, False),
        ("1", "shoes", "7", 2, True),
    ]


def test_insights_without_impressions_have_their_hits(tmp_path):
    clicks_only = [event("view", "1", "b", 0), event("open", "2", "c", 0), event("open", "1", "x")]
    for suffix in ("jsonl", "parquet", "csv"):
        (tmp_path / suffix).mkdir()
        paths = ubi_files(tmp_path / suffix, ASKED, clicks_only, suffix)
        assert ubi_rows(*paths, "--click", "open") == [
            ("1", "shoes", "a", 1, False),
            ("1", "shoes", "b", 2, False),
            ("1", "shoes", "c", 3, False),
            ("2", "hats", "c", 1, True),
            ("2", "hats", "a", 2, False),
        ]
    # of the other session, only the click would be known
    paths = ubi_files(tmp_path, ASKED, [*clicks_only[:2], event("open", "1", "c", 1)])
    assert ubi_rows(*paths, "--click", "open", "--impression", "view") == [
        ("1", "shoes", "b", 1, False),  # positions began at 0
        ("1", "shoes", "c", 2, True),
    ]


HITS = [
    {"query_id": "1", "user_query": "shoes", "query_response_hit_ids": ["a", "b"]},
    {"query_id": "2", "user_query": "shoes", "query_response_hit_ids": ["b", "a"]},
]
PAGE = HITS[0] | {"query_response_hit_ids": ["b", "c", "d"]}
CLICK = event("click", "1", "a", 1)
LEFT_OUT = {
    "outside the hits": (
        HITS,
        [CLICK, event("click", "2", "z", 11), event("click", "2", "b", 1)],
        [*"abba"],
        [1, 2, 1, 2],
        [1, 0, 1, 0],
        "1 clicks on items that were not among the hits",
    ),
    "a next page": (
        [HITS[0], PAGE, HITS[1], PAGE],
        [CLICK, event("click", "1", "c", 1), event("click", "1", "c", 7)],
        [*"abcdba"],
        [1, 2, 3, 4, 1, 2],
        [1, 0, 1, 0, 0, 0],
        "",
    ),
    "ordinals within a page": (
        [HITS[0], PAGE],
        [event("impression", "1", x, y) for x, y in zip("abcd", (1, 2, "1", 2.0), strict=True)]
        + [event("click", "1", "d")],
        [*"abcd"],
        [1, 2, 3, 4],
        [0, 0, 0, 1],
        "",
    ),
    "ordinals of texts": (
        HITS,
        [event("impression", "1", "a", "0"), event("impression", "1", "b", "first")]
        + [event("impression", "1", "z", -1), event("click", "1", "y", "1.5"), CLICK]
        + [event("click", "1", "a", "0")],
        [*"ab"],
        [1, 2],
        [1, 0],
        "1 impressions without a position, 1 clicks without a position",
    ),
    "nothing to know them by": (
        [*HITS, {"user_query": "x"}, {"query_id": "3"}, {"query_id": 4.0, "user_query": 7}],
        [CLICK, event("click", None, "a"), event("click", "3", "a"), event("click", "1", None)],
        [*"abba"],
        [1, 2, 1, 2],
        [1, 0, 0, 0],
        "1 queries without query_id, 1 queries without user_query, "
        "2 events without a known query, 1 events without an item",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_insights_keep_what_can_be_kept_and_count_the_rest(tmp_path, name):
    asked, events, items, positions, clicked, told = LEFT_OUT[name]
    queries, log = ubi_files(tmp_path, asked, events)
    text = queries.read_text().replace("\n", "\n\n")  # blank lines, a byte order mark, gzip
    queries = tmp_path / "queries.jsonl.gz"
    queries.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    done = invoke("ubi", queries, log, "--output", tmp_path / "log.parquet")
    assert done.exit_code == 0, done.output
    found = parquet.read_table(tmp_path / "log.parquet").to_pydict()
    assert (found["item"], found["position"], found["click"]) == (items, positions, clicked)
    assert done.output.splitlines()[1:] == ([f"left out: {told}"] if told else [])


@pytest.mark.parametrize(
    ("asked", "events", "message"),
    [
        (ASKED, EVENTS[:2], "events.jsonl: expected an event 'click' on an item of a query of"),
        ([{"query_id": "1"}], [CLICK], "1 queries without user_query, 1 events without a known"),
        (ASKED, [5], "events.jsonl, row 1: a row must be a JSON object"),
        ([{"query_id": {"x": 1}}], EVENTS, "row 1: 'query_id' must be UTF-8 text"),
        (
            [ASKED[0] | {"query_response_hit_ids": "['a']"}],
            EVENTS,
            "queries.jsonl, row 1: 'query_response_hit_ids' must be an array or its JSON.",
        ),
        (
            ASKED,
            [EVENTS[2] | {"event_attributes": "[1]"}],
            "events.jsonl, row 1: 'event_attributes' must be an object or its JSON. Received: '[1]",
        ),
        ([{"_source": "x"}], EVENTS, "queries.jsonl, row 1: expected an object in '_source'"),
    ],
)
def test_insights_without_a_click_are_one_line(tmp_path, asked, events, message):
    paths = ubi_files(tmp_path, asked, events)
    done = invoke("ubi", *paths, "--output", tmp_path / "log.parquet")
    assert (done.exit_code, message in done.output) == (2, True), done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "log.parquet").exists()


def test_events_of_queries_without_a_text_are_left_out(tmp_path):
    browsed = [event("click", "8", "a"), event("click", "8", "b"), CLICK]
    queries, log = ubi_files(tmp_path, HITS, browsed)
    with queries.open("a") as file:
        file.write(json.dumps({"query_id": "8", "user_query": ""}) + "\n")
    done = invoke("ubi", queries, log, "--output", tmp_path / "log.parquet")
    assert done.exit_code == 0, done.output
    assert "2 events without a known query" in done.output


def test_insights_of_other_queries_and_columns_twice_are_one_line(tmp_path):
    others = [event("click", "8", "a"), event("click", "9", "a"), CLICK]
    done = invoke("ubi", *ubi_files(tmp_path, HITS, others), "--output", tmp_path / "log.parquet")
    assert "expected a known query of at least half of the events" in done.output
    queries, log = ubi_files(tmp_path, HITS, [CLICK], "csv")
    names, *rows = queries.read_text().splitlines()
    queries.write_text("\n".join([f"{names},query_id", *(f"{row},1" for row in rows)]) + "\n")
    done = invoke("ubi", queries, log, "--output", tmp_path / "log.parquet")
    assert "expected one column 'query_id'" in done.output
    assert not (tmp_path / "log.parquet").exists()
