"""A ranker as a graph of ONNX, and the nodes of the models of this package."""

import functools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import keras_versions, models
from tfrank_sel.errors import refusal
from tfrank_sel.export import PADDING_SCORE
from tfrank_sel.models.boosted_trees import ZERO, Node
from tfrank_sel.models.recalibrated import SHARE
from tfrank_sel.onnx import features, standard
from tfrank_sel.onnx.graph import (
    TREES,
    Graph,
    GraphLists,
    Rule,
    concatenate,
    indices,
    no_form,
    part,
)
from tfrank_sel.onnx.standard import array

_OF_LAYERS = (keras.Sequential, keras_versions.FUNCTIONAL)
_IDS = {"user": [None], "item": [None, None]}
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def serialize(model: keras.Model) -> bytes:
    """Returns the file of a ranker: see `tfrank_sel.export.onnx`."""
    graph = Graph({**standard.RULES, **RULES})
    mask = None
    if isinstance(model, models.TwoTower):
        ids = {name: graph.input(tf.TensorSpec(x, tf.int64), name) for name, x in _IDS.items()}
        values: Any = ids
        for name, vectors in zip(("users", "items"), towers(graph, model, ids), strict=True):
            graph.output(vectors, name)
    elif isinstance(model, _OF_LAYERS):
        if not model.built:
            raise no_form(model, "a model that is not built; call it once")
        names = [x.name for x in model.inputs] if len(model.inputs) > 1 else ["features"]
        values = [
            graph.input(tf.TensorSpec(x.shape, x.dtype), name)
            for x, name in zip(model.inputs, names, strict=True)
        ]
    else:
        values = _features(graph, model)
        if getattr(model, "takes_mask", False):
            spec = tf.TensorSpec([None, None], tf.bool)
            mask = graph.input(spec, "mask", default=np.array([[True]]))
            any_of = next(iter(values.values())) if isinstance(values, dict) else values
            mask = graph("And", mask, features.all_items(graph, any_of))
            values = GraphLists(values, mask)
    scores = as_lists(graph, graph.layer(model, values))
    if len(shape := graph.shape(scores)) != 2:
        raise refusal(
            "`model` must give scores of shape [batch_size, list_size] or [batch_size, list_size, "
            "1]",
            shape,
        )
    if mask is not None:
        scores = graph("Where", mask, scores, np.float32(PADDING_SCORE))
    graph.output(scores, "scores")
    return graph.serialize()


def _features(graph: Graph, model: Any) -> Any:
    """Adds the inputs of a ranker: its packed features, or each of its typed ones."""
    inner, ends = model, (models.Preparation, models.BoostedTrees, models.Perceptron, *_OF_LAYERS)
    while not isinstance(inner, ends):
        parts = (getattr(inner, name, None) for name in ("preparation", "model", "members"))
        inside = next((part for part in parts if part is not None), None)
        if inside is None:
            # A layer without a rule raises the error here.
            graph.layer(inner)
        inner = inside[0] if isinstance(inside, list) else inside
    if isinstance(inner, models.Preparation) and inner.features:
        return features.inputs(graph, inner._types)
    if isinstance(inner, models.Perceptron):
        layer = (*inner._hidden, inner._score)[0]
        count = layer.kernel.shape[0] - sum(size - n for n, _, size in inner.embeddings)
    else:
        of_layers = isinstance(inner, _OF_LAYERS)
        count = inner.input_shape[-1] if of_layers else inner.num_features
    return graph.input(tf.TensorSpec([None, None, count], tf.float32), "features")


def scores(graph: Graph, model: Any, lists: GraphLists) -> str:
    """Adds the nodes of a ranker, which takes the mask if it has `takes_mask`."""
    takes_mask = getattr(model, "takes_mask", False)
    return as_lists(graph, graph.layer(model, lists if takes_mask else lists.features))


def as_lists(graph: Graph, scores: str) -> str:
    """Removes the last axis of `[batch_size, list_size, 1]`, as of `Dense(1)`."""
    shape = graph.shape(scores)
    if len(shape) == 3 and shape[2] == 1:
        return str(graph("Squeeze", scores, indices(-1)))
    return scores


