"""A Keras model that computes its own loss from a batch."""

from typing import Any

import keras
import tensorflow as tf


class Model(keras.Model):
    """Model whose `compute_loss` takes a batch as the dataset gives it.

    `fit` and `evaluate` report the metrics of all layers, `loss`, `regularization_loss`, and their
    sum, `total_loss`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_jit = False  # lookups of texts and datasets of candidates have no XLA

    def compute_loss(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Returns the loss of a batch, a scalar; to be overridden.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `compute_loss`")

    def train_step(self, inputs: Any) -> dict[str, Any]:
        """Makes a step of the optimizer on a batch."""
        with tf.GradientTape() as tape:
            parts = self._parts(inputs, training=True)
        variables = self.trainable_variables
        gradients = tape.gradient(parts["total_loss"], variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self._logs(parts)

    def test_step(self, inputs: Any) -> dict[str, Any]:
        """Measures a batch."""
        return self._logs(self._parts(inputs, training=False))

    def _parts(self, inputs: Any, training: bool) -> dict[str, tf.Tensor]:
        loss = self.compute_loss(inputs, training=training)
        added = tf.add_n([tf.cast(x, loss.dtype) for x in self.losses] or [tf.zeros_like(loss)])
        return {"loss": loss, "regularization_loss": added, "total_loss": loss + added}

    def _logs(self, parts: dict[str, tf.Tensor]) -> dict[str, Any]:
        # Keras' own mean of losses, which is not updated, gives way to the loss
        return {**{m.name: m.result() for m in self.metrics}, **parts}
