"""Named features of any type: from dicts and frames, over both protocols, to the model's scores."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests import refusals
from tests.serving import named
from tests.serving.named import ITEM, QUERY, TYPES
from tfrank_sel.data import InputError, frames, requests, typed
from tfrank_sel.export.saved_model import MANIFEST
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.status import Code, ServingError

# a value of each type that the model tells from ITEM's, and None
OTHERS = {
    "price": 99.0,
    "is_new": False,
    "brand": "bolt",
    "year": 2024,
    "tags": ["red"],
    "seller": 6,
    "embedding": [7.0, 1.0],
    "published_at": datetime.datetime(2025, 12, 1),
}


def scores_of(model, rows, query=QUERY):
    """The model's own scores, of rows as a table to train on holds them."""
    columns = {name: [row.get(name) for row in rows] for name in ITEM}
    columns |= {name: [query.get(name)] * len(rows) for name in QUERY}
    frame = {"q": ["q"] * len(rows), "y": [0] * len(rows), **columns}
    [one] = frames.lists(frame, query="q", label="y", features=TYPES)
    mask = tf.ones([1, len(rows)], tf.bool)
    inputs = {"features": tf.constant(one.features[None]), "mask": mask}
    return model({**inputs, "texts": tf.constant(one.texts[None])}).numpy()[0]


@pytest.fixture(scope="module")
def scored():
    return named.model()


@pytest.fixture(scope="module", params=["grpc", "rest"])
def address(named_endpoint, request):
    if request.param == "grpc":
        return f"127.0.0.1:{named_endpoint.grpc_port}"
    return f"http://127.0.0.1:{named_endpoint.rest_port}"


@pytest.fixture(scope="module")
def ranker(address, named_model):
    with Ranker(address, manifest=named_model / "saved_model") as ranker:
        yield ranker


def in_order(ranked):
    return [item.score for item in sorted(ranked, key=lambda item: int(item.doc_id))]


def test_a_request_scores_as_the_model_does_each_value_and_each_missing_one(scored, ranker):
    rows = [ITEM]
    for name, other in OTHERS.items():
        without = {key: value for key, value in ITEM.items() if key != name}
        rows += [{**ITEM, name: other}, {**ITEM, name: None}, without]
    rows += [{**ITEM, "brand": "unseen"}, {**ITEM, "tags": []}, {**ITEM, "price": np.nan}]
    expected = scores_of(scored, rows)

    ranked = ranker.rank(rows, query=QUERY)

    np.testing.assert_allclose(in_order(ranked), expected, rtol=0, atol=1e-6)
    assert [item.score for item in ranked] == sorted(expected.tolist(), reverse=True)
    assert [item.rank for item in ranked] == list(range(1, len(rows) + 1))
    assert ranker.rank(rows, query=QUERY, k=2) == ranked[:2]
    # every value counts, and so does that it is missing
    first = expected[0]
    for place, name in enumerate(OTHERS):
        other, none, left_out = expected[1 + 3 * place : 4 + 3 * place]
        assert len({first, other, none}) == 3, name
        assert none == left_out


@pytest.mark.parametrize("name", QUERY)
def test_a_feature_of_the_query_may_be_missing(scored, ranker, name):
    without = {key: value for key, value in QUERY.items() if key != name}
    expected = scores_of(scored, [ITEM], without)
    assert expected != scores_of(scored, [ITEM])
    for query in (without, {**QUERY, name: None}):
        [item] = ranker.rank([ITEM], query=query)
        np.testing.assert_allclose(item.score, expected[0], rtol=0, atol=1e-6)


def test_values_of_numpy_and_other_types_are_what_python_s_are(ranker):
    like = {
        "price": decimal.Decimal("2.5"),
        "stock": np.float32(3),
        "is_new": np.bool_(True),
        "brand": np.str_("acme"),
        "year": np.int32(2025),
        "tags": ("wide", "red"),
        "seller": np.int64(2**62 + 1),
        "embedding": np.array([0.25, -3.0]),
        "published_at": "2026-01-01T13:30:00Z",
    }
    seconds = {**QUERY, "shown_at": 1769904000}
    assert ranker.rank([like], query=seconds) == ranker.rank([ITEM], query=QUERY)


