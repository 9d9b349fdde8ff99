"""Sum of decision trees as a Keras model, and readers of LightGBM, XGBoost and CatBoost."""

import itertools
import json
import math
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias, Unpack

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.errors import received, refusal
from tfrank_sel.keras_versions import FULL_PRECISION, LayerOptions
from tfrank_sel.models.preparation import ScoresItems
from tfrank_sel.numerics import entry_point
from tfrank_sel.serialization import Configurable, register

_KIND = {"trainable": False, "initializer": "zeros", **FULL_PRECISION}


ZERO = 1e-35  # up to this a feature counts as 0, as in LightGBM
# LightGBM's files write this number for infinity.
_INFINITE = 1e300


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
            raise refusal("Expected missing=NaN", missing=model.missing)
        if getattr(model, "best_iteration", None) is not None:
            # as `predict` of the scikit-learn model does
            booster = booster[: model.best_iteration + 1]
    learner = json.loads(booster.save_raw("json"))["learner"]
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise refusal("Expected booster='gbtree'", booster=kind)
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
        dump = json.loads(path.read_text(encoding="utf-8"))
    if others := dump["features_info"].keys() - {"float_features"}:
        raise refusal("Expected only numerical features", ", ".join(sorted(others)))
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
    class_name = f"an object of {classes[0].__module__}.{classes[0].__qualname__}"
    raise TypeError(received(f"Expected an object of {expected}", class_name))


def _check_single(name: str, count: int) -> None:
    if count != 1:
        raise refusal("Expected one score per item", f"{name}={count}")


def _lightgbm_tree(node: Mapping[str, Any]) -> Tree:
    if "split_feature" not in node:
        if "leaf_coeff" in node:
            raise refusal("Expected constant leaves", "a tree with linear leaves")
        return float(node["leaf_value"])
    if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
        raise refusal(
            "Expected numerical features in which zeros are not missing",
            f"decision_type={node['decision_type']!r}, missing_type={node['missing_type']!r}",
        )
    threshold = node["threshold"]
    threshold = math.inf if threshold >= _INFINITE else _rounded_down(threshold)
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
        raise refusal("Expected numerical splits", f"categorical feature {feature}")
    children = _xgboost_tree(tree, left), _xgboost_tree(tree, right)
    _check_size(feature, value)
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
    _check_size(feature, split["border"])
    return Split(feature, _rounded_down(split["border"]), missing_left[feature], left, right)


def _check_size(feature: int, threshold: float) -> None:
    """Raises an error if the features below `ZERO` of another library than LightGBM differ."""
    if 0.0 < abs(threshold) < ZERO:
        raise refusal(
            f"Expected thresholds of 0 or above {ZERO}, below which features count as 0: multiply "
            f"feature {feature} by a number, or take its logarithm",
            threshold,
        )


def _of_missing(tree: Tree) -> float:
    """The tree's output for an item whose features are all missing."""
    while isinstance(tree, Split):
        tree = tree.left if tree.missing_left else tree.right
    return tree


def _rounded_down(threshold: float, strictly: bool = False) -> float:
    """The largest float32 up to a threshold, or below it: float32 features compare the same."""
    with np.errstate(over="ignore"):
        rounded = np.float32(threshold)
    if float(rounded) > threshold or (strictly and float(rounded) == threshold):
        rounded = np.nextafter(rounded, np.float32(-math.inf))
    if abs(rounded) < ZERO:  # tiny features count as 0, and processors may round these
        return 0.0 if rounded >= 0.0 else -ZERO
    return float(rounded)


LEAVES = 32  # of a part of a tree: the bits of an integer


