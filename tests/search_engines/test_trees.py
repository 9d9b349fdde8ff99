"""Files for search engines hold the trees: evaluated by each engine's rule, they score alike."""

import json
import math
import pathlib
import re

import numpy as np
import pytest

from tests.rankers import forest
from tfrank_sel import export, models
from tfrank_sel.models.boosted_trees import Forest, Split

FEATURES = ["price", "clicks", "age", "stock", "margin"]
trees = forest


def of_solr(body, x):
    names_missing = not body["params"].get("isNullSameAsZero", True)

    def value(node):
        if "value" in node:
            return np.float32(node["value"])
        threshold = np.float32(node["threshold"]) + np.float32(1e-6)  # as RegressionTreeNode
        feature = x[node["feature"]]
        if math.isnan(feature):
            return value(node[node["missing"] if names_missing else "right"])
        return value(node["left" if feature <= threshold else "right"])

    assert [feature["name"] for feature in body["features"]] == FEATURES
    scales = {f["name"]: np.float32(f["norm"]["params"]["std"]) for f in body["features"][2:3]}
    assert set(scales) == {"age"}
    x = {name: x[name] / scales.get(name, np.float32(1.0)) for name in FEATURES}
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


@pytest.mark.parametrize(("engine", "evaluate"), [("solr", of_solr), ("vespa", of_xgboost)])
def test_a_file_scores_as_the_trees_do_by_the_rule_of_an_engine_that_was_not_run(
    tmp_path, engine, evaluate
):
    random = np.random.default_rng(0)
    near = Split(2, float(np.float32(3e-9)), True, 0.5, Split(2, -1e-7, False, 0.25, 0.75))
    forest = trees(random).forest()
    model = models.BoostedTrees._of(forest._replace(trees=[*forest.trees, near]), "trees")
    export.search_engine(model, tmp_path / "m.json", engine, FEATURES, "mine", version="9.7")
    body = json.loads((tmp_path / "m.json").read_text())
    x = random.normal(size=[1, 50, len(FEATURES)]).astype(np.float32) * 30.0
    x[0, 25:] = random.choice(model.threshold.numpy(), size=x[0, 25:].shape)  # on the edges
    x[0, ::3] = np.where(random.random(x[0, ::3].shape) < 0.5, np.nan, x[0, ::3])
    scores = [evaluate(body, dict(zip(FEATURES, row, strict=True))) for row in x[0]]
    np.testing.assert_allclose(scores, model(x).numpy()[0], rtol=1e-6, atol=1e-6)


KEPT = json.loads((pathlib.Path(__file__).parent / "scores.json").read_text())


def kept_trees():
    def tree(stored):
        return Split(*stored[:3], *map(tree, stored[3:])) if isinstance(stored, list) else stored

    forest = Forest([tree(stored) for stored in KEPT["trees"]], 4)
    return models.BoostedTrees._of(forest, "kept")


def of_run(run):
    return f"{run['engine']} {run['version']}, {run['missing']}"


@pytest.mark.parametrize("run", KEPT["runs"], ids=of_run)
def test_the_engines_own_classes_scored_the_file_as_the_model_does(tmp_path, run):
    names, model = [f"f{number}" for number in range(4)], kept_trees()
    features, missing = names, math.nan if run["missing"] is None else run["missing"]
    if run["engine"] == "elasticsearch":
        features = queries(names)
    path, version = tmp_path / "m.json", run["version"]
    export.search_engine(model, path, run["engine"], features, version=version, missing=missing)
    assert json.loads(path.read_text()) == KEPT["files"][run["file"]]
    documents = np.array(KEPT["documents"], np.float32)
    x = np.where(np.isnan(documents), np.float32(missing), documents)
    np.testing.assert_allclose(run["scores"], model(x[np.newaxis]).numpy()[0], rtol=0, atol=1e-6)


def queries(names):
    return {x: {"function_score": {"field_value_factor": {"field": x}}} for x in names}


