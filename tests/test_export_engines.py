"""Files for search engines hold the trees: evaluated by each engine's rule, they score alike."""

import json
import math
import re

import numpy as np
import pytest

from tests.test_export_onnx import forest
from tfrank_sel import export, models
from tfrank_sel.models.boosted_trees import Forest, Split

FEATURES = ["price", "clicks", "age", "stock", "margin"]
trees = forest


def of_solr(body, x):
    def value(node):
        if "value" in node:
            return np.float32(node["value"])
        threshold = np.float32(node["threshold"]) + np.float32(1e-6)  # as RegressionTreeNode
        return value(node["left" if x[node["feature"]] <= threshold else "right"])

    assert [feature["name"] for feature in body["features"]] == FEATURES
    return sum(np.float32(t["weight"]) * value(t["root"]) for t in body["params"]["trees"])


def of_xgboost(dump, x):
    def value(node):
        if "leaf" in node:
            return node["leaf"]
        feature = x[node["split"]]
        side = "yes" if feature < np.float32(node["split_condition"]) else "no"
        wanted = node["missing" if math.isnan(feature) else side]
        return value(next(child for child in node["children"] if child["nodeid"] == wanted))

    return sum(map(value, dump))


def of_opensearch(body, x):
    definition = json.loads(body["model"]["model"]["definition"])
    assert (body["model"]["name"], definition["objective"]) == ("mine", "rank:ndcg")
    return of_xgboost(definition["splits"], x)


def of_elasticsearch(body, x):
    ensemble = body["definition"]["trained_model"]["ensemble"]
    assert body["input"]["field_names"] == ensemble["feature_names"] == FEATURES
    total = 0.0
    for member in ensemble["trained_models"]:
        nodes = {node["node_index"]: node for node in member["tree"]["tree_structure"]}
        node = nodes[0]
        while "leaf_value" not in node:
            feature = x[FEATURES[node["split_feature"]]]
            below = feature <= node["threshold"]
            left = node["default_left"] if math.isnan(feature) else below
            node = nodes[node["left_child" if left else "right_child"]]
        total += node["leaf_value"]
    return total


@pytest.mark.parametrize(
    ("engine", "evaluate", "takes_missing"),
    [
        ("solr", of_solr, False),
        ("opensearch", of_opensearch, False),
        ("elasticsearch", of_elasticsearch, True),
        ("vespa", of_xgboost, True),
    ],
)
def test_a_file_scores_as_the_trees_do(tmp_path, engine, evaluate, takes_missing):
    random = np.random.default_rng(0)
    model = trees(random)
    export.search_engine(model, tmp_path / "m.json", engine, FEATURES, "mine")
    body = json.loads((tmp_path / "m.json").read_text())
    x = random.normal(size=[1, 50, len(FEATURES)]).astype(np.float32) * 30.0
    thresholds = model.threshold.numpy()
    x[0, 25:] = random.choice(thresholds, size=x[0, 25:].shape)  # on the edges
    if takes_missing:
        x[0, ::3] = np.where(random.random(x[0, ::3].shape) < 0.5, np.nan, x[0, ::3])
    found = [evaluate(body, dict(zip(FEATURES, row, strict=True))) for row in x[0]]
    np.testing.assert_allclose(found, model(x).numpy()[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ["opensearch", "vespa"])
def test_nodes_of_a_deep_tree_have_small_numbers(tmp_path, engine):
    tree = 0.0
    for level in range(60):
        tree = Split(0, float(level), True, tree, 1.0)
    model = models.BoostedTrees._of(Forest([tree], 1), "deep")
    export.search_engine(model, tmp_path / "m.json", engine, ["x"])
    text = (tmp_path / "m.json").read_text()
    numbers = {int(x) for x in re.findall(r"nodeid\W+(\d+)", text)}
    assert numbers == {*range(121)}


def test_solr_cannot_tell_some_thresholds_near_0(tmp_path):
    tree = Split(0, 1.0, True, Split(1, float(np.float32(3e-8)), True, 0.0, 1.0), 2.0)
    model = models.BoostedTrees._of(Forest([tree], 2), "near")
    with pytest.warns(UserWarning, match=r"Solr adds 1e-06 .* that close: b$"):
        export.search_engine(model, tmp_path / "m.json", "solr", ["a", "b"])


def test_what_an_engine_cannot_rank_with_is_refused_without_a_file(tmp_path):
    path, model = tmp_path / "m.json", trees(np.random.default_rng(0))
    refused = [
        (TypeError, "export.onnx", models.Scorer([0.0], [1.0]), "solr", ["a"]),
        (ValueError, "`engine` must be solr, .* Received: engine='lucene'", model, "lucene", []),
        (ValueError, "`features` must be 5 different names", model, "solr", FEATURES[:4]),
        (ValueError, "`features` must be 5 different names", model, "solr", ["a"] * 5),
    ]
    for error, words, given, engine, names in refused:
        with pytest.raises(error, match=words):
            export.search_engine(given, path, engine, names)
    path.touch()
    with pytest.raises(FileExistsError, match="must not exist"):
        export.search_engine(model, path, "solr", FEATURES)
    assert list(tmp_path.iterdir()) == [path]
    assert not path.read_bytes()