class Layout(NamedTuple):
    """Trees in parts of up to `LEAVES` neighbouring leaves, with the splits above them.

    Each split rules out leaves, and the one that is left is reached: no item walks through a tree
    (QuickScorer, Lucchese et al. 2015, with masks for both sides, so that parts are independent).

    Args:
        leaves: Bits of the leaves of each part.
        splits: The splits of each part, `[splits, parts]` each: the row of the feature (where
            missing values are NaN, as if above all thresholds, or further below, under all), the
            threshold, and the bits of the leaves that remain if the feature is up to it, and if it
            is above.
        values: Values of the leaves of each part, after a 0 for none of them.
    """

    leaves: np.ndarray
    splits: tuple[np.ndarray, ...]
    values: np.ndarray


def laid_out(forest: Forest) -> Layout:
    """Returns the layout of trees."""
    parts: list[list[tuple[int, float, int, int]]] = []
    values: list[list[float]] = []
    for tree in forest.trees:
        leaves: list[float] = []
        sides: list[tuple[Split, int, int, int]] = []
        _number(tree, leaves, sides)
        for start in range(0, len(leaves), LEAVES):
            part, end = [], start + LEAVES
            for split, first, middle, last in sides:
                if first < end and last > start:
                    row = split.feature + forest.num_features * split.missing_left
                    left = _bits(first - start, middle - start)
                    right = _bits(middle - start, last - start)
                    part.append((row, split.threshold, ~right, ~left))
            parts.append(part)
            values.append(leaves[start:end])
    most = max(1, *map(len, parts))
    padded = [[*part, *[(0, 0.0, -1, -1)] * (most - len(part))] for part in parts]
    columns = zip(*itertools.chain.from_iterable(padded), strict=True)
    types = (np.int32, np.float32, np.int32, np.int32)
    return Layout(
        np.array([_bits(0, len(x)) for x in values]).astype(np.int32),
        tuple(
            np.array(x).astype(kind).reshape(-1, most).T
            for x, kind in zip(columns, types, strict=True)
        ),
        np.array([[0.0, *x, *[0.0] * (LEAVES - len(x))] for x in values], np.float32),
    )


def _number(tree: Tree, leaves: list[float], sides: list[tuple[Split, int, int, int]]) -> None:
    """Appends the leaves from left to right, and each split with the ends of its sides' leaves."""
    if not isinstance(tree, Split):
        leaves.append(tree)
        return
    first = len(leaves)
    _number(tree.left, leaves, sides)
    middle = len(leaves)
    _number(tree.right, leaves, sides)
    sides.append((tree, first, middle, len(leaves)))


def _bits(first: int, end: int) -> int:
    """The bits of leaves of a part, of which there are `LEAVES`."""
    return (1 << min(max(end, 0), LEAVES)) - (1 << min(max(first, 0), LEAVES))


class Node(NamedTuple):
    """A node of a tree. A leaf is its own child."""

    feature: int
    threshold: float
    missing_left: bool
    left: int
    right: int
    value: float


