"""Parts of Keras and TensorFlow that differ between versions, or have no public name."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

import keras

from tfrank_sel import numerics
from tfrank_sel.errors import received

if keras.backend.backend() != numerics.NAME:
    raise ImportError(
        received(
            "tfrank_sel needs the TensorFlow backend of Keras: set KERAS_BACKEND=tensorflow in "
            "the environment before Keras is imported, or in ~/.keras/keras.json. Losses and "
            "metrics also run on jax",
            f"keras.backend.backend()={keras.backend.backend()!r}",
        )
    )

IS_KERAS_3 = not keras.__version__.startswith("2.")
MYPY = False  # mypy takes it for True

# Keras has no types that mypy reads. Of a class with an unread base it would take any argument.
if MYPY:

    class _Loss:
        """`keras.losses.Loss`."""

        name: str
        reduction: str | None
        dtype: str

        def __init__(self, name: str | None = None, reduction: str | None = None) -> None: ...
        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any: ...

    class _Metric:
        """`keras.metrics.Metric`."""

        name: str
        dtype: str
        variables: list[Any]

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any: ...
        def add_weight(self, *args: Any, **kwargs: Any) -> Any: ...
        def update_state(self, *args: Any, **kwargs: Any) -> Any: ...
        def reset_state(self) -> None: ...
        def result(self) -> Any: ...

    class _Mean(_Metric):
        """`keras.metrics.Mean`."""

    Loss = _Loss
    Metric = _Metric
    Mean = _Mean
else:
    from keras.losses import Loss as Loss
    from keras.metrics import Mean as Mean, Metric as Metric


class MetricOptions(TypedDict, total=False):
    """Arguments that a constructor passes on to `keras.metrics.Metric`."""

    name: str
    dtype: str


class LossOptions(MetricOptions, total=False):
    """Arguments that a constructor passes on to `keras.losses.Loss`."""

    reduction: str | None


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

    class _Keras2Loss(Loss):
        """Adds to the losses of Keras 2 the `dtype` of Keras 3."""

        def __init__(
            self,
            name: str | None = None,
            reduction: str | None = "sum_over_batch_size",
            dtype: str | None = None,
        ) -> None:
            super().__init__(name=name, reduction=reduction or "none")
            self.dtype = dtype or keras.backend.floatx()

        def call(self, y_true: Any, y_pred: Any) -> Any:
            """Computes the loss of each list; a subclass implements it."""
            raise NotImplementedError

    if not TYPE_CHECKING:
        Loss = _Keras2Loss
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
