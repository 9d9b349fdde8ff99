"""Scoring of files by an exported model, and its evaluation on new data, by the command line."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet
from typer.testing import CliRunner

from tests.serving import named
from tests.serving.named import ITEM, QUERY
from tfrank_sel import data, export, locks, metrics, models
from tfrank_sel.data import letor
from tfrank_sel.features import Vector
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

OTHERS = {
    "price": [99.0, None],
    "is_new": [False, None],
    "brand": ["bolt", "unseen", None],
    "year": [2024, 1, None],
    "tags": [["red"], [], None],
    "seller": [6, None],
    "embedding": [[7.0, 1.0], None],
    "published_at": [None],
}
SCORES = (("query_id", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()))
SCHEMA = pa.schema([*SCORES, ("score", pa.float32())])


def packed_model(seed=1, count=3):
    keras.utils.set_random_seed(seed)
    model = models.Scorer([0.0] * count, [1.0] * count, [4])
    model.build((None, None, count))
    return model


def letor_lists(count, seed=0):
    random = np.random.default_rng(seed)
    found = []
    for query in range(count):
        size = int(random.integers(1, 8))
        features = random.normal(size=[size, 3]).astype(np.float32)
        features[-1] = features[0]  # a tie
        labels = random.integers(0, 3, size).astype(np.float32)
        ids = tuple(f"d{i}" for i in range(size))
        found.append(data.ItemList(f"q{query}", labels, features, ids))
    return found


def typed_rows():
    """Rows of lists with values of all types, seen, unseen and missing, and with a label."""
    random = np.random.default_rng(1)
    rows = []
    for query in range(30):
        of_query = {**QUERY, "age": None if query == 3 else query}
        of_query["country"] = ("de", "fr", None)[query % 3]
        for place in range(int(random.integers(1, 6))):
            row = {**ITEM, "stock": float(place), "doc_id": f"{query}-{place}"}
            for name, others in OTHERS.items():
                if random.random() < 0.4:
                    row[name] = others[random.integers(len(others))]
            label = float(random.integers(0, 3))
            rows.append({"query_id": f"q{query}", "relevance": label, **row, **of_query})
    return rows


@pytest.fixture(scope="module")
def folder(exported, tmp_path_factory):
    """Exported models, served ones, and files of lists."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "typed").symlink_to(exported / "typed")
    names = {"feature_names": Vector(size=3).numbers("features")}
    for name, seed in (("packed", 1), ("another", 2)):
        export.export(packed_model(seed), data.FeatureSpec(3), folder / name, metadata=names)
    for name in ("packed", "another", "typed"):
        export.publish(folder / name, folder / "served" / name, 1)
    letor.write(folder / "lists.txt", letor_lists(30))
    rows = pa.Table.from_pylist(typed_rows())
    shuffled = rows.take(np.random.default_rng(0).permutation(len(rows)))
    parquet.write_table(shuffled, folder / "lists.parquet")
    parquet.write_table(shuffled.drop_columns(["relevance"]), folder / "unlabelled.parquet")
    return folder


def invoke(command, *options):
    return CliRunner().invoke(app, [command, *map(str, options)])


def score(model, files, output, *options):
    done = invoke("score", "--model", model, "--data", files, "--output", output, *options)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def ranked(output):
    """The rows of an output, by query, each by rank; the rows of a query stand together."""
    found = {}
    for path in sorted(output.glob("scores-*")):
        table = parquet.read_table(path)
        assert table.schema == SCHEMA
        queries = table["query_id"].to_pylist()
        assert len(dict.fromkeys(queries)) == 1 + sum(map(str.__ne__, queries, queries[1:]))
        for row in table.to_pylist():
            found.setdefault(row["query_id"], []).append(row)
    for rows in found.values():
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    return found


