"""Files of boosted trees for the rankers of search engines."""

import enum
import itertools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import received, refusal
from tfrank_sel.locks import atomic_path
from tfrank_sel.models import BoostedTrees
from tfrank_sel.models.boosted_trees import ZERO, Forest, Split, Tree

SLACK = np.float32(1e-6)  # what Solr adds to each threshold
_ENDLESS = 1e39  # beyond float32, where JSON has no infinity
GROWTH = 10  # times the splits that a file may have
_LARGEST = float(np.finfo(np.float32).max)


class Absent(enum.Enum):
    """The way of an engine with a feature that a document lacks."""

    IS_ZERO = "is 0"
    GOES_RIGHT = "goes to the right branch"
    GOES_AS_NAMED = "goes to the branch that the file names"
    IS_REFUSED = "cannot be ranked"


class Behaviour(NamedTuple):
    """What the versions of an engine do from one on.

    Args:
        since: The first of these versions.
        absent: Their way with a feature that a document lacks.
        source: The place in the engine's code or documents that says so.
    """

    since: tuple[int, ...]
    absent: Absent
    source: str


VERSIONS: Mapping[str, Sequence[Behaviour]] = {
    "solr": [
        Behaviour((0,), Absent.IS_ZERO, "MultipleAdditiveTreesModel.scoreNode"),
        Behaviour((9, 2), Absent.GOES_AS_NAMED, "SOLR-16596"),
    ],
    "opensearch": [
        Behaviour((0,), Absent.IS_ZERO, "DenseFeatureVector.reset"),
        Behaviour((3, 2), Absent.GOES_RIGHT, "opensearch-learning-to-rank-base#206"),
        Behaviour((3, 8), Absent.GOES_AS_NAMED, "opensearch-learning-to-rank-base#379"),
    ],
    "o19s": [
        Behaviour((0,), Absent.IS_ZERO, "DenseFeatureVector.reset"),
        Behaviour((1, 5, 9), Absent.GOES_AS_NAMED, "elasticsearch-learning-to-rank#482"),
    ],
    "elasticsearch": [
        Behaviour((0,), Absent.IS_REFUSED, "no LearningToRankConfig"),
        Behaviour((8, 12), Absent.GOES_AS_NAMED, "QueryFeatureExtractor.addFeatures"),
    ],
    "vespa": [Behaviour((0,), Absent.GOES_AS_NAMED, "XGBoostParser")],
}


def write(
    model: keras.Model,
    path: StrPath,
    engine: str,
    features: Sequence[str] | Mapping[str, Mapping[str, Any]],
    name: str,
    version: str | None,
    missing: float | None,
) -> None:
    """Writes the file of `tfrank_sel.export.search_engine`."""
    if engine not in VERSIONS:
        raise refusal(f"`engine` must be {', '.join(VERSIONS)}", engine=engine)
    if not isinstance(model, BoostedTrees):
        raise TypeError(
            received(
                "Search engines rank with boosted trees; write other models with `export.onnx`. "
                "Expected `model`: models.BoostedTrees",
                type(model).__name__,
            )
        )
    if len(set(features)) != len(features) or len(features) != model.num_features:
        raise refusal(f"`features` must be {model.num_features} different names", list(features))
    forest = model.forest() if missing is None else _with_missing(model.forest(), missing)
    ways = ways_of(engine, version)
    if engine == "elasticsearch" and not isinstance(features, Mapping):
        raise refusal(
            "`features` must map each name to the query whose score is the feature, since "
            "Elasticsearch has no feature store",
            list(features),
        )
    if missing is not None and Absent.IS_ZERO in ways:
        _check_absent_is_zero(forest, engine, list(features), version)
    if missing is not None and Absent.GOES_RIGHT in ways:
        forest = _guard_missing(forest, version)
    if engine == "solr":
        body = _solr(forest, list(features), name, named=ways == {Absent.GOES_AS_NAMED})
    else:
        body = _BODIES[engine](forest, features, name)
    with atomic_path(Path(path)) as written:
        written.write_text(json.dumps(body, allow_nan=False), encoding="utf-8")


def ways_of(engine: str, version: str | None) -> set[Absent]:
    """The ways of a version with absent features; without one, of all versions that rank."""
    if version is None:
        return {row.absent for row in VERSIONS[engine]} - {Absent.IS_REFUSED}
    numbers = re.match(r"\d+(\.\d+)*", version)
    if not numbers:
        raise refusal('`version` must be numbers with dots, such as "3.7"', version=version)
    parts = tuple(map(int, numbers[0].split(".")))
    *_, behaviour = (row for row in VERSIONS[engine] if row.since <= parts)
    if behaviour.absent is Absent.IS_REFUSED:
        raise refusal("Elasticsearch ranks with trees from 8.12 on", version=version)
    return {behaviour.absent}


