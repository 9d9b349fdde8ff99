"""Nodes of ONNX for the standard layers of Keras."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import keras_versions
from tfrank_sel.models import CosineClassifier, Dropout
from tfrank_sel.onnx.graph import TREES, Graph, Rule, indices, no_form

_ONE, _LOWEST = np.float32(1.0), np.float32(-3.4e38)


def array(weight: Any, kind: Any = np.float32) -> np.ndarray:
    """Returns a weight as a NumPy array."""
    return np.asarray(keras.ops.convert_to_numpy(weight), kind)


def _gelu(graph: Graph, x: str) -> str:
    error = graph("Erf", graph("Mul", x, np.float32(0.5**0.5)))
    half = graph("Mul", x, np.float32(0.5))
    return str(graph("Mul", half, graph("Add", error, _ONE)))


def _operator(kind: str, **attributes: Any) -> Any:
    return lambda graph, x: graph(kind, x, **attributes)


_ACTIVATIONS = {
    keras.activations.linear: lambda graph, x: x,
    keras.activations.relu: _operator("Relu"),
    keras.activations.relu6: lambda graph, x: graph("Clip", x, np.float32(0.0), np.float32(6.0)),
    keras.activations.leaky_relu: _operator("LeakyRelu", alpha=0.2),
    keras.activations.elu: _operator("Elu"),
    keras.activations.selu: _operator("Selu"),
    keras.activations.gelu: _gelu,
    keras.activations.silu: lambda graph, x: graph("Mul", x, graph("Sigmoid", x)),
    keras.activations.sigmoid: _operator("Sigmoid"),
    keras.activations.hard_sigmoid: _operator("HardSigmoid", alpha=1.0 / 6.0, beta=0.5),
    keras.activations.tanh: _operator("Tanh"),
    keras.activations.exponential: _operator("Exp"),
    keras.activations.softplus: _operator("Softplus"),
    keras.activations.softsign: _operator("Softsign"),
    keras.activations.softmax: _operator("Softmax", axis=-1),
    keras.activations.log_softmax: _operator("LogSoftmax", axis=-1),
}


def _activation(graph: Graph, layer: Any, x: str) -> str:
    if layer.activation not in _ACTIVATIONS:
        name = getattr(layer.activation, "__name__", layer.activation)
        raise no_form(layer, f"activation {name}")
    return str(_ACTIVATIONS[layer.activation](graph, x))


def _dense(graph: Graph, layer: Any, x: str) -> str:
    if getattr(layer, "quantization_mode", None):
        raise no_form(layer, f"quantization {layer.quantization_mode}")
    x = graph("MatMul", x, array(layer.kernel))
    return _activation(graph, layer, graph("Add", x, array(layer.bias)) if layer.use_bias else x)


def _relu(graph: Graph, layer: Any, x: str) -> str:
    if layer.threshold:
        raise no_form(layer, f"threshold {layer.threshold}")
    x = graph("LeakyRelu", x, alpha=float(layer.negative_slope or 0.0))
    return x if layer.max_value is None else graph("Min", x, np.float32(layer.max_value))


def _softmax(graph: Graph, layer: Any, x: str) -> str:
    if not isinstance(layer.axis, int):
        raise no_form(layer, f"several axes, {layer.axis}")
    return str(graph("Softmax", x, axis=layer.axis))


def _is_last(layer: Any) -> bool:
    axis = [layer.axis] if isinstance(layer.axis, int) else [*layer.axis]
    return axis in (
        [-1],
        [len(getattr(layer, "_build_shapes_dict", {}).get("input_shape", ())) - 1],
    )


def _batch_normalization(graph: Graph, layer: Any, x: str) -> str:
    if not _is_last(layer):
        raise no_form(layer, f"axis {layer.axis}; expected the last")
    scale = 1.0 / np.sqrt(array(layer.moving_variance, np.float64) + layer.epsilon)
    scale = scale * array(layer.gamma, np.float64) if layer.scale else scale
    shift = -array(layer.moving_mean, np.float64) * scale
    shift = shift + array(layer.beta, np.float64) if layer.center else shift
    return str(graph("Add", graph("Mul", x, np.float32(scale)), np.float32(shift)))


def _layer_normalization(graph: Graph, layer: Any, x: str) -> str:
    if not _is_last(layer) or getattr(layer, "rms_scaling", False):
        raise no_form(layer, f"axis {layer.axis} or rms_scaling; expected the last axis alone")
    gamma = array(layer.gamma) if layer.scale else _ONE
    x = graph("LayerNormalization", x, np.atleast_1d(gamma), axis=-1, epsilon=layer.epsilon)
    return str(graph("Add", x, array(layer.beta))) if layer.center else x


def _normalization(graph: Graph, layer: Any, x: str) -> str:
    if layer.invert:
        raise no_form(layer, "invert=True")
    deviation = np.maximum(np.sqrt(array(layer.variance)), np.float32(keras.config.epsilon()))
    return str(graph("Div", graph("Sub", x, array(layer.mean)), deviation))


def _rescale(graph: Graph, layer: Any, x: str) -> str:
    return str(graph("Add", graph("Mul", x, np.float32(layer.scale)), np.float32(layer.offset)))


def _merge_rule(kind: str) -> Any:
    def rule(graph: Graph, layer: Any, xs: Sequence[str]) -> str:
        return functools.reduce(lambda x, y: str(graph(kind, x, y)), xs)

    return rule


def _average(graph: Graph, layer: Any, xs: Sequence[str]) -> str:
    return str(graph("Div", _merge_rule("Add")(graph, layer, xs), np.float32(len(xs))))


def _pool_rule(kind: str) -> Any:
    def rule(graph: Graph, layer: Any, x: str) -> str:
        axis = 1 if layer.data_format == "channels_last" else 2
        return str(graph(kind, x, indices(axis), keepdims=int(layer.keepdims)))

    return rule


def _embedding(graph: Graph, layer: Any, x: str) -> str:
    """The vectors of integers."""
    if layer.mask_zero:
        raise no_form(layer, "mask_zero=True")
    return str(graph("Gather", array(layer.embeddings), graph.cast(x, tf.int64)))


def _lookup(graph: Graph, layer: Any, x: str) -> str:
    if layer.output_mode != "int" or layer.num_oov_indices != 1 or layer.invert:
        raise no_form(
            layer, "options other than output_mode='int', num_oov_indices=1, invert=False"
        )
    values = layer.get_vocabulary()
    return labels(graph, x, [*values], [*range(len(values))], 0 if layer.mask_token is None else 1)


def labels(graph: Graph, x: str, keys: Sequence[Any], values: Sequence[int], default: int) -> str:
    """The integer of each text or integer."""
    kind = "keys_int64s" if isinstance(keys[0], int | np.integer) else "keys_strings"
    options: dict[str, Any] = {kind: keys, "values_int64s": values, "default_int64": default}
    return str(graph("LabelEncoder", x, domain=TREES, **options))


def attention(
    graph: Graph, layer: Any, query: str, value: str, key: str | None = None,
    attention_mask: str | None = None,
) -> str:  # fmt: skip
    """Attention of several heads over the second axis."""
    if list(layer._attention_axes) != [1]:
        raise no_form(layer, f"attention axes {layer._attention_axes}; expected the second")
    parts = (("query", query), ("key", value if key is None else key), ("value", value))
    q, k, v = (
        graph("Transpose", _project(graph, getattr(layer, f"_{name}_dense"), x), perm=[0, 2, 1, 3])
        for name, x in parts
    )
    q = graph("Mul", q, np.float32(1.0 / np.sqrt(layer.key_dim)))
    logits = graph("MatMul", q, graph("Transpose", k, perm=[0, 1, 3, 2]))
    if attention_mask is not None:
        seen = graph("Unsqueeze", attention_mask, indices(1))
        logits = graph("Where", seen, logits, _LOWEST)
    attended = graph("MatMul", graph("Softmax", logits, axis=-1), v)
    attended = graph("Transpose", attended, perm=[0, 2, 1, 3])
    return _project(graph, layer._output_dense, attended)


def _project(graph: Graph, dense: Any, x: str) -> str:
    x = graph("Einsum", x, array(dense.kernel), equation=dense.equation)
    return graph("Add", x, array(dense.bias)) if dense.bias is not None else x


def _einsum_dense(graph: Graph, layer: Any, x: str) -> str:
    return _activation(graph, layer, _project(graph, layer, x))


def _cosines(graph: Graph, layer: Any, x: str) -> str:
    largest = graph("ReduceMax", graph("Abs", x), indices(-1), keepdims=1)
    x = graph("Div", x, graph("Where", graph("Greater", largest, _ONE * 0), largest, _ONE))
    square = graph("ReduceSumSquare", x, indices(-1), keepdims=1)
    x = graph(
        "Div", x, graph("Sqrt", graph("Where", graph("Greater", square, _ONE * 0), square, _ONE))
    )
    kernel = array(layer.kernel, np.float64)
    lengths = np.linalg.norm(kernel, axis=0)
    return str(graph("MatMul", x, np.float32(kernel / np.where(lengths > 0.0, lengths, 1.0))))


def _functional(graph: Graph, layer: Any, x: Any) -> Any:
    return keras_versions.through_layers(layer, x, graph.layer)


_layers = keras.layers
RULES: dict[type, Rule] = {
    keras.Sequential: _functional,
    keras_versions.FUNCTIONAL: _functional,
    CosineClassifier: _cosines,
    _layers.Activation: lambda graph, layer, x: _activation(graph, layer, x),
    _layers.Add: _merge_rule("Add"),
    _layers.Average: _average,
    _layers.BatchNormalization: _batch_normalization,
    _layers.Concatenate: lambda graph, layer, xs: graph("Concat", *xs, axis=layer.axis),
    _layers.Dense: _dense,
    _layers.EinsumDense: _einsum_dense,
    _layers.ELU: lambda graph, layer, x: graph("Elu", x, alpha=float(layer.alpha)),
    _layers.Embedding: _embedding,
    _layers.Flatten: lambda graph, layer, x: graph("Flatten", x, axis=1),
    _layers.GlobalAveragePooling1D: _pool_rule("ReduceMean"),
    _layers.GlobalMaxPooling1D: _pool_rule("ReduceMax"),
    _layers.IntegerLookup: _lookup,
    _layers.LayerNormalization: _layer_normalization,
    _layers.LeakyReLU: lambda graph, layer, x: graph(
        "LeakyRelu", x, alpha=float(layer.negative_slope)
    ),
    _layers.Maximum: _merge_rule("Max"),
    _layers.Minimum: _merge_rule("Min"),
    _layers.MultiHeadAttention: attention,
    _layers.Multiply: _merge_rule("Mul"),
    _layers.Normalization: _normalization,
    _layers.Permute: lambda graph, layer, x: graph("Transpose", x, perm=[0, *layer.dims]),
    _layers.ReLU: _relu,
    _layers.Rescaling: _rescale,
    _layers.Reshape: lambda graph, layer, x: graph("Reshape", x, indices(0, *layer.target_shape)),
    _layers.Softmax: _softmax,
    _layers.StringLookup: _lookup,
    _layers.Subtract: _merge_rule("Sub"),
    **dict.fromkeys(
        (
            Dropout,
            _layers.Dropout,
            _layers.GaussianDropout,
            _layers.GaussianNoise,
            _layers.Identity,
            _layers.SpatialDropout1D,
        ),
        lambda graph, layer, x: x,
    ),
}