def test_a_packed_model_scores_files_as_it_is_served(folder, tmp_path):
    score(folder / "packed", folder / "lists.txt", tmp_path / "out", "--lists-per-file", "8")
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        f"scores-{i:05d}-of-00004.parquet" for i in range(4)
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = ranked(tmp_path / "out")
    lists = list(letor.read(folder / "lists.txt", 3))
    assert found.keys() == {one.query_id for one in lists}
    with (
        Endpoint([ModelConfig("packed", folder / "served" / "packed")]) as endpoint,
        Ranker(f"127.0.0.1:{endpoint.grpc_port}", "packed") as ranker,
    ):
        for one in lists:
            served = ranker.rank(one.features, one.doc_ids)
            rows = found[one.query_id]
            expected = [x.score for x in served]
            np.testing.assert_allclose([x["score"] for x in rows], expected, rtol=0, atol=1e-6)
            # by item, for a batch of another shape may round equal items differently
            scores = {x.doc_id: x.score for x in served}
            assert {x["doc_id"]: x["score"] for x in rows} == pytest.approx(scores, rel=0, abs=1e-6)


@pytest.mark.sample(2)
@pytest.mark.parametrize("file", ["lists.parquet", "unlabelled.parquet"])
def test_a_model_of_types_scores_tables_as_it_is_served(folder, tmp_path, file):
    score(folder / "typed", folder / file, tmp_path / "out")
    found = ranked(tmp_path / "out")
    by_query = {}
    for row in typed_rows():
        by_query.setdefault(row["query_id"], []).append(row)
    assert found.keys() == by_query.keys()
    with (
        Endpoint([ModelConfig("typed", folder / "served" / "typed")]) as endpoint,
        Ranker(f"127.0.0.1:{endpoint.grpc_port}", "typed", manifest=folder / "typed") as ranker,
    ):
        for query, rows in by_query.items():
            items = [{x: row[x] for x in ("doc_id", *ITEM)} for row in rows]
            served = ranker.rank(items, query={x: rows[0][x] for x in QUERY})
            scores = {x.doc_id: x.score for x in served}
            assert scores.keys() == {row["doc_id"] for row in found[query]}
            for row in found[query]:
                assert row["score"] == pytest.approx(scores[row["doc_id"]], rel=0, abs=1e-6)


def test_equal_scores_keep_the_order_of_the_file(folder, tmp_path):
    (tmp_path / "ties.txt").write_text("".join(f"0 qid:1 1:0 #d{i}\n" for i in range(9)))
    score(folder / "packed", tmp_path / "ties.txt", tmp_path / "out")
    [rows] = ranked(tmp_path / "out").values()
    assert len({row["score"] for row in rows}) == 1
    [one] = letor.read(tmp_path / "ties.txt", 3)
    assert [row["doc_id"] for row in rows] == list(one.doc_ids)


@pytest.mark.sample(2)
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_each_format_holds_the_same(folder, tmp_path, format):
    score(folder / "packed", folder / "lists.txt", tmp_path / "parquet")
    score(folder / "packed", folder / "lists.txt", tmp_path / "out", "--output-format", format)
    [path] = (tmp_path / "out").iterdir()
    with path.open() as file:
        rows = list(csv.DictReader(file)) if format == "csv" else list(map(json.loads, file))
    [expected] = (tmp_path / "parquet").iterdir()
    for row, wanted in zip(rows, parquet.read_table(expected).to_pylist(), strict=True):
        row = {**row, "rank": int(row["rank"]), "score": float(np.float32(row["score"]))}
        assert row == wanted


def explanations(path):
    """The contributions of each row of a file, by feature; None if the item is not explained."""
    return [x and json.loads(x) for x in parquet.read_table(path)["contributions"].to_pylist()]


