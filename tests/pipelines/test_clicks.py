"""A click log as the data of a run: corrected labels, propensities, and logs that are refused."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from tfrank_sel import clicks, data
from tfrank_sel.data import synthetic
from tfrank_sel.data.schema import Schema
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.ingestion import stored

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
    options = [f"--set={name}={value}" for name, value in {**KEYS, **keys}.items()]
    files = ["--output", str(output), f"--set=data.data=['{path}']"]
    return CliRunner().invoke(app, ["ingest", *files, *options])


def expected(log, **options):
    """The label of each query and item."""
    read = clicks.Log.of(log, **NAMES)
    found = clicks.labels(read, clicks.estimate(read), **options)
    return {
        (str(q), str(i)): y
        for q, i, y in zip(found["query"], found["item"], found["label"], strict=True)
    }


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
        for one in stored.lists(shards, spec)
        for item, label in zip(one.doc_ids, one.labels, strict=True)
    }
    labels = expected(log, correction=correction)
    assert found.keys() == labels.keys()
    np.testing.assert_allclose([found[x] for x in labels], [*labels.values()], rtol=1e-6)
    saved = clicks.Propensities.load(output / "ingest" / "clicks" / "propensities.json")
    np.testing.assert_array_equal(saved.values, clicks.estimate(clicks.Log.of(log, **NAMES)).values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x | {"place": x["doc"] % 6 + 1}, "clicks"),
        (lambda x: x | {"place": np.ones_like(x["place"])}, "at least two different values"),
        (lambda x: x | {"clicked": x["clicked"] * 2}, "`click` must be from 0 to 1"),
        (lambda x: {k: v for k, v in x.items() if k != "place"}, "place"),
    ],
    ids=["one ranker", "one position", "counts", "no position"],
)
def test_a_log_that_cannot_be_corrected_is_one_line(log, tmp_path, change, message):
    parquet.write_table(pa.table(change(log)), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run")
    assert done.exit_code == 2
    [line] = done.stderr.strip().splitlines()
    assert message in line
    assert not (tmp_path / "run" / "ingest").exists()


def test_the_position_is_no_feature(log, tmp_path):
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    done = ingest(tmp_path / "log.parquet", tmp_path / "run", **{"features.place": "number"})
    assert done.exit_code == 2
    assert "clicks.position and features.place must name different columns" in done.stderr