def _check_absent_is_zero(
    forest: Forest, engine: str, features: Sequence[str], version: str | None
) -> None:
    splits = (split for tree in forest.trees for split in _splits(tree))
    other = sorted({x.feature for x in splits if x.missing_left != (x.threshold >= 0.0)})
    if other:
        names = [*(features[x] for x in other[:3]), *(["..."] if len(other) > 3 else [])]
        later = VERSIONS[engine][1].since
        raise refusal(
            f"Before {'.'.join(map(str, later))}, {engine} takes a feature that a document lacks "
            "for 0, which these trees tell from it: name a later `version`, or pass `missing=0.0` "
            "if 0 stood for it in training, or `missing=None` if no document lacks a feature",
            version=version,
            features=", ".join(names),
        )


def _splits(tree: Tree) -> Iterator[Split]:
    if isinstance(tree, Split):
        yield tree
        yield from _splits(tree.left)
        yield from _splits(tree.right)


def _with_missing(forest: Forest, value: float) -> Forest:
    """Trees whose missing values go where a value goes."""

    def route(tree: Tree) -> Tree:
        if not isinstance(tree, Split):
            return tree
        missing_left = tree.missing_left if math.isnan(value) else value <= tree.threshold
        return Split(
            tree.feature, tree.threshold, missing_left, route(tree.left), route(tree.right)
        )

    return forest._replace(trees=[route(tree) for tree in forest.trees])


def _guard_missing(forest: Forest, version: str | None) -> Forest:
    """Trees for an engine that sends missing values to the right.

    A split that sends them to the left gets one before it that only missing values pass on the
    right, unless the way to it tells whether its feature is missing. The left side then stands
    twice, so trees may grow without bound.
    """
    most = GROWTH * sum(1 for tree in forest.trees for _ in _splits(tree))
    made = itertools.count(1)

    def split(feature: int, threshold: float, left: Tree, right: Tree) -> Split:
        if next(made) > most:
            raise refusal(
                "OpenSearch 3.2 to 3.7 sends a feature that a document lacks to the right, and a "
                f"file that undoes this would have more than {GROWTH} times the splits: train "
                "shallower trees, or with a value above all others, such as 1e30, and pass it as "
                "`missing`; or name a `version` that needs none",
                version=version,
            )
        return Split(feature, threshold, False, left, right)

    def guard(tree: Tree, absent: frozenset[int], present: frozenset[int]) -> Tree:
        if not isinstance(tree, Split):
            return tree
        feature, threshold, missing_left, left, right = tree
        if feature in absent:
            return guard(left if missing_left else right, absent, present)
        below = guard(left, absent, present | {feature})
        if feature in present or not missing_left:
            return split(feature, threshold, below, guard(right, absent, present))
        above = guard(right, absent, present | {feature})
        missing = guard(left, absent | {feature}, present)
        return split(feature, math.inf, split(feature, threshold, below, above), missing)

    return forest._replace(trees=[guard(x, frozenset(), frozenset()) for x in forest.trees])


def _solr(
    forest: Forest, features: Sequence[str], name: str, named: bool = False
) -> Mapping[str, Any]:
    """A model for Solr, with the branches of missing values if `named`."""
    scales = _solr_scales(forest, features)

    def node(tree: Tree) -> dict[str, Any]:
        if not isinstance(tree, Split):
            return {"value": str(tree)}
        less = _less_slack(tree.threshold, scales[tree.feature])
        split: dict[str, Any] = {
            "feature": features[tree.feature],
            "threshold": str(_finite(float(less))),
            "left": node(tree.left),
            "right": node(tree.right),
        }
        return split | ({"missing": "left" if tree.missing_left else "right"} if named else {})

    def scale_feature(feature: str, scale: np.float32) -> dict[str, Any]:
        if scale == 1.0:
            return {"name": feature}
        params = {"avg": "0", "std": str(1.0 / float(scale))}
        norm = {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": params}
        return {"name": feature, "norm": norm}

    trees = [{"weight": "1", "root": node(tree)} for tree in forest.trees]
    return {
        "class": "org.apache.solr.ltr.model.MultipleAdditiveTreesModel",
        "name": name,
        "features": list(map(scale_feature, features, scales)),
        "params": ({"isNullSameAsZero": False} if named else {}) | {"trees": trees},
    }


def _solr_scales(forest: Forest, features: Sequence[str]) -> list[np.float32]:
    """Powers of two for Solr to multiply features by, so that its slack moves no threshold."""
    thresholds: list[list[float]] = [[] for _ in features]
    for tree in forest.trees:
        for split in _splits(tree):
            thresholds[split.feature].append(split.threshold)
    scales = list(map(_solr_scale, thresholds))
    inexact = [
        feature
        for feature, scale, x in zip(features, scales, thresholds, strict=True)
        if not all(_is_exact(threshold, scale) for threshold in x)
    ]
    if inexact:
        warnings.warn(
            f"Solr adds {SLACK:g} to each threshold, and thresholds of these features are too far "
            f"apart to scale them all: it moves those near 0 of {', '.join(inexact)}",
            stacklevel=5,
        )
    return scales


def _solr_scale(thresholds: Sequence[float]) -> np.float32:
    moved = [abs(x) for x in thresholds if not _is_exact(x, np.float32(1.0))]
    if not moved:
        return np.float32(1.0)
    largest = max(abs(x) for x in thresholds if abs(x) < _LARGEST)
    room = math.floor(math.log2(_LARGEST / largest))
    return np.float32(2.0 ** min(room, math.ceil(math.log2(4.0 * float(SLACK) / min(moved)))))


def _is_exact(threshold: float, scale: np.float32) -> bool:
    if abs(threshold) <= ZERO or abs(threshold) >= _LARGEST:
        return True
    return bool(_less_slack(threshold, scale) + SLACK == np.float32(threshold) * scale)


def _less_slack(threshold: float, scale: np.float32) -> np.float32:
    """The number that Solr's threshold is made of: with its slack, the scaled threshold."""
    if abs(threshold) <= ZERO:  # the model takes values up to this for 0
        return -SLACK if threshold >= 0.0 else np.nextafter(-SLACK, np.float32(-np.inf))
    if abs(threshold) >= _LARGEST:  # all values are on one side
        return np.float32(math.copysign(math.inf, threshold))
    scaled = np.float32(threshold) * scale
    near = scaled - SLACK
    ways = [near, *(np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))]
    return min(ways, key=lambda x: abs(float(x + SLACK) - float(scaled)))