def test_first_items_are_explained_against_the_next(folder, tmp_path):
    score(folder / "packed", folder / "lists.txt", tmp_path / "plain")
    score(folder / "packed", folder / "lists.txt", tmp_path / "out", "--explain", 2)
    [plain], [path] = (tmp_path / "plain").iterdir(), (tmp_path / "out").iterdir()
    table = parquet.read_table(path)
    assert table.drop_columns(["contributions"]) == parquet.read_table(plain)
    rows = [*table.to_pylist(), {"rank": 1}]
    for row, below, found in zip(rows, rows[1:], explanations(path), strict=False):
        assert (found is not None) == (row["rank"] <= 2 and below["rank"] > 1)
        if found is not None:
            difference = row["score"] - below["score"]
            assert sum(found.values()) == pytest.approx(difference, rel=1e-5, abs=1e-5)
            assert set(found) <= {f"features[{i}]" for i in range(1, 4)}
            sizes = [abs(x) for x in found.values()]
            assert sizes == sorted(sizes, reverse=True)
    assert any(found == {} for found in explanations(path) if found is not None)  # a tie
    score(
        *(folder / "packed", folder / "lists.txt", tmp_path / "csv", "--explain", 2),
        *("--output-format", "csv"),
    )
    with next((tmp_path / "csv").iterdir()).open() as file:
        assert [x["contributions"] for x in csv.DictReader(file)] == [
            x or "" for x in table["contributions"].to_pylist()
        ]


@pytest.mark.long
def test_features_of_types_are_explained_by_name(folder, tmp_path):
    score(folder / "typed", folder / "lists.parquet", tmp_path / "out", "--explain", 1)
    [path] = (tmp_path / "out").iterdir()
    found = [x for x in explanations(path) if x is not None]
    assert all(len(x) <= 5 for x in found)
    assert {"stock"} < {name for x in found for name in x} <= ITEM.keys()


@pytest.mark.long
def test_a_model_without_explanations_is_refused(folder, tmp_path, monkeypatch):
    signatures = export.signatures._signatures

    def without(*given):
        return {name: one for name, one in signatures(*given).items() if name != "explain"}

    monkeypatch.setattr(export.signatures, "_signatures", without)
    export.export(packed_model(), data.FeatureSpec(3), tmp_path / "old")
    options = ["--model", tmp_path / "old", "--data", folder / "lists.txt", "--explain", 1]
    line = refused(tmp_path, "score", *options, "--output", tmp_path / "out")
    assert "old: expected a model with the signature `explain`: export it again. Received: " in line


def command(folder, files, output):
    arguments = ["--model", folder / "packed", "--data", files, "--output", output]
    arguments += ["--lists-per-file", "5"]
    return [sys.executable, "-m", "tfrank_sel.pipelines", "score", *map(str, arguments)]


@pytest.fixture
def killed(folder, tmp_path):
    """A file of lists, and the work of a process that was killed amid scoring it."""
    letor.write(tmp_path / "many.txt", letor_lists(1500, seed=3))
    made = tmp_path / ".out.partial" / "work" / "scores"
    process = subprocess.Popen(
        command(folder, tmp_path / "many.txt", tmp_path / "out"), stdout=subprocess.DEVNULL
    )
    while len(list(made.glob("scores-*"))) < 20:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    left = {path.name: path.stat().st_mtime_ns for path in made.glob("scores-*")}
    assert 20 <= len(left) < 300
    return tmp_path / "many.txt", left


@pytest.mark.long
def test_what_is_killed_goes_on_where_it_was(folder, tmp_path, killed):
    files, left = killed
    (tmp_path / ".out.partial" / "work" / "scores" / ".half.parquet").write_text("half")
    done = score(folder / "packed", files, tmp_path / "out", "--lists-per-file", 5)
    assert f"300 files, {len(left)} of them found" in done.stdout
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert len(now) == 300
    assert {name: now[name] for name in left} == left
    score(folder / "packed", files, tmp_path / "undisturbed", "--lists-per-file", 5)
    for path in (tmp_path / "undisturbed").iterdir():
        again = parquet.read_table(tmp_path / "out" / path.name)
        assert again == parquet.read_table(path)
    assert {path.name for path in tmp_path.iterdir()} == {"many.txt", "out", "undisturbed"}