def _prepared_model(graph: Graph, model: Any, lists: Any) -> str:
    prepared = graph.layer(model.preparation, lists)
    if isinstance(prepared, GraphLists):
        return scores(graph, model.network, prepared)
    return str(graph.layer(model.network, prepared))


def _perceptron(graph: Graph, model: Any, lists: Any) -> str:
    x = lists.features if isinstance(lists, GraphLists) else lists
    x = _looked_up(graph, model, x)
    for layer in model._hidden:
        x = graph.layer(layer, x)
    if model._attention is not None:
        mask = getattr(lists, "mask", None) or features.all_items(graph, x)
        some = graph.cast(graph("ReduceMax", graph.cast(mask), indices(1), keepdims=1), tf.bool)
        seen = graph("Unsqueeze", graph("Or", mask, graph("Not", some)), indices(1))
        x = graph("Add", x, graph.layer(model._attention, x, x, attention_mask=seen))
    x = graph.layer(model._score, x)
    return str(graph("Squeeze", x, indices(-1)))


def _looked_up(graph: Graph, model: Any, x: str) -> str:
    """Replaces the integers of each item by their embeddings."""
    if not model.embeddings:
        return x
    # Columns of embeddings are counted from the end.
    start = -sum(count for count, _, _ in model.embeddings)
    parts = [graph("Slice", x, indices(0), indices(start), indices(-1))]
    for (count, _, _), layer in zip(model.embeddings, model._embeddings, strict=True):
        end = start + count or np.iinfo(np.int64).max
        ids = part(graph, x, start, end)
        vectors = graph.layer(layer, ids)
        start += count
        if count > 1:
            is_value = graph.cast(graph("Greater", graph("Unsqueeze", ids, indices(-1)), _ZERO))
            number = graph("ReduceSum", is_value, indices(-2), keepdims=0)
            total = graph("ReduceSum", graph("Mul", vectors, is_value), indices(-2), keepdims=0)
            mean = graph("Div", total, graph("Max", number, _ONE))
            first = graph("Gather", vectors, np.int64(0), axis=2)
            parts.append(graph("Where", graph("Greater", number, _ZERO), mean, first))
        else:
            parts.append(graph("Squeeze", vectors, indices(-2)))
    return concatenate(graph, parts)


def _ensemble(graph: Graph, model: Any, lists: GraphLists) -> str:
    parts = (scores(graph, member, lists) for member in model.members)
    parts = (features.standardise(graph, x, lists.mask) for x in parts)  # type: ignore[arg-type]
    weighted = map(functools.partial(graph, "Mul"), parts, map(np.float64, model.factors))
    return graph.cast(graph("Sum", *weighted))


def _recalibrated_model(graph: Graph, model: Any, lists: GraphLists) -> str:
    s = scores(graph, model.model, lists)
    log_odds = graph("Add", graph("Mul", s, np.float32(model.slope)), np.float32(model.intercept))
    labels = graph("Mul", graph("Sigmoid", log_odds), np.float32(model.max_label))
    if model.knots:
        knots, values = (
            np.array([x[0], *x, x[-1]], np.float32) for x in (model.knots, model.values)
        )
        index = _search(graph, s, knots[1:-1])
        before = graph("Sub", index, indices(1))
        left, right = (graph("Gather", knots, x) for x in (before, index))
        low, high = (graph("Gather", values, x) for x in (before, index))
        width = graph("Sub", right, left)
        width = graph("Where", graph("Greater", width, _ZERO), width, np.float32(np.inf))
        share = graph("Div", graph("Sub", s, left), width)
        share = graph("Clip", share, _ZERO, _ONE)
        rest = graph("Sub", _ONE, share)
        between = graph("Add", graph("Mul", rest, low), graph("Mul", share, high))
        between = graph("Mul", between, np.float32(1.0 - SHARE))
        labels = graph("Add", between, graph("Mul", labels, np.float32(SHARE)))
    return str(graph("Where", lists.mask, labels, _ZERO))


