"""A click log as the data of a run: corrected labels, propensities, and logs that are refused."""

import dataclasses
import functools
import json
import typing

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import csv, parquet
from typer.testing import CliRunner

from tests.test_tables import LOG, ROWS
from tfrank_sel import clicks, data
from tfrank_sel.data import InputError, synthetic
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.evaluation import clicks as by_clicks
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.ingestion.clicks import correct_log
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source

KEYS = {
    "data.query": "search",
    "data.label": "clicked",
    "data.doc_id": "doc",
    "clicks.position": "place",
    "clicks.session": "visit",
}
NAMES = {"query": "search", "item": "doc", "position": "place", "click": "clicked"}
NAMES |= {"session": "visit"}


@pytest.fixture(scope="module")
def log():
    """A log of 60 queries of six items, some of which have a price."""
    random = np.random.default_rng(0)
    labels = [random.integers(0, 3, 6).astype(float) for _ in range(60)]
    made = synthetic.sessions(labels, 6_000, temperature=1.0, size=6)
    columns = {NAMES[name]: made[name] for name in NAMES}
    columns["price"] = columns["search"] * 7 % 5 + columns["doc"] * 1.0
    return columns


def ingest(path, output, **keys):
    options = [f"--set={name}={value}" for name, value in {**KEYS, **keys}.items() if value]
    files = ["--output", str(output), f"--set=data.data=['{path}']"]
    return CliRunner().invoke(app, ["ingest", *files, *options])


def read_log(log):
    """The log as a run reads it: identifiers are texts."""
    ids = {name: log[name].astype(str) for name in ("search", "doc", "visit")}
    return clicks.Log.of(log | ids, **NAMES)


def expected(log, **options):
    """The label of each query and item."""
    read = read_log(log)
    found = clicks.labels(read, clicks.estimate(read), **options)
    return {
        (str(q), str(i)): y
        for q, i, y in zip(found["query"], found["item"], found["label"], strict=True)
    }


@pytest.mark.long
@pytest.mark.parametrize("correction", ["doubly_robust", "pooled"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_run_learns_corrected_labels_and_not_the_position(log, tmp_path, suffix, correction):
    write = parquet.write_table if suffix == "parquet" else csv.write_csv
    write(pa.table(log), tmp_path / f"log.{suffix}")
    output = tmp_path / "run"
    done = ingest(tmp_path / f"log.{suffix}", output, **{"clicks.correction": correction})
    assert done.exit_code == 0, done.output
    schema = Schema.read(output / "ingest" / "layout.json")
    assert list(schema.features) == ["price"]
    shards = [str(x) for x in (output / "ingest" / "records").rglob("*.tfrecord*")]
    spec = data.FeatureSpec(len(schema.names), num_texts=len(schema.texts))
    found = {
        (one.query_id, str(item)): label
        for one in stored_lists.lists(shards, spec)
        for item, label in zip(one.doc_ids, one.labels, strict=True)
    }
    labels = expected(log, correction=correction)
    assert found.keys() == labels.keys()
    np.testing.assert_allclose([found[x] for x in labels], [*labels.values()], rtol=1e-6)
    saved = clicks.Propensities.load(output / "ingest" / "clicks" / "propensities.json")
    np.testing.assert_array_equal(saved.values, clicks.estimate(read_log(log)).values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x | {"place": x["doc"] % 6 + 1}, "(clicks.method pbm): each clicked item was"),
        (lambda x: x | {"place": np.ones_like(x["place"])}, "at least two different values"),
        (
            lambda x: x | {"clicked": x["clicked"] * 2},
            "row 4: 'clicked' must be from 0 to 1. Received: 2",
        ),
        (lambda x: {k: v for k, v in x.items() if k != "place"}, "place"),
    ],
    ids=["one ranker", "one position", "counts", "no position"],
)
def test_a_log_that_cannot_be_corrected_is_one_line(log, tmp_path, change, message):
    parquet.write_table(pa.table(change(log)), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"clicks.method": "pbm"})
    assert done.exit_code == 2
    [line] = done.stderr.strip().splitlines()
    assert message in line
    assert not (tmp_path / "run" / "ingest").exists()


