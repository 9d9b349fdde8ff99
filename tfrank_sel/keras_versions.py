"""Parts of Keras and TensorFlow that differ between versions, or have no public name."""

import functools
from collections.abc import Callable
from typing import Any, TypedDict

import keras

from tfrank_sel.keras_bases import check_backend

check_backend("tensorflow")

IS_KERAS_3 = not keras.__version__.startswith("2.")


class LayerOptions(TypedDict, total=False):
    """Arguments that a constructor passes on to `keras.layers.Layer`."""

    trainable: bool
    dtype: Any


if IS_KERAS_3:
    from keras.src.models.functional import Functional

    # The class of `keras.Model(inputs, outputs)` has no public name in all versions.
    FUNCTIONAL: Any = Functional
    # for `Layer.add_weight`: a weight that keeps its dtype under mixed precision
    FULL_PRECISION = {"autocast": False}
else:
    FUNCTIONAL = type(keras.Sequential()).__base__

    FULL_PRECISION = {"experimental_autocast": False}


def is_compiled_by_xla() -> bool:
    """Whether the graph that is being built will be compiled by XLA as a whole."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def through_layers(model: Any, inputs: Any, call: Callable[..., Any]) -> Any:
    """Runs a functional or sequential model, but calls a function in place of each layer.

    Args:
        model: The model, built.
        inputs: Its inputs, of any type.
        call: Takes a layer and its arguments, and returns its outputs.

    Returns:
        The outputs of the model.
    """
    model = getattr(model, "_functional", model)
    return model._run_through_graph(inputs, lambda layer: functools.partial(call, layer))