@pytest.mark.parametrize(
    ("engine", "version", "missing"),
    [
        ("solr", None, math.nan),
        ("solr", "8.11", math.nan),
        ("solr", "9.1", 1e30),
        ("opensearch", None, math.nan),
        ("opensearch", "2.19", math.nan),
        ("opensearch", "3.1.0", 1e30),
        ("o19s", "1.5.8-es8.9.2", math.nan),
    ],
)
def test_a_version_that_takes_missing_values_for_0_has_no_file_of_trees_that_do_not(
    tmp_path, engine, version, missing
):
    path, model = tmp_path / "m.json", kept_trees()
    names = ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match=r"takes a feature .* `missing=0.0` .* features='a, "):
        export.search_engine(model, path, engine, names, version=version, missing=missing)
    for number, other in enumerate([0.0, None]):
        path = tmp_path / f"{number}.json"
        export.search_engine(model, path, engine, names, version=version, missing=other)
        assert path.exists()


def test_a_file_that_would_grow_without_bound_is_refused(tmp_path):
    tree = 0.0
    for feature in range(20):
        tree = Split(feature, 1.0, True, tree, 1.0)
    model = models.BoostedTrees._of(Forest([tree], 20), "deep")
    names = list(map(str, range(20)))
    with pytest.raises(ValueError, match="more than 10 times the splits: train shallower"):
        export.search_engine(model, tmp_path / "m.json", "opensearch", names, version="3.7")
    path = tmp_path / "m.json"
    export.search_engine(model, path, "opensearch", names, version="3.7", missing=1e30)
    assert path.stat().st_size < 10_000


@pytest.mark.parametrize("engine", ["opensearch", "vespa"])
def test_nodes_of_a_deep_tree_have_small_numbers(tmp_path, engine):
    tree = 0.0
    for level in range(60):
        tree = Split(0, float(level), True, tree, 1.0)
    model = models.BoostedTrees._of(Forest([tree], 1), "deep")
    export.search_engine(model, tmp_path / "m.json", engine, ["x"], version="3.8")
    text = (tmp_path / "m.json").read_text()
    numbers = {int(x) for x in re.findall(r"nodeid\W+(\d+)", text)}
    assert numbers == {*range(121)}


def test_solr_cannot_tell_thresholds_near_0_from_each_other_beside_large_ones(tmp_path):
    far = Split(1, 1e30, True, 0.0, 1.0)
    tree = Split(0, 1.0, True, Split(1, float(np.float32(3e-20)), True, 0.0, far), 2.0)
    model = models.BoostedTrees._of(Forest([tree], 2), "near")
    with pytest.warns(UserWarning, match=r"Solr adds 1e-06 .* near 0 of b$"):
        export.search_engine(model, tmp_path / "m.json", "solr", ["a", "b"])


def test_what_an_engine_cannot_rank_with_is_refused_without_a_file(tmp_path):
    path, model = tmp_path / "m.json", trees(np.random.default_rng(0))
    refused = [
        (TypeError, "export.onnx", models.Scorer([0.0], [1.0]), "solr", ["a"]),
        (ValueError, "`engine` must be solr, .* Received: engine='lucene'", model, "lucene", []),
        (ValueError, "`features` must be 5 different names", model, "solr", FEATURES[:4]),
        (ValueError, "`features` must be 5 different names", model, "solr", ["a"] * 5),
        (
            ValueError,
            "`features` must map each name to the query",
            model,
            "elasticsearch",
            FEATURES,
        ),
    ]
    for error, words, given, engine, names in refused:
        with pytest.raises(error, match=words):
            export.search_engine(given, path, engine, names)
    for version, words in [("8.11", "from 8.12 on"), ("new", 'numbers with dots, such as "3.7"')]:
        with pytest.raises(ValueError, match=words):
            export.search_engine(model, path, "elasticsearch", queries(FEATURES), version=version)
    path.touch()
    with pytest.raises(FileExistsError, match="must not exist"):
        export.search_engine(model, path, "solr", FEATURES, missing=0.0)
    assert list(tmp_path.iterdir()) == [path]
    assert not path.read_bytes()