def test_a_log_of_one_ranker_is_told_and_has_no_value_of_another_order(log, tmp_path):
    some = log["visit"] < 1_200
    table = {name: values[some] for name, values in log.items()}
    table["place"] = table["doc"] % 6 + 1
    parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run")
    assert done.exit_code == 0
    assert "as in the log of a single ranker" in done.output
    found = clicks.Propensities.load(tmp_path / "run/ingest/clicks/propensities.json")
    assert found.method in ("none", "cascade", "dcm")
    with pytest.raises(ValueError, match="does not tell what another order would earn"):
        clicks.reordered(read_log(table), dataclasses.replace(found, method="none"), table["doc"])


def test_a_log_of_counts_has_the_labels_of_its_impressions(log, tmp_path):
    names = ["search", "doc", "place"]
    rows = pa.table({**log, "seen": np.ones(len(log["doc"]))}).group_by([*names, "price"])
    counts = rows.aggregate([("clicked", "sum"), ("seen", "sum")])
    counts = counts.rename_columns([x.removesuffix("_sum") for x in counts.column_names])
    parquet.write_table(counts, tmp_path / "log.parquet")
    keys = {"clicks.session": "", "clicks.shown": "seen", "clicks.method": "pbm"}
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **keys)
    assert done.exit_code == 0, done.output
    schema = Schema.read(tmp_path / "run/ingest/layout.json")
    assert list(schema.features) == ["price"]
    shards = [str(x) for x in (tmp_path / "run/ingest/records").rglob("*.tfrecord*")]
    spec = data.FeatureSpec(len(schema.names), num_texts=len(schema.texts))
    found = {
        (one.query_id, str(item)): label
        for one in stored_lists.lists(shards, spec)
        for item, label in zip(one.doc_ids, one.labels, strict=True)
    }
    read = read_log(log)
    labels = clicks.labels(read, clicks.estimate(read, "pbm"))
    wanted = zip(labels["query"], labels["item"], labels["label"], strict=True)
    wanted = {(q, i): y for q, i, y in wanted}
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose([found[x] for x in wanted], [*wanted.values()], rtol=1e-5)


def test_positions_that_no_item_connects_do_not_stop_a_run(log, tmp_path):
    lone = log["visit"] % 400 == 0  # their last place is one that no other session has
    table = log | {"place": np.where(lone & (log["place"] == 6), 9, log["place"])}
    table |= {"clicked": np.where(table["place"] == 9, 0, log["clicked"])}
    parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"clicks.method": "pbm"})
    assert done.exit_code == 0, done.output
    assert "have that of the nearest" in done.output
    shown = parquet.read_table(tmp_path / "run/ingest/clicks/shown.parquet")["position"]
    assert 9 in shown.to_pylist()


def of_test(run):
    """The lists of the test split that a run ingested, and the folder of its log."""
    ingested = run / "ingest"
    shards = [str(x) for x in (ingested / "records").glob("test-*")]
    schema = Schema.read(ingested / "layout.json")
    lists = stored_lists.StoredLists(shards, data.FeatureSpec(len(schema.names)))
    return lists, ingested / "clicks"


def test_a_log_of_repeated_queries_needs_sessions(log, tmp_path):
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"clicks.session": ""})
    assert done.exit_code == 0, done.output
    lists, folder = of_test(tmp_path / "run")
    settings = Clicks(position="place")

    def zeros(inputs):
        return tf.zeros(tf.shape(inputs["mask"]))

    message = r"unique within each `session`\. Received: session='1'"
    with pytest.raises(by_clicks.UnknownValueError, match=message):
        by_clicks.compare(zeros, lists, folder, settings, gain="exponential", seed=0)
    shown = parquet.read_table(folder / "shown.parquet")
    others = shown.set_column(
        shown.schema.get_field_index("item"), "item", pa.array(["x"] * len(shown))
    )
    parquet.write_table(others, folder / "shown.parquet")
    with pytest.raises(ValueError, match="impressions of the split") as refused:
        by_clicks.compare(zeros, lists, folder, settings, gain="exponential", seed=0)
    assert not isinstance(refused.value, by_clicks.UnknownValueError)


