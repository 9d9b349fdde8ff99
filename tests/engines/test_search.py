"""Search engines rank as the trees do of which their file was written."""

import csv
import json
import shutil
import subprocess

import numpy as np

from tests.engines.engines import JARS, ROOT
from tests.test_export_engines import FEATURES, trees
from tfrank_sel import export

LISTS, ITEMS = 1000, 20


def test_solr_ranks_each_list_in_the_order_of_the_model(tmp_path):
    random = np.random.default_rng(0)
    model, path = trees(random, count=30), tmp_path / "model.json"
    export.search_engine(model, path, "solr", FEATURES)
    here, core = ROOT / "tests/engines", tmp_path / "ranker"
    shutil.copytree(here / "solr", core / "conf")
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
    with open(tmp_path / "items.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["list", "id", *FEATURES])
        for number, row in enumerate(x.reshape([-1, len(FEATURES)]).tolist()):
            table.writerow([number // ITEMS, number, *row])
    command = ["java", "-cp", f"{JARS}/solr/*", str(here / "Rank.java"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, cwd=tmp_path)
    ranked = np.loadtxt(tmp_path / "ranked.csv", delimiter=",").reshape([LISTS, ITEMS, 3])
    scores = model(x).numpy().reshape(-1)[ranked[:, :, 1].astype(int)]
    tolerance = 1e-6 * np.abs(scores).max()
    np.testing.assert_allclose(ranked[:, :, 2], scores, rtol=0.0, atol=tolerance)
    assert (np.diff(scores, axis=1) <= 2.0 * tolerance).all()