@pytest.mark.long
@pytest.mark.parametrize("changed", ["model", "file"])
def test_what_has_changed_is_scored_anew(folder, tmp_path, killed, changed):
    files, _ = killed
    if changed == "file":
        os.utime(files, ns=(1, 1))
    model = folder / ("another" if changed == "model" else "packed")
    done = score(model, files, tmp_path / "out", "--lists-per-file", 5)
    assert "300 files\n" in done.stdout
    score(model, files, tmp_path / "undisturbed", "--lists-per-file", 5)
    assert ranked(tmp_path / "out") == ranked(tmp_path / "undisturbed")


def test_another_process_that_scores_into_the_same_folder_is_refused(folder, tmp_path):
    with locks.hold(tmp_path / ".out.partial"):
        files, output = folder / "lists.txt", tmp_path / "out"
        line = refused(
            tmp_path, "score", "--model", folder / "packed", "--data", files, "--output", output
        )
    assert "is being written by another process" in line


def test_lines_left_out_are_told_beside_the_scores(folder, tmp_path):
    (tmp_path / "lists.txt").write_text("1 qid:1 1:1\nx qid:2 1:1\n0 qid:3 2:2\n")
    options = ["--allow-bad-lines", 1]
    done = score(folder / "packed", tmp_path / "lists.txt", tmp_path / "out", *options)
    [letter] = (tmp_path / "out" / "_dead_letters.jsonl").read_text().splitlines()
    assert json.loads(letter)["number"] == 2
    assert "1 left out" in done.stdout
    assert ranked(tmp_path / "out").keys() == {"1", "3"}


def refused(tmp_path, command, *options):
    before = sorted(tmp_path.rglob("*"))
    done = invoke(command, *options)
    assert done.exit_code == 2, (done.output, done.exception)
    assert "Traceback" not in done.output
    assert sorted(tmp_path.rglob("*")) == before
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_what_cannot_be_used_is_told_in_a_line(folder, tmp_path, command):
    def line(model, files, *options, output=tmp_path / "new" / "out"):
        options = ["--model", model, "--data", files, *options]
        if command == "score":
            options = ["--output", output, *options]
        return refused(tmp_path, command, *options)

    rows = pa.Table.from_pylist(typed_rows())
    parquet.write_table(rows.drop_columns(["brand"]), tmp_path / "brandless.parquet")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old").write_text("")
    packed, lists = folder / "packed", folder / "lists.txt"
    assert "expected a column 'brand'" in line(folder / "typed", tmp_path / "brandless.parquet")
    assert line(folder / "typed", lists).endswith("Received: price, which they lack")
    assert "expected a column 'features[1]'" in line(packed, folder / "lists.parquet")
    assert line(packed, tmp_path / "empty.txt").startswith(f"{tmp_path}/empty.txt: ")
    assert "none.txt: expected a" in line(packed, tmp_path / "none.txt")
    if command == "score":
        assert "new or empty" in line(packed, lists, output=tmp_path / "full")
    assert "the folder of a model" in line(folder, lists)
    assert "--format: data.format must be one of letor" in line(packed, lists, "--format", "arff")
    assert "runner must be one of DirectRunner" in line(packed, lists, "--runner", "Prism")
    assert "'query_id' as query and as" in line(packed, lists, "--doc-id", "query_id")
    assert "expected options of Beam" in line(packed, lists, "--", "--no_such_option=1")


@pytest.fixture
def damaged(folder, tmp_path):
    shutil.copytree(folder / "packed", tmp_path / "packed")
    return tmp_path / "packed" / "variables"


def test_a_damaged_model_is_told_in_a_line(folder, tmp_path, damaged):
    shutil.rmtree(damaged)
    done = invoke(*command(tmp_path, folder / "lists.txt", tmp_path / "out")[3:])
    [line] = done.stderr.splitlines()
    assert (done.exit_code, line.startswith(f"{tmp_path}/packed")) == (2, True)