def test_frames_and_columns_are_what_dicts_are(ranker):
    items = [{"doc_id": "x", **ITEM}, {"doc_id": "y", **ITEM, "brand": None, "price": None}]
    expected = ranker.rank(items, query=QUERY)
    assert {item.doc_id for item in expected} == {"x", "y"}
    columns = {name: [item[name] for item in items] for name in items[0]}

    for table in (columns, pd.DataFrame(items), pl.DataFrame(items)):
        assert ranker.rank(table, query=QUERY) == expected
    # as a table to train on holds the query's
    with_query = [{**item, **QUERY} for item in items]
    assert ranker.rank(pd.DataFrame(with_query)) == expected


def test_what_a_model_takes_is_told_by_its_signature(scored, address):
    plain = {"published_at": 1767274200, "is_new": 1.0}
    query = {**QUERY, "shown_at": 1769904000}
    with Ranker(address) as ranker:
        [item] = ranker.rank([{**ITEM, **plain}], ["a"], query=query)
        np.testing.assert_allclose(item.score, scores_of(scored, [ITEM]), rtol=0, atol=1e-6)
        with pytest.raises(InputError, match="Did you mean 'brand'"):
            ranker.rank([{"brant": "acme"}])
        with pytest.raises(ServingError, match=r"INVALID_ARGUMENT: .*stock"):
            ranker.rank([{"price": 1.0}])
        assert ranker.rank([]) == []


REFUSED = [
    ({"pric": 1}, {}, "expected in the items only .* Did you mean 'price'.* Received: 'pric'"),
    ({"xyzzy": 1}, {}, "expected in the items only price, stock.*doc_id. Received: 'xyzzy'"),
    ({}, {"brand": "acme"}, "expected in the query only shown_at, country, age. .*'brand'"),
    ({"country": "de"}, QUERY, r"expected each feature once. Received twice: \['country'\]"),
    ({"stock": None}, {}, "item 1: 'stock' must be a finite number. Received: nothing"),
    ({"price": "cheap"}, {}, "item 1: 'price' must be .*number.* Received: 'cheap'"),
    ({"price": [1.0]}, {}, r"item 1: 'price' must be of type number.* Received: \[1.0\]"),
    ({"price": np.inf}, {}, "item 1: 'price' must be a finite number. Received: inf"),
    ({"price": 10**400}, {}, "item 1: 'price' must be a finite number.*Received: '10000"),
    ({"is_new": 2}, {}, "item 1: 'is_new' must be true or false. Received: '2'"),
    ({"brand": ["acme"]}, {}, "item 1: 'brand' must be of type category.* Received: "),
    ({"brand": object()}, {}, "item 1: 'brand' must be of type category.* Received: <object"),
    ({"year": 2025.5}, {}, "item 1: 'year' must be an integer above -2"),
    ({"seller": 2**63}, {}, "item 1: 'seller' must be .* Received: 9223372036854775808"),
    ({"embedding": [1.0]}, {}, r"item 1: 'embedding' must be 2 finite numbers. .*\[1.0\]"),
    ({"embedding": [1.0, None]}, {}, "item 1: 'embedding' must be 2 finite numbers"),
    ({"published_at": "today"}, {}, "item 1: 'published_at' must be .*time.* Received: 'today'"),
    # milliseconds
    ({"published_at": 1767274200000}, {}, "item 1: 'published_at' must be .*time.*1767274200000"),
]


@pytest.mark.parametrize(("change", "query", "message"), REFUSED)
def test_what_does_not_fit_is_refused(ranker, change, query, message):
    with pytest.raises(InputError, match=message):
        ranker.rank([ITEM, {**ITEM, **change}], query=query)


