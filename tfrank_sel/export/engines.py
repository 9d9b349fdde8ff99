"""Export of boosted trees for the rankers of search engines."""

import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfrank_sel.locks import created
from tfrank_sel.models import BoostedTrees
from tfrank_sel.models.boosted_trees import Forest, Split, Tree
from tfrank_sel.refusals import received, refusal

SLACK = np.float32(1e-6)  # what Solr adds to each threshold


def search_engine(
    model: keras.Model,
    path: str | os.PathLike[str],
    engine: str,
    features: Sequence[str],
    name: str = "ranker",
) -> None:
    """Writes boosted trees as a JSON file that a search engine ranks with, without TensorFlow.

    The file is the body of the engine's request that adds a model, except for Vespa:

    * `"solr"`: `PUT .../schema/model-store`, a `MultipleAdditiveTreesModel`.
    * `"opensearch"`: `POST _ltr/_featureset/.../_createmodel` of the plugin Learning to Rank of
      OpenSearch and Elasticsearch (o19s), a `model/xgboost+json`.
    * `"elasticsearch"`: `PUT _ml/trained_models/...`, an ensemble of trees.
    * `"vespa"`: a file of the folder `models` for `xgboost("ranker.json")` in a rank profile.

    Engines compare features in float32 or float64, and add up the trees in another order, so scores
    may differ in the last digits of float32. Elasticsearch and Vespa take the trees' branch for
    missing values; in the others a missing feature is 0.

    Args:
        model: The trees, built; for other models see `onnx`.
        path: File to write; it must not exist.
        engine: `"solr"`, `"opensearch"`, `"elasticsearch"` or `"vespa"`.
        features: Names of the features in the engine, in the order of the model's columns.
        name: Name of the model in the engine; a file for Vespa has none.

    Raises:
        FileExistsError: If `path` exists, or another process is writing it.
        TypeError: If `model` is not made of trees.
        ValueError: If `engine` is unknown, or if there is not one name for each feature.

    Example:
        ```python
        trees = models.BoostedTrees.from_lightgbm(booster)
        export.search_engine(trees, "ranker.json", "solr", booster.feature_name())
        ```
    """
    if engine not in _BODIES:
        raise refusal(f"`engine` must be {', '.join(_BODIES)}", engine=engine)
    if not isinstance(model, BoostedTrees):
        expected = "Search engines rank with boosted trees; write other models with `export.onnx`"
        expected += ". Expected `model`: models.BoostedTrees"
        raise TypeError(received(expected, type(model).__name__))
    if len(set(features)) != len(features) or len(features) != model.num_features:
        raise refusal(f"`features` must be {model.num_features} different names", list(features))
    with created(Path(path)) as written:
        written.write_text(json.dumps(_BODIES[engine](model.forest(), features, name)))


def _solr(forest: Forest, features: Sequence[str], name: str) -> Mapping[str, Any]:
    inexact: set[str] = set()

    def node(tree: Tree) -> Mapping[str, Any]:
        if not isinstance(tree, Split):
            return {"value": str(tree)}
        less = _less_slack(tree)
        if less + SLACK != np.float32(tree.threshold):
            inexact.add(features[tree.feature])
        threshold = {"feature": features[tree.feature], "threshold": str(less)}
        return threshold | {"left": node(tree.left), "right": node(tree.right)}

    trees = [{"weight": "1", "root": node(tree)} for tree in forest.trees]
    if inexact:
        warnings.warn(
            f"Solr adds {SLACK:g} to each threshold, which moves some near 0 by less than that. "
            f"Scale features whose values are that close: {', '.join(sorted(inexact))}",
            stacklevel=3,
        )
    return {
        "class": "org.apache.solr.ltr.model.MultipleAdditiveTreesModel",
        "name": name,
        "features": [{"name": feature} for feature in features],
        "params": {"trees": trees},
    }


def _less_slack(split: Split) -> np.float32:
    """The number that Solr's threshold is made of: with its slack, the split's threshold."""
    threshold = np.float32(split.threshold)
    near = threshold - SLACK
    ways = [near, *(np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))]
    return min(ways, key=lambda x: abs(float(x + SLACK) - float(threshold)))


def _xgboost(forest: Forest, features: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Trees as XGBoost dumps them, where a feature below the condition goes to `yes`."""

    # numbers without gaps: engines read int32, which a tree of 31 levels left at twice its parent's
    def node(tree: Tree, numbers: Iterator[int], depth: int) -> dict[str, Any]:
        number = next(numbers)
        if not isinstance(tree, Split):
            return {"nodeid": number, "leaf": tree}
        children = [node(x, numbers, depth + 1) for x in (tree.left, tree.right)]
        yes, no = (child["nodeid"] for child in children)
        above = np.nextafter(np.float32(tree.threshold), np.float32(np.inf))
        return {
            "nodeid": number,
            "depth": depth,
            "split": features[tree.feature],
            "split_condition": float(above),
            "yes": yes,
            "no": no,
            "missing": yes if tree.missing_left else no,
            "children": children,
        }

    return [node(tree, itertools.count(), 0) for tree in forest.trees]


def _opensearch(forest: Forest, features: Sequence[str], name: str) -> Mapping[str, Any]:
    trees = {"objective": "rank:ndcg", "splits": _xgboost(forest, features)}
    model = {"type": "model/xgboost+json", "definition": json.dumps(trees)}
    return {"model": {"name": name, "model": model}}


def _vespa(forest: Forest, features: Sequence[str], name: str) -> Sequence[Mapping[str, Any]]:
    return _xgboost(forest, features)


def _elasticsearch(forest: Forest, features: Sequence[str], name: str) -> Mapping[str, Any]:
    def nodes(tree: Tree, first: int) -> list[dict[str, Any]]:
        if not isinstance(tree, Split):
            return [{"node_index": first, "leaf_value": tree}]
        left = nodes(tree.left, first + 1)
        right = nodes(tree.right, first + 1 + len(left))
        split = {
            "node_index": first,
            "split_feature": tree.feature,
            "decision_type": "lte",
            "threshold": tree.threshold,
            "default_left": tree.missing_left,
            "left_child": first + 1,
            "right_child": first + 1 + len(left),
        }
        return [split, *left, *right]

    names = {"feature_names": list(features), "target_type": "regression"}
    trees = [{"tree": {**names, "tree_structure": nodes(t, 0)}} for t in forest.trees]
    ensemble = {**names, "trained_models": trees, "aggregate_output": {"weighted_sum": {}}}
    return {
        "description": name,
        "input": {"field_names": list(features)},
        "inference_config": {"regression": {}},
        "definition": {"trained_model": {"ensemble": ensemble}},
    }


_BODIES: Mapping[str, Callable[[Forest, Sequence[str], str], Any]] = {
    "solr": _solr,
    "opensearch": _opensearch,
    "elasticsearch": _elasticsearch,
    "vespa": _vespa,
}
