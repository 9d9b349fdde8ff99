"""Readers of the trees of LightGBM, XGBoost and CatBoost."""

import json
import math
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

ZERO = 1e-35  # up to this a feature counts as 0, as in LightGBM


class Split(NamedTuple):
    """A decision: `x <= threshold` goes left, and NaN if `missing_left`. A leaf is its value."""

    feature: int
    threshold: float
    missing_left: bool
    left: "Tree"
    right: "Tree"


Tree: TypeAlias = float | Split


class Forest(NamedTuple):
    """Trees whose sum is the score, and their number of features."""

    trees: list[Tree]
    num_features: int


def of_lightgbm(booster: Any) -> Forest:
    """Reads a `lightgbm.Booster` or a fitted scikit-learn model of LightGBM."""
    if _kind(booster, "lightgbm", "Booster", "LGBMModel") == "LGBMModel":
        booster = booster.booster_
    dump = booster.dump_model()
    _check_single("num_tree_per_iteration", dump["num_tree_per_iteration"])
    trees = [_lightgbm_tree(tree["tree_structure"]) for tree in dump["tree_info"]]
    return Forest(trees, dump["max_feature_idx"] + 1)


def of_xgboost(booster: Any) -> Forest:
    """Reads an `xgboost.Booster` or a fitted scikit-learn model of XGBoost."""
    if _kind(booster, "xgboost", "Booster", "XGBModel") == "XGBModel":
        model, booster = booster, booster.get_booster()
        if not np.isnan(model.missing):
            raise ValueError(f"Expected missing=NaN. Received: missing={model.missing}")
        if getattr(model, "best_iteration", None) is not None:
            booster = booster[: model.best_iteration + 1]
    learner = json.loads(booster.save_raw("json"))["learner"]
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise ValueError(f"Expected booster='gbtree'. Received: booster={kind!r}")
    num_features = int(learner["learner_model_param"]["num_feature"])
    nothing = np.full([1, num_features], np.nan, np.float32)
    margin = booster.inplace_predict(nothing, predict_type="margin")
    _check_single("outputs", np.size(margin))
    trees = [_xgboost_tree(tree, 0) for tree in learner["gradient_booster"]["model"]["trees"]]
    # the base score, of which the file has a function that depends on the objective
    base = float(np.ravel(margin)[0]) - math.fsum(map(_of_missing, trees))
    return Forest([*trees, base], num_features)


def of_catboost(model: Any) -> Forest:
    """Reads a trained `catboost.CatBoost` or one of its subclasses."""
    _kind(model, "catboost", "CatBoost")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.json")
        model.save_model(str(path), format="json")
        dump = json.loads(path.read_text())
    if others := dump["features_info"].keys() - {"float_features"}:
        raise ValueError(f"Expected only numerical features. Received: {', '.join(sorted(others))}")
    scale, bias = dump["scale_and_bias"]
    _check_single("outputs", len(bias))
    features = dump["features_info"]["float_features"]
    # "AsIs" is also False: NaN is not above a border
    missing_left = [feature["nan_value_treatment"] != "AsTrue" for feature in features]
    trees = [
        _oblivious_tree(tree["splits"], tree["leaf_values"], scale, missing_left)
        for tree in dump.get("oblivious_trees", [])
    ]
    trees += [_catboost_tree(tree, scale, missing_left) for tree in dump.get("trees", [])]
    return Forest([*trees, *bias], len(features))


def _kind(booster: Any, library: str, *kinds: str) -> str:
    """The class of a library that a model belongs to."""
    classes = type(booster).__mro__
    for kind in kinds:
        if any(c.__name__ == kind and c.__module__.split(".")[0] == library for c in classes):
            return kind
    expected = " or ".join(f"{library}.{kind}" for kind in kinds)
    received = f"{classes[0].__module__}.{classes[0].__qualname__}"
    raise TypeError(f"Expected an object of {expected}. Received: an object of {received}")


def _check_single(name: str, count: int) -> None:
    if count != 1:
        raise ValueError(f"Expected one score per item. Received: {name}={count}")


def _lightgbm_tree(node: Mapping[str, Any]) -> Tree:
    if "split_feature" not in node:
        if "leaf_coeff" in node:
            raise ValueError("Expected constant leaves. Received: a tree with linear leaves")
        return float(node["leaf_value"])
    if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
        raise ValueError(
            "Expected numerical features in which zeros are not missing. Received: "
            f"decision_type={node['decision_type']!r}, missing_type={node['missing_type']!r}"
        )
    threshold = _rounded_down(node["threshold"])
    # without missing values in training, LightGBM replaces NaN by 0
    missing_left = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0.0
    left, right = (_lightgbm_tree(node[f"{side}_child"]) for side in ("left", "right"))
    return Split(node["split_feature"], threshold, missing_left, left, right)


def _xgboost_tree(tree: Mapping[str, Any], number: int) -> Tree:
    left, right = tree["left_children"][number], tree["right_children"][number]
    value, feature = tree["split_conditions"][number], tree["split_indices"][number]
    if left < 0:
        return float(value)
    if tree["split_type"][number] != 0:
        raise ValueError(f"Expected numerical splits. Received: categorical feature {feature}")
    children = _xgboost_tree(tree, left), _xgboost_tree(tree, right)
    threshold = _rounded_down(float(np.float32(value)), strictly=True)
    return Split(feature, threshold, bool(tree["default_left"][number]), *children)


def _oblivious_tree(
    splits: Sequence[Any], values: Sequence[float], scale: float, missing_left: Sequence[bool]
) -> Tree:
    """Reads a tree whose levels have one split each. The last split has the highest bit."""
    if not splits:
        return scale * values[0]
    half = len(values) // 2
    halves = (
        _oblivious_tree(splits[:-1], part, scale, missing_left)
        for part in (values[:half], values[half:])
    )
    return _catboost_split(splits[-1], missing_left, *halves)


def _catboost_tree(node: Mapping[str, Any], scale: float, missing_left: Sequence[bool]) -> Tree:
    if "split" not in node:
        return scale * float(node["value"])
    children = (_catboost_tree(node[side], scale, missing_left) for side in ("left", "right"))
    return _catboost_split(node["split"], missing_left, *children)


def _catboost_split(
    split: Mapping[str, Any], missing_left: Sequence[bool], left: Tree, right: Tree
) -> Tree:
    feature = split["float_feature_index"]
    return Split(feature, _rounded_down(split["border"]), missing_left[feature], left, right)


def _of_missing(tree: Tree) -> float:
    """The value of a tree for an item without any feature."""
    while isinstance(tree, Split):
        tree = tree.left if tree.missing_left else tree.right
    return tree


def _rounded_down(threshold: float, strictly: bool = False) -> float:
    """The largest float32 up to a threshold, or below it: float32 features compare the same."""
    with np.errstate(over="ignore"):
        found = np.float32(threshold)
    if float(found) > threshold or (strictly and float(found) == threshold):
        found = np.nextafter(found, np.float32(-math.inf))
    if abs(found) < ZERO:  # tiny features count as 0, and processors may round these
        return 0.0 if found >= 0.0 else -ZERO
    return float(found)
