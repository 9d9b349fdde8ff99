"""What `config` proposes of a table: roles of columns."""

import tomllib

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from tfrank_sel.data.formats import tables
from tfrank_sel.data.schema import Columns
from tfrank_sel.pipelines.__main__ import app

SESSIONS, SIZE, QUERIES = 120, 5, 24


@pytest.fixture(scope="module")
def log():
    """Impressions of a shop, with a click, columns of the session, and of the text."""
    random = np.random.default_rng(3)
    session, position = np.divmod(np.arange(SESSIONS * SIZE), SIZE)
    query = session % QUERIES
    text = np.array([f"words {x}" for x in range(QUERIES)])
    count = len(session)
    return {
        "session": session + 7,
        "query": text[query],
        "item": np.char.add("i", (10 * query + random.integers(0, 9, count)).astype(str)),
        "clicked": np.arange(count) % 3 == 0,
        "position": position + 1,
        "price": random.lognormal(size=count).round(2),
        "brand_id": random.integers(0, 9, count),
        "user_id": random.integers(0, 20, SESSIONS)[session],
        "request_nr": (10 * session + 1).astype(float),
        "device": np.array(["phone", "desktop"])[session % 5 // 3],
        "ts": 1_750_000_000 + 60 * session,
        "words": query % 4,
        "row_id": np.arange(count),
        "paid": random.integers(0, 9, count),
    }


def config(folder, table, *options, files=("--data",)):
    parquet.write_table(pyarrow.table(table), folder / "log.parquet")
    named = [word for option in files for word in (option, str(folder / "log.parquet"))]
    named += ["--label", "clicked", "--doc-id", "item"]
    result = CliRunner().invoke(app, ["config", *named, *options])
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.stdout), result.stdout


def without(table, *names):
    return {name: x for name, x in table.items() if name not in names}


def test_columns_of_the_query_identifiers_and_times_are_proposed_as_such(log, tmp_path):
    table = {**without(log, "position"), "rank": log["position"]}
    table["clicked"] = np.arange(len(table["rank"])) % 4  # grades, no clicks
    found, text = config(tmp_path, table, "--query", "session")
    assert found["features"] == {
        "query": {"type": "category", "of": "query"},
        "price": "number",
        "brand_id": {"type": "category", "dtype": "int64"},
        "user_id": {"type": "category", "of": "query", "dtype": "int64"},
        "request_nr": {"type": "number", "of": "query"},
        "device": {"type": "category", "of": "query"},
        "ts": {"type": "timestamp", "of": "query", "parts": True},
        "words": {"type": "number", "of": "query"},
        "paid": "number",
    }
    assert "# row_id is omitted: its identifiers almost all differ: 600 in 600 rows" in text
    assert "# rank is omitted: a server does not know it before it ranks" in text
    assert "clicks" not in found
    split = ("--train", "--validation", "--test")
    of_splits, _ = config(tmp_path, table, "--query", "session", files=split)
    assert of_splits["features"] == found["features"]


def test_few_queries_and_columns_that_differ_once_are_of_items(log, tmp_path):
    odd = log["device"].copy()
    odd[1] = "tablet"
    found, _ = config(tmp_path, {**log, "device": odd}, "--query", "session")
    assert found["features"]["device"] == "category"
    few = {name: x[: 19 * SIZE] for name, x in log.items()}
    found, _ = config(tmp_path, without(few, "position", "row_id"), "--query", "session")
    assert "query" not in str(found["features"]["words"])


