"""Perceptron: the network of the scorers, which has all their weights."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.models.dropout import Dropout
from tfrank_sel.models.preparation import features_and_mask, features_shape
from tfrank_sel.serialization import Configurable, register


@register
class Perceptron(Configurable, keras.Model):
    """Multilayer perceptron over the prepared features of an item.

    Dense layers with ReLU, and one linear output. With `num_heads`, there is one attention layer
    over the items of a list before the output:

    ```
    u      = hidden(x)
    score  = linear(u + attention(u, u))
    ```

    Args:
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention, which must divide the last width; 0 for no attention.
        embeddings: `[numbers, integers, size]` of each embedding: the number of columns among the
            last numbers of an item that are integers to look up, the number of integers, and the
            length of each vector. Several vectors are averaged, without those of 0.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: prepared features `[batch_size, list_size, width]`, alone or in a dict beside `mask`, as
    `Preparation` gives them.

    Outputs: scores of shape `[batch_size, list_size]`, float32; those of padding mean nothing.

    Raises:
        ValueError: If a width is not positive, `dropout` is out of range, or `num_heads` does not
            divide the last width.

    Example:
        >>> tuple(Perceptron([8])(tf.zeros([3, 5, 2])).shape)
        (3, 5)

    Reference:
        Attention among the items of a list: [Pobrotyn et al., Context-Aware Learning to Rank with
        Self-Attention, 2020](https://arxiv.org/abs/2005.10084).
    """

    takes_mask = True

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        dropout: float = 0.0,
        num_heads: int = 0,
        embeddings: Sequence[Sequence[int]] = (),
        name: str = "perceptron",
        **kwargs: Any,
    ) -> None:
        # float16 cannot represent the integers of embeddings; the layers cast their inputs
        super().__init__(name=name, autocast=False, **kwargs)
        if any(units < 1 for units in hidden_units) or not 0.0 <= dropout < 1.0:
            raise ValueError(
                "`hidden_units` must be positive and `dropout` in [0, 1). "
                f"Received: hidden_units={hidden_units}, dropout={dropout}"
            )
        if num_heads < 0 or (num_heads and (not hidden_units or hidden_units[-1] % num_heads)):
            raise ValueError(
                "`num_heads` must divide the last of `hidden_units` or be 0. "
                f"Received: hidden_units={hidden_units}, num_heads={num_heads}"
            )
        self.hidden_units = [int(units) for units in hidden_units]
        self.dropout = dropout
        self.num_heads = num_heads
        self.embeddings = [[int(number) for number in one] for one in embeddings]
        self._embeddings = [keras.layers.Embedding(ids, size) for _, ids, size in self.embeddings]
        self._hidden = [keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._drops = [Dropout(dropout) for _ in hidden_units]
        self._attention = None
        if num_heads:
            self._attention = keras.layers.MultiHeadAttention(
                num_heads, hidden_units[-1] // num_heads
            )
        # float32, so that scores keep their digits under mixed precision
        self._score = keras.layers.Dense(1, dtype="float32")

    def build(self, input_shape: Any) -> None:
        """Creates the weights, for the shapes of the inputs."""
        looked_up = sum(size - count for count, _, size in self.embeddings)
        widths = (features_shape(input_shape)[-1] + looked_up, *self.hidden_units)
        for embedding in self._embeddings:
            embedding.build(None)
        for layer, width in zip((*self._hidden, self._score), widths, strict=True):
            layer.build((None, width))
        if self._attention is not None:
            # called instead of built, because building differs between Keras 2 and 3
            items = keras.Input((None, widths[-1]))
            self._attention(items, items)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        features, mask = features_and_mask(inputs)
        # a single matrix of the items of all lists is faster than a third axis
        lists = tf.shape(features)[:-1]
        values = self._looked_up(tf.reshape(features, [-1, features.shape[-1]]))
        for dense, drop in zip(self._hidden, self._drops, strict=True):
            values = drop(dense(values), training=training)
        if self._attention is not None:
            u = tf.reshape(values, tf.concat([lists, [self.hidden_units[-1]]], axis=0))
            # a list without items attends to its padding, to avoid an empty softmax
            seen = mask | ~tf.reduce_any(mask, axis=1, keepdims=True)
            found = self._attention(u, u, attention_mask=seen[:, tf.newaxis])
            found = tf.reshape(found, tf.shape(values))
            values += self._drops[-1](found, training=training)
        return tf.reshape(self._score(values), lists)

    def _looked_up(self, values: tf.Tensor) -> tf.Tensor:
        """Replaces the integers of each item by their embeddings."""
        if not self.embeddings:
            return values
        counts = [count for count, _, _ in self.embeddings]
        numbers, *ids = tf.split(values, [values.shape[-1] - sum(counts), *counts], axis=-1)
        parts = [numbers]
        for embedding, found in zip(self._embeddings, ids, strict=True):
            vectors = embedding(tf.cast(found, tf.int32))
            if found.shape[-1] > 1:
                # a set without values has the vector of integer 0
                is_value = tf.cast(found > 0.0, vectors.dtype)[..., tf.newaxis]
                count = tf.reduce_sum(is_value, axis=1)
                mean = tf.math.divide_no_nan(tf.reduce_sum(vectors * is_value, axis=1), count)
                vectors = tf.where(count > 0.0, mean, vectors[:, 0])
            else:
                vectors = vectors[:, 0]
            parts.append(tf.cast(vectors, values.dtype))
        return tf.concat(parts, axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the shape of the features without the last axis."""
        return tuple(features_shape(input_shape)[:-1])