@pytest.mark.long
def test_a_process_tells_a_damaged_model_in_a_line(folder, tmp_path, damaged):
    """Whose Beam would log a traceback as well."""
    (damaged / "variables.index").write_bytes(b"")
    arguments = command(tmp_path, folder / "lists.txt", tmp_path / "out")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    [line] = done.stderr.splitlines()
    assert (done.returncode, line.startswith(f"{tmp_path}/packed")) == (2, True)


def test_help_does_not_wait_for_tensorflow():
    code = "import sys; from tfrank_sel.pipelines.__main__ import app; "
    code += (
        "app(['score', '--help'], standalone_mode=False); assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def values_of(model, lists):
    """The mean of each metric of the report, by scores of the model on each list alone."""
    loaded = tf.saved_model.load(str(model)).signatures["predict"]
    ties = metrics.ties.Averaged()
    measures = [metrics.NDCG(k, name=f"NDCG@{k}", ties=ties) for k in (1, 5, 10)]
    measures.append(metrics.MRR(name="MRR", ties=ties))
    evaluator = metrics.Evaluator(measures)
    found = []
    for one in lists:
        scores = loaded(features=tf.constant(one.features[None]), mask=tf.constant([[True]]))
        values = evaluator(one.labels[None], scores["scores"])
        found.append([float(values[x.name].values[0]) for x in measures])
    return dict(zip([x.name for x in measures], np.mean(found, axis=0), strict=True))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:NDCG compares the items")
def test_a_published_model_is_evaluated_on_new_data_against_another(folder, tmp_path):
    options = ["--data", folder / "lists.txt", "--metrics", tmp_path / "metrics.json"]
    options += ["--model", folder / "packed", "--against", folder / "another"]
    done = invoke("evaluate", *options)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "NDCG@10" in done.stdout
    told = json.loads((tmp_path / "metrics.json").read_text())
    assert told["against"] == "baseline"
    lists = list(letor.read(folder / "lists.txt", 3))
    ours, theirs = (values_of(folder / name, lists) for name in ("packed", "another"))
    for name, compared in told["metrics"].items():
        assert compared["ours"] == pytest.approx(ours[name], abs=1e-6)
        assert compared["baseline"] == pytest.approx(theirs[name], abs=1e-6)
        assert compared["low"] <= compared["ours"] - compared["baseline"] <= compared["high"]
        assert compared["queries"] == 30
    assert ours != theirs


@pytest.mark.long
def test_a_model_is_evaluated_by_slice_against_chance(folder, tmp_path):
    options = ["--model", folder / "typed", "--data", folder / "lists.parquet"]
    done = invoke(
        "evaluate", *options, "--slice-by", "country", "--metrics", tmp_path / "metrics.json"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert "country de" in done.stdout
    told = json.loads((tmp_path / "metrics.json").read_text())
    assert told["against"] == "random order"
    assert told["slices"]["country fr"]["NDCG@10"]["queries"] == 10
    without = invoke("evaluate", *options)
    assert without.exit_code == 0
    assert "random order" in without.stdout


@pytest.mark.long
def test_names_that_are_no_identifiers_are_taken(exported, tmp_path):
    rows = [
        {**dict.fromkeys(named.ODD_TYPES, 0.5 * i), "Land des Käufers": "de", "query_id": "q"}
        for i in range(3)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    score(exported / "odd", tmp_path / "lists.parquet", tmp_path / "out")
    assert {row["doc_id"] for row in ranked(tmp_path / "out")["q"]} == {"q:1", "q:2", "q:3"}


@pytest.mark.long
def test_a_packed_model_and_one_of_types_are_compared_on_one_table(folder, tmp_path):
    spec = data.FeatureSpec(2)
    names = {"feature_names": ["age", "stock"]}
    export.export(packed_model(count=2), spec, tmp_path / "model", metadata=names)
    rows = [{**row, "age": row["age"] or 0} for row in typed_rows()]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    options = ["--data", tmp_path / "lists.parquet", "--model", tmp_path / "model"]
    done = invoke("evaluate", *options, "--against", folder / "typed", "--slice-by", "country")
    assert done.exit_code == 0, (done.output, done.exception)