def test_times_of_several_types_are_refused_not_mistaken(ranker):
    other = {**ITEM, "published_at": 1767274200}  # Arrow would take it for microseconds
    with pytest.raises(InputError, match=r"must be times of one type.* Received: 17672"):
        ranker.rank([ITEM, other], query=QUERY)


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([{"doc_id": "a"}], InputError, "expected features: price, stock.* Received: none"),
        ([{}], InputError, "expected features: price, stock.* Received: none"),
        ([ITEM, 3], InputError, "item 1: expected a dict of features. Received: 3"),
        ({"price": 1.0}, InputError, "expected in 'price' a value for each item. Received: 1.0"),
        ({"price": [1.0], "stock": [1, 2]}, InputError, "expected columns of one length"),
        ({"price": []}, InputError, "expected at least one item. Received: none"),
        (
            pl.DataFrame({"age": [1, 2], "stock": [1, 1]}),
            InputError,
            "'age' is a feature of the query",
        ),
        ({"a", "b"}, InputError, "expected a dict for each item, .* Received: set"),
        (np.ones([2, 3]), ServingError, "Model ranker takes named features: price, stock"),
        ([[1.0, 2.0]], ServingError, "Model ranker takes named features: price, stock"),
    ],
)
def test_items_of_another_form_are_refused(ranker, items, error, message):
    with pytest.raises(error, match=message):
        ranker.rank(items)


def test_identifiers_are_one_for_each_item(ranker):
    assert [x.doc_id for x in ranker.rank([ITEM, ITEM], [7, "b"])] == ["7", "b"]
    with pytest.raises(ValueError, match=r"`doc_ids` must be one for each of 1 items. Received: 2"):
        ranker.rank([ITEM], ["a", "b"])


def test_a_packed_model_refuses_named_features(address):
    with Ranker(address, "packed") as ranker:
        with pytest.raises(ServingError, match=r"packed .*\[list_size, 3\]. .*named") as error:
            ranker.rank([{"price": 1.0}])
        assert error.value.code is Code.FAILED_PRECONDITION
        with pytest.raises(ServingError, match=r"3 packed .* Received: also .* of the query"):
            ranker.rank(np.ones([1, 3]), query={"x": 1})
        assert [x.doc_id for x in ranker.rank(np.ones([2, 3]))] == ["0", "1"]


def test_a_manifest_must_be_the_model_s(address, named_model, tmp_path):
    told = json.loads((named_model / "saved_model" / MANIFEST).read_text())
    del told["features"]["types"]["price"]
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    with (
        Ranker(address, manifest=tmp_path / "manifest.json") as ranker,
        pytest.raises(ValueError, match=r"must be of the model, .* price, .* Received: age, brand"),
    ):
        ranker.rank([ITEM])
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match=r"manifest with `features`. Received: no such key"):
        Ranker(address, manifest=tmp_path / "manifest.json")
    with pytest.raises(FileNotFoundError):
        Ranker(address, manifest=tmp_path / "none")


# as texts, which CSV has alone
WRITTEN = {
    "doc_id": ["x", "y"],
    "price": ["2.5", ""],
    "stock": ["3", "4"],
    "is_new": ["true", "false"],
    "brand": ["acme", ""],
    "tags": ["wide|red", ""],
    "embedding": ["0.25 -3", ""],
    "published_at": ["2026-01-01T13:30:00Z", ""],
    "country": ["de", "de"],
}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.jsonl", "--items"])
def test_the_command_line_ranks_files_and_json(tmp_path, named_endpoint, named_model, ranker, name):
    file, frame = tmp_path / name, pd.DataFrame(WRITTEN)
    records = frame.to_dict("records")
    match name.partition(".")[2]:
        case "parquet":
            frame.to_parquet(file)
        case "jsonl":
            file.write_text("\n".join(map(json.dumps, records)))
        case _:
            frame.to_csv(file, index=False)
    what = ["--items", json.dumps(records)] if name == "--items" else ["--file", str(file)]
    where = [
        "--address",
        f"127.0.0.1:{named_endpoint.grpc_port}",
        "--manifest",
        str(named_model / "saved_model"),
    ]
    of_query = {"shown_at": "2026-02-01", "age": 33}

    result = CliRunner().invoke(app, ["rank", *what, *where, "--query", json.dumps(of_query)])

    assert (result.exit_code, result.stderr) == (0, "")
    shown = [line.split()[3::2] for line in result.stdout.splitlines() if line.startswith("│")]
    expected = ranker.rank(frame, query=of_query)
    assert shown == [[x.doc_id, f"{x.score:.6g}"] for x in expected]
    of_dict = {key: value for key, value in ITEM.items() if key not in ("year", "seller")}
    [one] = ranker.rank([of_dict], query=QUERY)
    assert {x.doc_id: x.score for x in expected}["x"] == pytest.approx(one.score, abs=1e-6)


