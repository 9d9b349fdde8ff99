"""Parts of Keras and TensorFlow that differ between versions, or have no public name."""

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "tfrank_sel needs the TensorFlow backend of Keras: set KERAS_BACKEND=tensorflow in the "
        "environment before Keras is imported, or in ~/.keras/keras.json. "
        f"Received: keras.backend.backend()={keras.backend.backend()!r}"
    )

IS_KERAS_3 = not keras.__version__.startswith("2.")

if IS_KERAS_3:
    Loss: Any = keras.losses.Loss
    # for `Layer.add_weight`: a weight that keeps its dtype under mixed precision
    FULL_PRECISION = {"autocast": False}
else:

    class _Keras2Loss(keras.losses.Loss):
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

    Loss = _Keras2Loss
    FULL_PRECISION = {"experimental_autocast": False}


def is_compiled_by_xla() -> bool:
    """Whether the graph that is being built will be compiled by XLA as a whole."""
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)