def test_suspects_are_marked_and_only_changed_keys_printed(log, tmp_path):
    clicked = log["clicked"]
    first = np.cumsum(clicked) % 4 > 0  # of the clicked items, most
    suspects = {
        "after": [x if y else None for x, y in zip(log["price"], clicked & first, strict=True)],
        "outcome": np.where(clicked, "bought", "none"),
        "copy": clicked.astype(int),
    }
    found, text = config(tmp_path, {**log, **suspects}, "--query", "query")
    assert {*found} == {"data", "clicks", "features"}
    assert {*found["data"]} == {"data", "query", "label", "doc_id"}
    lines = " ".join(text.replace("\n# ", " ").split())
    missing = suspects["after"].count(None) / len(clicked)
    only = "present only on rows with a label above 0, orders the labels: 1.000 on "
    assert f"after is suspect: {missing:.0%} missing, {only}" in lines
    for name in ("outcome", "copy"):
        assert f"{name} is suspect: orders the labels: 1.000 by its values alone" in lines
    assert text.count("is suspect") == 3
    named = ("--query", "query", "--omit", "after,outcome,copy")
    found, text = config(tmp_path, {**log, **suspects}, *named)
    assert found["data"]["omit"] == ["after", "outcome", "copy"]
    assert not {*found["features"]} & {*suspects}
    assert "# copy is omitted: data.omit" in text
    # a name that a part of a vector would have
    odd = without({**log, "price[1]": suspects["copy"]}, "position")
    _, text = config(tmp_path, odd, "--query", "query")
    assert "# price[1] is suspect" in text
    assert "# price is suspect" not in text
    everything, _ = config(tmp_path, {**log, **suspects}, *named, "--all")
    assert everything["features"] == found["features"]
    assert "training" in everything


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"clicked": np.arange(SESSIONS * SIZE) % 3}, ()),  # grades
        ({"position": np.ones(SESSIONS * SIZE, int)}, ()),  # no impression
        ({"position": np.arange(SESSIONS * SIZE) % SIZE}, ()),  # from 0
        ({"query": None}, ()),  # no text
        ({}, ("--propensity", "price")),  # corrected already
    ],
)
def test_no_correction_is_proposed_where_there_is_none(log, tmp_path, changed, options):
    table = {name: x for name, x in {**log, **changed}.items() if x is not None}
    found, _ = config(tmp_path, table, "--query", "session", *options)
    assert found["data"]["query"] == "session"
    assert "clicks" not in found


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("userid", [7, 8, 9], "category"),
        ("Visitor", [7, 8, 9], "category"),
        ("new_visitor", [0, 1, 1], "number"),
        ("paid", [7, 8, 9], "number"),
        ("hash", [2**62, 5**20, 3**30], "category"),
        ("ns", [x * 10**18 for x in (2, 3, 4)], "number"),
        ("day", ["20240110", "20240229", None], "timestamp"),
        ("created_at", ["2024-01-10T11:12:13Z", "2024-01-11 01:02:03", None], "timestamp"),
        ("date", ["2024/01/10", "2024/02/29 01:02", None], "timestamp"),
        ("date", ["20240110", "20240230", "20240229"], "category"),
        ("date", ["10/01/2024", "29/02/2024", None], "category"),
        ("day", ["1", "2", "3"], "category"),
        ("day", [1, 2, 3], "number"),
    ],
    ids=str,
)
def test_names_and_values_tell_identifiers_and_times(name, values, kind):
    table = pyarrow.table({name: [values[i % 3] for i in range(60)]})
    features, _ = tables.propose(table.schema, table, Columns())
    assert features[name].type == kind


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["007", "7", "12"], "category"),
        (["1e5", "100000", "2"], "category"),
        ([str(2**63 + x) for x in range(3)], "category"),
        (["+49301", "+49302", "+493"], "number"),
        (["0.5", "1e-05", "12"], "number"),
        (["1", "NA", ""], "number"),
        ([str(2**53 + x) for x in range(3)], "number"),
    ],
    ids=str,
)
def test_names_that_look_like_numbers_are_categories_in_any_format(tmp_path, texts, kind):
    rows = ["query,item,clicked,x", *(f"q{i // 3},i{i},{i % 3},{texts[i % 3]}" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    named = ["--data", str(tmp_path / "t.csv"), "--label", "clicked", "--doc-id", "item"]
    result = CliRunner().invoke(app, ["config", *named, "--query", "query"])
    assert tomllib.loads(result.stdout)["features"] == {"x": kind}, result.output