@register
class BoostedTrees(Configurable, ScoresItems, keras.Model):
    """Sum of decision trees, such as those of LightGBM, XGBoost and CatBoost.

    `from_lightgbm`, `from_xgboost` and `from_catboost` make it. The trees are then part of a
    SavedModel, alone or in an `Ensemble` with networks, which is served without their library. They
    are not trained further.

    Args:
        num_trees: Number of trees.
        num_nodes: Number of nodes of all trees, leaves included.
        depth: Maximum number of decisions from a root to a leaf.
        num_features: Number of features.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: features of shape `[batch_size, list_size, num_features]`. NaN is missing, and takes the
    same branch as in the library that trained the trees.

    Outputs: scores of shape `[batch_size, list_size]`, float32. They are the raw scores of that
    library, up to rounding of the sum: those of `predict(..., raw_score=True)` of LightGBM, which
    are a sum for `boosting="rf"`, too.

    Raises:
        ValueError: If a size is out of range.
    """

    def __init__(
        self,
        num_trees: int,
        num_nodes: int,
        depth: int,
        num_features: int,
        name: str = "boosted_trees",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        if not 0 < num_trees <= num_nodes or depth < 0 or num_features < 1:
            raise refusal(
                "Expected num_nodes >= num_trees > 0, depth >= 0 and num_features > 0",
                f"{num_trees=}, {num_nodes=}, {depth=}, {num_features=}",
            )
        # float16 would take other branches, and round the scores
        super().__init__(name=name, autocast=False, **kwargs)
        self.num_trees = num_trees
        self.num_nodes = num_nodes
        self.depth = depth
        self.num_features = num_features
        self._laid_out: tuple[list[np.ndarray], Layout] | None = None

    @classmethod
    def from_lightgbm(cls, booster: Any, name: str = "boosted_trees") -> Self:
        """Reads the trees of LightGBM that its `predict` uses.

        Args:
            booster: A `lightgbm.Booster`, or a fitted scikit-learn model such as `LGBMRanker`, with
                one score per item.
            name: Name of the model.

        Raises:
            TypeError: If `booster` is of another class.
            ValueError: If a tree has categorical features, zeros that count as missing, or linear
                leaves, or if there is more than one score per item.
        """
        return cls._of(of_lightgbm(booster), name)

    @classmethod
    def from_xgboost(cls, booster: Any, name: str = "boosted_trees") -> Self:
        """Reads the trees of XGBoost that its `predict` uses.

        Args:
            booster: An `xgboost.Booster` of the type `gbtree`, or a fitted scikit-learn model such
                as `XGBRanker`, with one score per item. All trees of a `Booster` are read; slice it
                to end with the best iteration.
            name: Name of the model.

        Raises:
            TypeError: If `booster` is of another class.
            ValueError: If a split is categorical, if a number other than NaN counts as missing, if
                the booster is of another type, or if there is more than one score per item.
        """
        return cls._of(of_xgboost(booster), name)

    @classmethod
    def from_catboost(cls, model: Any, name: str = "boosted_trees") -> Self:
        """Reads the trees of CatBoost that its `predict` uses.

        Args:
            model: A trained `catboost.CatBoost`, such as a `CatBoostRanker`, with numerical
                features and one score per item.
            name: Name of the model.

        Raises:
            TypeError: If `model` is of another class.
            ValueError: If a feature is not a number, or if there is more than one score per item.
        """
        return cls._of(of_catboost(model), name)

    @classmethod
    def _of(cls, forest: Forest, name: str) -> Self:
        nodes: list[Node] = []
        roots, depths = [], []
        for tree in forest.trees:
            roots.append(len(nodes))
            depths.append(_append(tree, nodes))
        model = cls(len(roots), len(nodes), max(depths), forest.num_features, name)
        model.build((None, None, model.num_features))
        columns = dict(zip(Node._fields, map(np.array, zip(*nodes, strict=True)), strict=True))
        model.set_weights([np.array(roots), *columns.values()])
        return model

    def forest(self) -> Forest:
        """Returns the trees, as nested splits."""
        columns = {name: getattr(self, name).numpy().tolist() for name in Node._fields}
        nodes = [Node(*row) for row in zip(*columns.values(), strict=True)]

        def tree(number: int) -> Tree:
            node = nodes[number]
            if node.left == number:
                return node.value
            if not number < node.left < node.right < self.num_nodes:
                raise refusal("the children of a node must follow it", f"{number}: {node}")
            children = tree(node.left), tree(node.right)
            return Split(node.feature, node.threshold, bool(node.missing_left), *children)

        return Forest([tree(root) for root in self.roots.numpy()], self.num_features)

    def build(self, input_shape: Any) -> None:
        """Creates the trees."""
        for name in ("roots", *Node._fields):
            size = self.num_trees if name == "roots" else self.num_nodes
            dtype = "float32" if name in ("threshold", "value") else "int32"
            weight = self.add_weight(shape=(size,), name=name, dtype=dtype, **_KIND)
            setattr(self, name, weight)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the scores of the items."""
        features = tf.cast(inputs, tf.float32)
        if features.shape[-1] != self.num_features:
            raise refusal(
                f"Expected features [batch_size, list_size, {self.num_features}]",
                f"shape {tuple(features.shape)}",
            )
        items = tf.reshape(features, [-1, self.num_features])
        items = tf.transpose(tf.where(tf.abs(items) <= ZERO, 0.0, items))
        items = tf.concat([items, tf.where(tf.math.is_nan(items), -np.inf, items)], axis=0)
        weights, layout = self._layout()
        scores = _leaf_scores(items, layout)
        if not tf.executing_eagerly():  # a graph keeps its layout when the weights change
            bits = tf.concat(
                [tf.bitcast(tf.convert_to_tensor(x), tf.int32) for x in self.weights], 0
            )
            are_same = tf.reduce_all(bits == np.concatenate([x.view(np.int32) for x in weights]))
            # outside of the branch, the layout is a constant, which takes a tenth less time
            scores = tf.cond(are_same, lambda: scores, lambda: self._walk(items))
        return tf.reshape(scores, tf.shape(features)[:-1])

    @entry_point  # to which each level of a tree would be several calls
    def _layout(self) -> tuple[list[np.ndarray], Layout]:
        """The weights, and the trees as `_leaf_scores` takes them; made again if they changed."""
        with tf.init_scope():
            weights = [x.numpy() for x in self.weights]
            if self._laid_out is None or not all(map(np.array_equal, self._laid_out[0], weights)):
                self._laid_out = weights, laid_out(self.forest())
        return self._laid_out

    def _walk(self, items: tf.Tensor) -> tf.Tensor:
        """The scores by steps from the roots, of any weights."""
        count = tf.shape(items)[1]
        row = self.feature + self.num_features * self.missing_left

        def step(number: tf.Tensor, node: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            values = tf.gather(
                tf.reshape(items, [-1]), tf.gather(row, node) * count + tf.range(count)
            )
            is_left = values <= tf.gather(self.threshold, node)
            return number + 1, tf.where(
                is_left, tf.gather(self.left, node), tf.gather(self.right, node)
            )

        start = tf.tile(tf.convert_to_tensor(self.roots)[:, tf.newaxis], [1, count])
        _, node = tf.while_loop(lambda number, _: number < self.depth, step, (0, start))
        return tf.reduce_sum(tf.gather(self.value, node), axis=0)


def _leaf_scores(items: tf.Tensor, layout: Layout) -> tf.Tensor:
    """The scores of items, `[rows, items]`, by the leaves that all splits leave."""
    leaf = layout.leaves[:, np.newaxis]
    for row, threshold, left, right in zip(*layout.splits, strict=True):
        is_left = tf.gather(items, row) <= threshold[:, np.newaxis]
        remaining = tf.where(is_left, left[:, np.newaxis], right[:, np.newaxis])
        leaf = tf.bitwise.bitwise_and(leaf, remaining)
    # a power of 2 has its logarithm in the exponent, after 127; no leaf has 0 there
    exponent = tf.bitwise.right_shift(tf.bitcast(tf.cast(leaf, tf.float32), tf.int32), 23)
    number = tf.maximum(tf.bitwise.bitwise_and(exponent, 255), 126)
    first = np.arange(len(layout.values), dtype=np.int32)[:, np.newaxis] * (LEAVES + 1) - 126
    return tf.reduce_sum(tf.gather(layout.values.ravel(), first + number), axis=0)


def _append(tree: Tree, nodes: list[Node]) -> int:
    """Appends the nodes of a tree, and returns its depth."""
    number = len(nodes)
    if not isinstance(tree, Split):
        nodes.append(Node(0, 0.0, False, number, number, tree))
        return 0
    nodes.append(Node(tree.feature, tree.threshold, tree.missing_left, number, number, 0.0))
    left_depth = _append(tree.left, nodes)
    right = len(nodes)
    right_depth = _append(tree.right, nodes)
    nodes[number] = nodes[number]._replace(left=number + 1, right=right)
    return 1 + max(left_depth, right_depth)