def test_an_error_is_no_log_without_a_value(log, tmp_path):
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"clicks.method": "pbm"})
    assert done.exit_code == 0, done.output
    lists, folder = of_test(tmp_path / "run")
    settings = Clicks(position="place", session="visit")

    def scores(inputs, value=0.0):
        return tf.fill(tf.shape(inputs["mask"]), value)

    def compared(**named):
        value = {"gain": "exponential", "seed": 0, **named}
        return by_clicks.compare(value.pop("scorer", scores), lists, folder, settings, **value)

    assert "clicks per session" in compared()[0]
    shown = parquet.read_table(folder / "shown.parquet")
    twice = shown.set_column(
        shown.schema.get_field_index("session"), "session", pa.array(["1"] * len(shown))
    )
    first = shown.filter(pa.compute.equal(shown["position"], 1))
    not_finite = functools.partial(scores, value=np.nan)
    for table, scorer, message, is_unknown in (
        (shown, not_finite, "scores of the model must be finite. Received: nan", False),
        (twice, scores, "`position` must be unique within each `session`", True),
        (first, scores, "all impressions of the split are at position 1", True),
    ):
        parquet.write_table(table, folder / "shown.parquet")
        with pytest.raises(ValueError, match=message) as refused:
            compared(scorer=scorer)
        assert isinstance(refused.value, by_clicks.UnknownValueError) == is_unknown


def test_methods_of_sessions_alone_need_one_item_at_each_position(log, tmp_path):
    parquet.write_table(pa.table(log | {"visit": log["search"]}), tmp_path / "log.parquet")
    for method, code in (("pbm", 0), ("ubm", 2)):
        done = ingest(tmp_path / "log.parquet", tmp_path / method, **{"clicks.method": method})
        assert done.exit_code == code, done.output
    assert "`position` must be unique within each `session`. Received: " in done.stderr


def test_rows_of_a_log_that_are_rejected_are_told_and_counted(log, tmp_path):
    place = np.where(np.arange(len(log["place"])) < 7, 0.5, log["place"])
    parquet.write_table(pa.table(log | {"place": place}), tmp_path / "log.parquet")
    keys = {"clicks.method": "pbm", "data.allow_bad_lines": "9"}
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **keys)
    assert done.exit_code == 0, done.output
    assert "7 rejected: see clicks/dead_letters.jsonl" in done.stdout
    ingested = tmp_path / "run" / "ingest"
    letters = (ingested / "clicks" / "dead_letters.jsonl").read_text().splitlines()
    rejected = json.loads((ingested / "ingest.json").read_text())["rejected"]
    assert rejected["count"] == len(letters) == sum(rejected["rules"].values()) == 7


@pytest.mark.long
def test_features_that_are_known_after_the_click_are_found_in_the_log(log, tmp_path):
    random, clicked = np.random.default_rng(2), log["clicked"] == 1
    count = len(clicked)
    late = {
        "cart": (clicked & (random.random(count) < 0.35)).astype(int),
        "dwell": np.where(clicked, random.random(count), np.nan),
        "state": np.where(clicked, "opened", "shown"),
    }
    before = {"stock": random.random(count), "shop": log["doc"].astype(str)}
    for name, columns in (("late", late | before), ("before", before)):
        parquet.write_table(pa.table(log | columns), tmp_path / f"{name}.parquet")
        output = tmp_path / name
        assert ingest(tmp_path / f"{name}.parquet", output).exit_code == 0
        done = CliRunner().invoke(app, ["analyze", f"--output={output}"])
        assert done.exit_code == 0, done.output
        path = output / "analyze" / "anomalies" / "train.json"
        found = {x["feature"] for x in json.loads(path.read_text()) if x["rule"] == "leak"}
        assert found == (late.keys() if name == "late" else set())


