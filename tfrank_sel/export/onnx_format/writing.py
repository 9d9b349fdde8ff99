"""A ranker as a graph of ONNX: its inputs, nodes and outputs."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import models, stack
from tfrank_sel.export.onnx_format import features, rankers, standard
from tfrank_sel.export.onnx_format.graph import Graph, Lists, indices, refusal
from tfrank_sel.export.signatures import PADDING_SCORE

_OF_LAYERS = (keras.Sequential, stack.FUNCTIONAL)
_IDS = {"user": [None], "item": [None, None]}


def serialized(model: keras.Model) -> bytes:
    """Returns the file of a ranker: see `tfrank_sel.export.onnx`."""
    graph = Graph({**standard.RULES, **rankers.RULES})
    mask = None
    if isinstance(model, models.TwoTower):
        ids = {name: graph.input(tf.TensorSpec(x, tf.int64), name) for name, x in _IDS.items()}
        values: Any = ids
        for name, vectors in zip(
            ("users", "items"), rankers.towers(graph, model, ids), strict=True
        ):
            graph.output(vectors, name)
    elif isinstance(model, _OF_LAYERS):
        if not model.built:
            raise refusal(model, "a model that is not built; call it once")
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
            values = Lists(values, mask)
    scores = graph.layer(model, values)
    shape = graph.shape(scores)
    if len(shape) == 3 and shape[2] == 1:
        scores = graph("Squeeze", scores, indices(-1))
    elif len(shape) != 2:
        raise ValueError(
            "`model` must give scores of shape [batch_size, list_size] or [batch_size, list_size, "
            f"1]. Received: {shape}"
        )
    if mask is not None:
        scores = graph("Where", mask, scores, np.float32(PADDING_SCORE))
    graph.output(scores, "scores")
    return graph.serialized()


def _features(graph: Graph, model: Any) -> Any:
    """Adds the inputs of a ranker: its packed features, or each of its typed ones."""
    inner, ends = model, (models.Preparation, models.BoostedTrees, models.Perceptron, *_OF_LAYERS)
    while not isinstance(inner, ends):
        parts = (getattr(inner, name, None) for name in ("preparation", "model", "members"))
        found = next((part for part in parts if part is not None), None)
        if found is None:
            graph.layer(inner)  # raises the error
        inner = found[0] if isinstance(found, list) else found
    if isinstance(inner, models.Preparation) and inner.features:
        return features.inputs(graph, inner._types)
    if isinstance(inner, models.Perceptron):
        layer = (*inner._hidden, inner._score)[0]
        count = layer.kernel.shape[0] - sum(size - n for n, _, size in inner.embeddings)
    else:
        of_layers = isinstance(inner, _OF_LAYERS)
        count = inner.input_shape[-1] if of_layers else inner.num_features
    return graph.input(tf.TensorSpec([None, None, count], tf.float32), "features")