def _search(graph: Graph, values: str, knots: np.ndarray) -> str:
    """One more than the number of knots up to each value, by a tree: a binary search."""
    nodes: list[Node] = []

    def grow(start: int, end: int) -> None:
        number, middle = len(nodes), (start + end) // 2
        if start == end:
            nodes.append(Node(0, 0.0, False, number, number, start + 1.0))
            return
        below = np.nextafter(knots[middle], np.float32(-np.inf))
        nodes.append(Node(0, below, False, number, number, 0.0))
        grow(start, middle)
        nodes[number] = nodes[number]._replace(left=number + 1, right=len(nodes))
        grow(middle + 1, end)

    grow(0, len(knots))
    rows = graph("Reshape", values, indices(-1, 1))
    columns = [np.array(column) for column in zip(*nodes, strict=True)]
    places = _forest(graph, rows, np.array([0]), *columns)
    return graph.cast(graph("Reshape", places, graph.lists(values)), tf.int64)


def _forest(
    graph: Graph,
    rows: str,
    roots: np.ndarray,
    feature: np.ndarray,
    threshold: np.ndarray,
    missing_left: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    value: np.ndarray,
) -> str:
    """The sum of trees, in the form of `BoostedTrees`, `[rows, 1]`."""
    numbers = np.arange(len(left))
    tree = np.searchsorted(roots, numbers, side="right") - 1
    is_leaf = left == numbers
    nodes = {
        "treeids": tree,
        "nodeids": numbers - roots[tree],
        "featureids": feature,
        "values": threshold.astype(np.float32),
        "missing_value_tracks_true": missing_left.astype(int),
        "truenodeids": np.where(is_leaf, 0, left - roots[tree]),
        "falsenodeids": np.where(is_leaf, 0, right - roots[tree]),
    }
    leaves = {
        "treeids": tree[is_leaf],
        "nodeids": nodes["nodeids"][is_leaf],
        "ids": 0 * tree[is_leaf],
        "weights": value[is_leaf].astype(np.float32),
    }
    return str(
        graph(
            "TreeEnsembleRegressor",
            rows,
            domain=TREES,
            n_targets=1,
            nodes_modes=["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf],
            **{f"nodes_{name}": column.tolist() for name, column in nodes.items()},
            **{f"target_{name}": column.tolist() for name, column in leaves.items()},
        )
    )


def _boosted_trees(graph: Graph, model: Any, x: str) -> str:
    rows = graph("Reshape", x, indices(-1, model.num_features))
    is_tiny = graph("LessOrEqual", graph("Abs", rows), np.float32(ZERO))
    rows = graph("Where", is_tiny, _ZERO, rows)
    names = ("roots", *Node._fields)
    columns = (array(getattr(model, name), None) for name in names)
    return str(graph("Reshape", _forest(graph, rows, *columns), graph.lists(x)))


def _two_tower(graph: Graph, model: Any, inputs: dict[str, str]) -> str:
    users, items = towers(graph, model, inputs)
    products = graph("MatMul", items, graph("Unsqueeze", users, indices(-1)))
    return str(graph("Squeeze", products, indices(-1)))


def towers(graph: Graph, model: Any, inputs: dict[str, str]) -> Iterator[str]:
    """The vectors of the users and of the items."""
    pairs = ((model.users, "user"), (model.items, "item"))
    return (graph.layer(layer, inputs[name]) for layer, name in pairs)


RULES: dict[type, Rule] = {
    models.BoostedTrees: _boosted_trees,
    models.Ensemble: _ensemble,
    models.ListScorer: _prepared_model,
    models.Perceptron: _perceptron,
    models.Preparation: features.preparation,
    models.Prepared: _prepared_model,
    models.Recalibrated: _recalibrated_model,
    models.Scorer: _prepared_model,
    models.TwoTower: _two_tower,
    models.WithinList: features.within_list,
}