def test_the_command_line_ranks_the_rows_of_a_training_table(
    tmp_path, named_endpoint, named_model, ranker
):
    table = pd.DataFrame([{**ITEM, **QUERY}, {**ITEM, **QUERY, "price": 99.0}])
    expected = ranker.rank(table)
    table.insert(0, "session", ["s", "s"])
    table.insert(0, "clicked", [5, 7])
    table.to_parquet(tmp_path / "a.parquet")
    address = f"127.0.0.1:{named_endpoint.grpc_port}"
    what = ["rank", "--file", str(tmp_path / "a.parquet"), "--address", address]

    result = CliRunner().invoke(app, [*what, "--manifest", str(named_model / "saved_model")])

    assert (result.exit_code, result.stderr) == (0, "")
    shown = [line.split()[3::2] for line in result.stdout.splitlines() if line.startswith("│")]
    labels = {"0": "5", "1": "7"}
    assert shown == [[x.doc_id, f"{x.score:.6g}", labels[x.doc_id], "s"] for x in expected]


@pytest.mark.parametrize(("arguments", "message"), refusals.of("rank_named"))
def test_what_the_command_line_refuses_is_one_line_and_status_2(
    tmp_path, monkeypatch, named_endpoint, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ragged.csv").write_text("price,stock\n1,2\n3\n")
    (tmp_path / "letor.txt").write_text("1 qid:7 1:1\n")
    for name in ("bad.jsonl", "bad.parquet", "bad.json", "bad.tfrecord"):
        (tmp_path / name).write_text("nothing")
    address = ["--address", f"127.0.0.1:{named_endpoint.grpc_port}"]

    result = CliRunner().invoke(app, ["rank", *address, *arguments])

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    for part in message.split(".*"):
        assert part in result.stderr


def test_names_may_be_any_text(address):
    items = [dict.fromkeys(named.ODD_TYPES, 0.0) for _ in named.ODD_TYPES]
    for item, name in zip(items, named.ODD_TYPES, strict=True):
        del item["Land des Käufers"]
        if name in item:
            item[name] = 3.0
    with Ranker(address, "odd") as ranker:
        ranked = ranker.rank(items, query={"Land des Käufers": "de"})
        elsewhere = ranker.rank(items, query={"Land des Käufers": None})
    assert len({x.score for x in ranked + elsewhere}) == 2 * len(items)


def test_lookups_of_a_model_s_own_get_what_is_named(address):
    items = [
        {"brand": "acme"},
        {"brand": "bolt"},
        {"sizes": [2.0, 1.0]},
        {"price": 5},
        {"price": 1},
    ]
    with Ranker(address, "lookups") as ranker:
        scores = in_order(ranker.rank([*items, {"price": None}], query={"country": "de"}))
        with pytest.raises(ServingError, match="takes named features: brand, country, price"):
            ranker.rank(np.ones([3, 4]), ["a", "b", "c"])
    assert len(set(scores)) == 5
    assert scores[4] == scores[5]  # the default of a missing price is 1


def test_a_query_that_was_written_as_json_lines_needs_no_manifest(tmp_path, address, ranker):
    one = requests.item_list([ITEM, {"stock": 1.0}], TYPES, query=QUERY, doc_ids=["x", "y"])
    (tmp_path / "one_query.jsonl").write_text(typed.text(one, TYPES))
    expected = ranker.rank([ITEM, {"stock": 1.0}], ["x", "y"], query=QUERY)

    with Ranker(address) as by_signature:
        assert by_signature.rank(requests.read(tmp_path / "one_query.jsonl")) == expected
