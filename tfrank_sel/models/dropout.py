"""Dropout with fast random numbers on every device."""

import keras
import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.serialization import register


@register
class Dropout(keras.layers.Dropout):
    """Keras' `Dropout`, with random numbers by Philox.

    Keras lets TensorFlow choose the generator. Compiled by XLA for a CPU, that one takes ten times
    as long, more than the rest of a small network. Under Keras 2 this is Keras' own layer.

    Args:
        rate: Share of the inputs dropped in training, in [0, 1].
        noise_shape: Shape of the binary dropout mask, as in `keras.layers.Dropout`.
        seed: Seed of the random numbers; random if None.
        **kwargs: As in `keras.layers.Dropout`.

    Inputs: of any shape.

    Outputs: the inputs; in training a share `rate` of them is 0, and the others are multiplied by
    `1 / (1 - rate)`.

    Example:
        >>> keras.utils.set_random_seed(1)
        >>> Dropout(0.5)(tf.ones([6]), training=True).numpy().tolist()
        [0.0, 2.0, 2.0, 0.0, 0.0, 0.0]
    """

    if stack.IS_KERAS_3:

        def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
            """Drops a share of the inputs in training."""
            if not training or self.rate in (0, 1):
                return super().call(inputs, training=training)
            seed = tf.cast(self.seed_generator.next(), tf.int64)
            return tf.nn.experimental.stateless_dropout(
                inputs, self.rate, seed, "philox", self.noise_shape
            )
