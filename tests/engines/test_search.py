"""Solr and ONNX Runtime for Java rank as the models do of which their files were written."""

import csv
import json
import pathlib
import shutil
import subprocess

import keras
import numpy as np

from tests import test_export_onnx as trial
from tests.engines.engines import JARS, ROOT
from tests.test_export_engines import FEATURES, trees
from tfrank_sel import export

HERE = ROOT / "tests/engines"
LISTS, ITEMS = 1000, 20


def java(engine: str, program: str, x: np.ndarray, folder: pathlib.Path, *arguments: str) -> None:
    """Runs a program of this folder on lists of features, as a CSV file in a folder."""
    with open(folder / "items.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["list", "id", *FEATURES])
        for number, row in enumerate(x.reshape([-1, len(FEATURES)]).tolist()):
            table.writerow([number // ITEMS, number, *row])
    command = ["java", "-cp", f"{JARS}/{engine}/*", str(HERE / program), str(folder), *arguments]
    subprocess.run(command, check=True, timeout=300, cwd=folder)


def test_solr_ranks_each_list_in_the_order_of_the_model(tmp_path):
    random = np.random.default_rng(0)
    model, path = trees(random, count=30), tmp_path / "model.json"
    export.search_engine(model, path, "solr", FEATURES, missing=None)
    core = tmp_path / "ranker"
    shutil.copytree(HERE / "solr", core / "conf")
    (core / "core.properties").write_text("name=ranker")
    (tmp_path / "solr.xml").write_text("<solr/>")
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
    java("solr", "Rank.java", x, tmp_path)
    ranked = np.loadtxt(tmp_path / "ranked.csv", delimiter=",").reshape([LISTS, ITEMS, 3])
    scores = model(x).numpy().reshape(-1)[ranked[:, :, 1].astype(int)]
    tolerance = 1e-6 * np.abs(scores).max()
    np.testing.assert_allclose(ranked[:, :, 2], scores, rtol=0.0, atol=tolerance)
    assert (np.diff(scores, axis=1) <= 2.0 * tolerance).all()


def test_onnx_runtime_for_java_scores_each_list_as_the_model(tmp_path):
    random = np.random.default_rng(0)
    x, _ = trial.lists(random, LISTS, ITEMS)
    mask, expected = np.ones(x.shape[:2], bool), {}
    for kind in ("list scorer", "trees", "recalibrated ensemble", "functional"):
        keras.utils.set_random_seed(1)
        model, name = trial.KINDS[kind](random), kind.replace(" ", "_")
        trial.expected(model, x[:1], mask[:1])  # builds it
        trial.shaken(model, random)
        export.onnx(model, tmp_path / f"{name}.onnx")
        expected[name] = trial.expected(model, x, mask)
    java("onnx", "Score.java", x, tmp_path, *expected)
    for name, wanted in expected.items():
        found = np.loadtxt(tmp_path / f"{name}.csv", dtype=np.float32).reshape(wanted.shape)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
