"""Solr ranks as the models do of which their files were written."""

import contextlib
import json
import pathlib
import shutil
import subprocess

import lightgbm
import numpy as np
from pyarrow import parquet

from tests.engines import java
from tests.engines.engines import JARS
from tests.engines.java import HERE, ITEMS, LISTS
from tests.search_engines.test_commands import refused, told
from tests.search_engines.test_trees import FEATURES, trees
from tfrank_sel import export, models
from tfrank_sel.search_engines.connection import Connection


def core_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Makes a core of Solr."""
    core = folder / name
    shutil.copytree(HERE / "solr", core / "conf")
    (core / "core.properties").write_text(f"name={name}")
    (folder / "solr.xml").write_text("<solr/>")
    return core


def test_solr_ranks_each_list_in_the_order_of_the_model(tmp_path):
    random = np.random.default_rng(0)
    model, path = trees(random, count=30), tmp_path / "model.json"
    export.search_engine(model, path, "solr", FEATURES, missing=None)
    core = core_of(tmp_path, "ranker")
    kind = "org.apache.solr.ltr.feature.FieldValueFeature"
    stored = {
        "feature": [{"name": n, "class": kind, "params": {"field": n}} for n in FEATURES],
        "model": [json.loads(path.read_text())],
    }
    for store, items in stored.items():
        content = {"initArgs": {}, "managedList": [{**x, "store": "_DEFAULT_"} for x in items]}
        (core / f"conf/_schema_{store}-store.json").write_text(json.dumps(content))
    x = random.normal(size=[LISTS, ITEMS, len(FEATURES)]).astype(np.float32) * 30.0
    x[:, ::3] = np.round(x[:, ::3])
    java.score("solr", "Rank.java", FEATURES, x, tmp_path)
    ranked = np.loadtxt(tmp_path / "ranked.csv", delimiter=",").reshape([LISTS, ITEMS, 3])
    scores = model(x).numpy().reshape(-1)[ranked[:, :, 1].astype(int)]
    tolerance = 1e-6 * np.abs(scores).max()
    np.testing.assert_allclose(ranked[:, :, 2], scores, rtol=0.0, atol=tolerance)
    assert (np.diff(scores, axis=1) <= 2.0 * tolerance).all()


@contextlib.contextmanager
def serving_solr(folder: pathlib.Path):
    """Serves the cores of a folder; gives the URL."""
    command = ["java", "-cp", f"{JARS}/solr/*", str(HERE / "Serve.java"), str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": folder}
    with subprocess.Popen(command, **pipes) as server:
        line = next(x for x in iter(server.stdout.readline, "") if x.startswith("port "))
        yield f"http://127.0.0.1:{line.split()[1]}/solr"


def test_solr_logs_features_and_ranks_with_the_model_that_they_train(tmp_path):
    random, words = np.random.default_rng(0), ["red", "blue", "shoe", "shirt", "(hat", '"old']
    documents = [{"id": f"d,{i}", "title": " ".join(random.choice(words, 3))} for i in range(200)]
    for document in documents:
        present = [x for x in ("price", "age") if random.random() < 0.7]
        document |= {x: round(float(random.gamma(2.0)), 3) for x in present}
    core_of(tmp_path, "items")
    lines = ["query,docid,rating"]
    for query in ("red shoe", "blue shirt", "(hat red", '"old [shoe'):
        for document in random.choice(documents, 50, replace=False):
            grade = sum(x in document["title"] for x in query.split()) + ("price" in document)
            lines.append('"{}","{}",{}'.format(query.replace('"', '""'), document["id"], grade))
    (tmp_path / "case.csv").write_text("\n".join(lines) + "\n")
    judged, file, table, model = (
        tmp_path / x for x in ("j.parquet", "f.json", "t.parquet", "m.txt")
    )
    names, ranker = ["title", "price", "age"], tmp_path / "r.json"
    with serving_solr(tmp_path) as base:
        of = ["--engine", "solr", "--url", f"{base}/items"]
        Connection(base).send("POST", "items/update?commit=true", dict, documents)
        told("judgments", tmp_path / "case.csv", "--output", judged)
        fields = ["--text", "title", "--number", "price", "--number", "age"]
        told("features", "--output", file, "--engine", "solr", *fields)
        told("push", file, *of)
        told("collect", judged, "--output", table, *of, "--features", "features")
        rows = parquet.read_table(table).to_pandas()
        assert len(rows) == 200
        by_id = {x["id"]: x for x in documents}
        # Solr 8 takes what a document lacks for 0
        expected = [by_id[x].get("price", 0.0) for x in rows["doc_id"]]
        np.testing.assert_allclose(rows["price"], expected, rtol=1e-6)
        data = lightgbm.Dataset(rows[names], rows["relevance"])
        booster = lightgbm.train({"num_leaves": 7, "verbose": -1}, data, 10)
        booster.save_model(model)
        boosted = models.BoostedTrees.from_lightgbm(booster)
        export.search_engine(boosted, ranker, "solr", names, version="8.11", missing=0.0)
        for version in ("ranker-1", "ranker-2"):
            assert f"model={version} " in told("push", ranker, *of)
        verified = ["verify", table, *of, "--model", model, "--name"]
        assert "200 documents: rank correlation 1.0000" in told(*verified, "ranker-2")
        assert "400, cannot find model x" in refused(*verified, "x")
        assert "title already contained in the store" in refused("push", file, *of)
        line = refused("push", ranker, *of, "--features", "no")
        assert line.endswith("Missing or empty feature store: no")
