"""Sum of decision trees as a Keras model."""

from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.models.boosted_trees import readers
from tfrank_sel.models.boosted_trees.readers import Forest, Split, Tree
from tfrank_sel.models.preparation import features_shape
from tfrank_sel.serialization import Configurable, register

_KIND = {"trainable": False, "initializer": "zeros"}


class Node(NamedTuple):
    """A node of a tree. A leaf is its own child."""

    feature: int
    threshold: float
    missing_left: bool
    left: int
    right: int
    value: float


@register
class BoostedTrees(Configurable, keras.Model):
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
    library, up to rounding of the sum.

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
        **kwargs: Any,
    ) -> None:
        if not 0 < num_trees <= num_nodes or depth < 0 or num_features < 1:
            raise ValueError(
                "Expected num_nodes >= num_trees > 0, depth >= 0 and num_features > 0. Received: "
                f"{num_trees=}, {num_nodes=}, {depth=}, {num_features=}"
            )
        super().__init__(name=name, **kwargs)
        self.num_trees = num_trees
        self.num_nodes = num_nodes
        self.depth = depth
        self.num_features = num_features

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
        return cls._of(readers.of_lightgbm(booster), name)

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
        return cls._of(readers.of_xgboost(booster), name)

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
        return cls._of(readers.of_catboost(model), name)

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
            children = tree(node.left), tree(node.right)
            return Split(node.feature, node.threshold, bool(node.missing_left), *children)

        return Forest([tree(root) for root in self.roots.numpy()], self.num_features)

    def build(self, input_shape: Any) -> None:
        """Creates the trees."""

        def made(name: str, size: int, dtype: str) -> Any:
            return self.add_weight(shape=(size,), name=name, dtype=dtype, **_KIND)

        self.roots = made("roots", self.num_trees, "int32")
        self.feature = made("feature", self.num_nodes, "int32")
        self.threshold = made("threshold", self.num_nodes, "float32")
        self.missing_left = made("missing_left", self.num_nodes, "int32")
        self.left = made("left", self.num_nodes, "int32")
        self.right = made("right", self.num_nodes, "int32")
        self.value = made("value", self.num_nodes, "float32")
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the scores of the items."""
        features = tf.cast(inputs, tf.float32)
        if features.shape[-1] != self.num_features:
            raise ValueError(
                f"Expected features [batch_size, list_size, {self.num_features}]. "
                f"Received: shape {tuple(features.shape)}"
            )
        items = tf.reshape(features, [-1, self.num_features])
        items = tf.where(tf.abs(items) <= readers.ZERO, 0.0, items)
        nodes = tf.tile(tf.convert_to_tensor(self.roots)[tf.newaxis], [tf.shape(items)[0], 1])
        for _ in range(self.depth):
            x = tf.gather(items, tf.gather(self.feature, nodes), batch_dims=1)
            below = x <= tf.gather(self.threshold, nodes)
            to_left = tf.where(tf.math.is_nan(x), tf.gather(self.missing_left, nodes) > 0, below)
            nodes = tf.where(to_left, tf.gather(self.left, nodes), tf.gather(self.right, nodes))
        scores = tf.reduce_sum(tf.gather(self.value, nodes), axis=1)
        return tf.reshape(scores, tf.shape(features)[:-1])

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the shape of the features without the last axis."""
        return tuple(features_shape(input_shape)[:-1])


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