def _finite(threshold: float) -> float:
    return max(-_ENDLESS, min(threshold, _ENDLESS))


def _xgboost(forest: Forest, features: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Trees as XGBoost dumps them, where a feature below the condition goes to `yes`."""

    # numbers without gaps: engines read int32, which a tree of 31 levels left at twice its parent's
    def node(tree: Tree, numbers: Iterator[int], depth: int) -> dict[str, Any]:
        number = next(numbers)
        if not isinstance(tree, Split):
            return {"nodeid": number, "leaf": tree}
        children = [node(x, numbers, depth + 1) for x in (tree.left, tree.right)]
        yes, no = (child["nodeid"] for child in children)
        with np.errstate(over="ignore"):  # of the largest number
            above = np.nextafter(np.float32(tree.threshold), np.float32(np.inf))
        return {
            "nodeid": number,
            "depth": depth,
            "split": features[tree.feature],
            "split_condition": _finite(float(above)),
            "yes": yes,
            "no": no,
            "missing": yes if tree.missing_left else no,
            "children": children,
        }

    return [node(tree, itertools.count(), 0) for tree in forest.trees]


def _learning_to_rank(forest: Forest, features: Any, name: str) -> Mapping[str, Any]:
    """The request of the plugin Learning to Rank, of OpenSearch or o19s."""
    # the objective that all versions know, and that leaves scores as they are
    trees = {"objective": "rank:pairwise", "splits": _xgboost(forest, list(features))}
    model = {"type": "model/xgboost+json", "definition": json.dumps(trees, allow_nan=False)}
    return {"model": {"name": name, "model": model}}


def _vespa(forest: Forest, features: Any, name: str) -> Sequence[Mapping[str, Any]]:
    return _xgboost(forest, list(features))


def _elasticsearch(
    forest: Forest, features: Mapping[str, Mapping[str, Any]], name: str
) -> Mapping[str, Any]:
    def nodes(tree: Tree, first: int) -> list[dict[str, Any]]:
        if not isinstance(tree, Split):
            return [{"node_index": first, "leaf_value": tree}]
        left = nodes(tree.left, first + 1)
        right = nodes(tree.right, first + 1 + len(left))
        split = {
            "node_index": first,
            "split_feature": tree.feature,
            "decision_type": "lte",
            "threshold": _finite(tree.threshold),
            "default_left": tree.missing_left,
            "left_child": first + 1,
            "right_child": first + 1 + len(left),
        }
        return [split, *left, *right]

    names = {"feature_names": list(features), "target_type": "regression"}
    trees = [{"tree": {**names, "tree_structure": nodes(t, 0)}} for t in forest.trees]
    ensemble = {**names, "trained_models": trees, "aggregate_output": {"weighted_sum": {}}}
    extractors = [
        {"query_extractor": {"feature_name": x, "query": query}} for x, query in features.items()
    ]
    return {
        "description": name,
        "inference_config": {"learning_to_rank": {"feature_extractors": extractors}},
        "definition": {"trained_model": {"ensemble": ensemble}},
    }


_BODIES: Mapping[str, Callable[[Forest, Any, str], Any]] = {
    "opensearch": _learning_to_rank,
    "o19s": _learning_to_rank,
    "elasticsearch": _elasticsearch,
    "vespa": _vespa,
}
