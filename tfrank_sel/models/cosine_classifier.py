"""Cosine classifier: the last layer of a network with a margin softmax loss."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.serialization import Configurable, register


@register
class CosineClassifier(Configurable, keras.layers.Layer):
    """Cosines of the angles between inputs and learned class vectors.

    For inputs `x` and the vector `w_j` of each class, both of any length:

    ```
    cos_j = x . w_j / (|x| * |w_j|)
    ```

    It is 0 if a vector is 0. `losses.MarginSoftmaxLoss` takes the cosines.

    Args:
        classes: Number of classes.
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: features of shape `[..., num_features]`.

    Outputs: cosines of shape `[..., classes]`, float32 also under mixed precision.

    Raises:
        ValueError: If `classes` is not positive.

    Example:
        >>> layer = CosineClassifier(classes=10)
        >>> tuple(layer(tf.ones([3, 4])).shape)
        (3, 10)
    """

    def __init__(self, classes: int, name: str | None = None, **kwargs: Any) -> None:
        if classes < 1:
            raise ValueError(f"`classes` must be positive. Received: classes={classes}")
        super().__init__(name=name, autocast=False, **kwargs)
        self.classes = classes

    def build(self, input_shape: Any) -> None:
        """Creates the class vectors, for `[..., num_features]`."""
        shape = (int(input_shape[-1]), self.classes)
        self.kernel = self.add_weight(
            shape=shape, initializer="glorot_uniform", name="kernel", **stack.FULL_PRECISION
        )
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the cosine of each class."""
        kernel = tf.convert_to_tensor(self.kernel)
        inputs = tf.cast(inputs, kernel.dtype)
        return tf.tensordot(_unit(inputs, axis=-1), _unit(kernel, axis=0), axes=1)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the cosines."""
        return (*input_shape[:-1], self.classes)


def _unit(x: tf.Tensor, axis: int) -> tf.Tensor:
    """Divides by the length, accurately for any length except 0."""
    # divides by the largest element first, so that no square leaves the range of the dtype
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(x), axis=axis, keepdims=True))
    x = tf.math.divide_no_nan(x, largest)
    square = tf.reduce_sum(tf.square(x), axis=axis, keepdims=True)
    return x * tf.math.rsqrt(tf.where(square > 0.0, square, 1.0))
