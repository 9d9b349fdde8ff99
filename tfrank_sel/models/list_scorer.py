"""A scorer that sees an item beside the others of its list."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.models.scorer import check_layers, check_moments, standardised
from tfrank_sel.models.within_list import WithinList
from tfrank_sel.serialization import Configurable, register


@register
class ListScorer(Configurable, keras.Model):
    """Multilayer perceptron over the features of an item, and where they stand in its list.

    Features are compressed and standardised as in `Scorer`, `WithinList` appends the place of each
    among those of the list, and dense layers with ReLU follow, with a linear output. With
    `num_heads`, the items of a list then attend to one another, once:

    ```
    u      = hidden(within_list(standardised(x)))
    score  = linear(u + attention(u, u))
    ```

    The order of the items is irrelevant, and so is padding.

    Args:
        mean: Mean of each feature after compression, `num_features` of them; see `moments`.
        variance: Variance of each feature after compression.
        hidden_units: Widths of the hidden layers; at least one.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention, which must divide the last width; 0 for no attention.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: a dict of the features `[batch_size, list_size, num_features]`, under any name, and
    `mask` `[batch_size, list_size]`, True for an item, such as `data.batches(...,
    inputs=["features", "mask"])` gives; or the features alone, if there is no padding.

    Outputs: scores of shape `[batch_size, list_size]`, float32; those of padding mean nothing.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, `dropout` is out of range, or `num_heads` does not divide the last width.

    Example:
        >>> scorer = ListScorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> features = tf.random.stateless_normal([3, 5, 2], seed=[0, 0])
        >>> mask = tf.sequence_mask([5, 3, 0], 5)
        >>> tuple(scorer({"features": features, "mask": mask}).shape)
        (3, 5)

    Reference:
        Attention among the items of a list: [Pobrotyn et al., Context-Aware Learning to Rank with
        Self-Attention, 2020](https://arxiv.org/abs/2005.10084).
    """

    takes_mask = True

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[int] = (64, 32),
        dropout: float = 0.3,
        num_heads: int = 0,
        name: str = "list_scorer",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        check_moments(mean, variance)
        check_layers(hidden_units, dropout)
        if not hidden_units or num_heads < 0 or (num_heads and hidden_units[-1] % num_heads):
            raise ValueError(
                "`hidden_units` must not be empty, and `num_heads` divide its last or be 0. "
                f"Received: hidden_units={hidden_units}, num_heads={num_heads}"
            )
        self.mean = [float(value) for value in mean]
        self.variance = [float(value) for value in variance]
        self.hidden_units = [int(units) for units in hidden_units]
        self.dropout = dropout
        self.num_heads = num_heads
        self._within_list = WithinList(dtype="float32")
        self._hidden = [keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._drops = [keras.layers.Dropout(dropout) for _ in hidden_units]
        self._attention = None
        if num_heads:
            width = self.hidden_units[-1] // num_heads
            self._attention = keras.layers.MultiHeadAttention(num_heads, width, dropout=dropout)
        self._score = keras.layers.Dense(1, dtype="float32")

    def build(self, input_shape: Any) -> None:
        """Makes the weights, for the shapes of the inputs."""
        shape = features_shape(input_shape)
        if shape[-1] != len(self.mean):
            raise ValueError(
                f"Features must have shape [batch_size, list_size, {len(self.mean)}]. "
                f"Received: {tuple(shape)}"
            )
        widths = (3 * len(self.mean), *self.hidden_units)
        for layer, width in zip((*self._hidden, self._score), widths, strict=True):
            layer.build((None, None, width))
        if self._attention is not None:
            # called and not built: how to build one differs between Keras 2 and 3
            items = keras.Input((None, widths[-1]))
            self._attention(items, items)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        features, mask = features_and_mask(inputs)
        values = self._within_list(standardised(features, self.mean, self.variance), mask)
        for dense, drop in zip(self._hidden, self._drops, strict=True):
            values = drop(dense(values), training=training)
        if self._attention is not None:
            # a list without items attends to its padding, and not to nothing
            seen = mask | ~tf.reduce_any(mask, axis=1, keepdims=True)
            values += self._attention(
                values, values, attention_mask=seen[:, tf.newaxis], training=training
            )
        return self._score(values)[..., 0]

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the features' without its last axis."""
        shape = features_shape(input_shape)
        return tuple(shape[:-1])


def features_and_mask(inputs: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns features and mask of the inputs of a scorer of lists."""
    if isinstance(inputs, Mapping):
        return _features(inputs), tf.cast(inputs["mask"], tf.bool)
    if isinstance(inputs, tf.RaggedTensor):
        raise ValueError(
            "Features must be dense: pad them and give a mask, {'features': x.to_tensor(), 'mask': "
            f"tf.sequence_mask(x.row_lengths())}}. Received a ragged tensor: {inputs.shape}"
        )
    return inputs, tf.ones(tf.shape(inputs)[:2], tf.bool)


def features_shape(input_shape: Any) -> Any:
    """Returns the shape of the features, of the shapes of the inputs."""
    return _features(input_shape) if isinstance(input_shape, Mapping) else input_shape


def _features(inputs: Mapping[str, Any]) -> Any:
    names = [name for name in inputs if name != "mask"]
    if len(names) != 1 or len(inputs) != 2:
        raise ValueError(
            "Inputs must be the features alone, or a dict of the features and `mask`. "
            f"Received: {sorted(inputs)}"
        )
    return inputs[names[0]]