def test_the_position_is_no_feature(log, tmp_path):
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"features.place": "number"})
    assert done.exit_code == 2
    assert "clicks.position and features.place must name different columns" in done.stderr


@pytest.mark.long
def test_a_run_judges_its_order_by_the_clicks_of_the_log(tmp_path):
    random = np.random.default_rng(0)
    labels = [random.integers(0, 3, 6).astype(float) for _ in range(150)]
    made = synthetic.sessions(labels, 9_000, temperature=1.0, size=6)
    columns = {NAMES[name]: made[name] for name in NAMES}
    columns["price"] = np.stack(labels)[made["query"], made["item"]]
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    sets = {**KEYS, "training.loss.class": "SoftmaxLoss", "model.hidden_units": "[8]"}
    sets |= {"model.trees": "false", "evaluation.baseline": "false", "clicks.method": "pbm"}
    options = [f"--set={name}={value}" for name, value in sets.items()]
    options += ["--epochs=20", "--batch-size=16", "--set=training.learning_rate=0.02"]
    options.append("--allow-leaks=price")  # which is the true label
    output = tmp_path / "run"
    files = [f"--output={output}", f"--set=data.data=['{tmp_path}/log.parquet']"]
    done = CliRunner().invoke(app, ["run", *files, *options])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads((output / "evaluate" / "metrics.json").read_text())["clicks"]
    value = found["clicks per session"]
    shown = parquet.read_table(output / "ingest" / "clicks" / "shown.parquet")
    is_test = np.isin(columns["search"], tested := queries_of_test(output))
    assert value["queries"] == len(tested)
    sessions = len(np.unique(columns["visit"][is_test]))
    assert shown.num_rows == len(columns["visit"])
    assert value["baseline"] == pytest.approx(columns["clicked"][is_test].sum() / sessions)
    best = np.sort(made["attraction"][is_test].reshape([-1, 6]), axis=1)[:, ::-1]
    assert value["ours"] == pytest.approx((best / np.arange(1, 7)).sum(axis=1).mean(), rel=0.1)
    assert value["low"] > 0.0
    naive, corrected = (found[f"NDCG@5 of {x}"] for x in ("clicks", "corrected clicks"))
    assert corrected["ours"] - corrected["baseline"] > naive["ours"] - naive["baseline"]
    overall = json.loads((output / "evaluate" / "metrics.json").read_text())["metrics"]
    assert corrected["ours"] == pytest.approx(overall["NDCG@5"]["ours"], abs=0.02)
    checks = json.loads((output / "push" / "blessing.json").read_text())["checks"]
    assert any(x["told"].startswith("clicks per session") and x["passed"] for x in checks)
    assert "Clicks of the test split" in (output / "report.html").read_text()


def queries_of_test(output):
    shards = [str(x) for x in (output / "ingest" / "records").glob("test-*")]
    return [int(one.query_id) for one in stored_lists.lists(shards, data.FeatureSpec(1))]


def test_impressions_that_are_named_are_in_each_file_of_a_run(tmp_path) -> None:
    rows = {name: pa.array(values) for name, values in LOG.items()}
    parquet.write_table(pa.table(rows | {"seen": [1] * len(ROWS)}), tmp_path / "a.parquet")
    parquet.write_table(pa.table(rows | {"shown": [1] * len(ROWS)}), tmp_path / "b.parquet")
    files = [Source(str(tmp_path / x)) for x in ("a.parquet", "b.parquet")]
    inputs = Inputs(files, Columns("query", "click", "item", ("n",)), {"train": 1.0})
    for name in ("seen", "shown"):
        with pytest.raises(InputError, match=f"expected a column '{name}'"):
            correct_log(inputs, Clicks(position="position", shown=name), tmp_path / name)


def test_a_configuration_names_what_the_package_has() -> None:
    fields = {"method": clicks.METHODS, "correction": clicks.CORRECTIONS}
    for name, names in fields.items():
        assert typing.get_args(Clicks.model_fields[name].annotation) == names
