"""A causal transformer over the items of a user, and the best items to follow."""

import math
from typing import Any, Unpack

import keras
import tensorflow as tf

from tfrank_sel import keras_versions
from tfrank_sel.arguments import Count, Rate
from tfrank_sel.errors import refusal
from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.models.scorers import Dropout
from tfrank_sel.ops import catalogue
from tfrank_sel.serialization import Configurable, register


@register
class SequenceEncoder(Configurable, keras.Model):
    """Causal transformer that gives a state for each position of a sequence of items (SASRec).

    A state `p` depends on the item of its position and those before it. The logit of each item as
    the next one is its product with the item's vector, `p . q_i`: train by `losses.CatalogueLoss`.
    `compile` takes no ranking metrics, which would take the states for scores of items: measure
    what `best` returns.

    ```
    x      = sqrt(num_factors) * input[item] + position     # input = q, if tied
    x      = x + attention(norm(x))
    x      = x + linear(relu(linear(norm(x))))      # both num_blocks times
    output = norm(x)
    ```

    Positions count the items, not the padding: padding at the front, at the back or between items
    changes no state of an item.

    Args:
        num_items: Number of items, which are numbered from 1; 0 is padding.
        num_factors: Length of states and item vectors.
        num_blocks: Number of layers of attention.
        num_heads: Heads of an attention, which must divide `num_factors`.
        max_length: Maximum number of positions.
        dropout: Share of the units dropped in training, in [0, 1).
        tied: Whether the vectors of the items are those of the inputs, too. Otherwise the inputs
            have vectors of their own, which gradients train where `als.ItemSolver` solves those of
            the items.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: numbers of items, `[batch_size, length]`.

    Outputs: states, `[batch_size, length, num_factors]`, with a Keras mask; those of padding are 0.

    Attributes:
        items: The `keras.layers.Embedding` of the items, for `losses.CatalogueLoss`.
        items_of_inputs: That of the inputs, which is `items` if `tied`.

    Raises:
        ValueError: If an argument is out of range, or a sequence is longer than `max_length`. If
            only a graph that runs knows the length, a `tf.errors.InvalidArgumentError`, or under
            XLA, which raises no errors, states of NaN.

    Example:
        >>> encoder = SequenceEncoder(num_items=5, num_factors=8, max_length=4)
        >>> history = tf.constant([[0, 0, 3, 1]])
        >>> tuple(encoder(history).shape)
        (1, 4, 8)
        >>> best, scores = encoder.best(history, k=3)
        >>> sorted(best[0].numpy().tolist())  # 3 and 1 were taken
        [2, 4, 5]

    Reference:
        [Kang and McAuley, Self-Attentive Sequential Recommendation, 2018](
        https://arxiv.org/abs/1808.09781).
    """

    def __init__(
        self,
        num_items: Count,
        num_factors: Count,
        *,
        num_blocks: Count = 2,
        num_heads: Count = 1,
        max_length: Count = 50,
        dropout: Rate = 0.2,
        tied: bool = True,
        name: str = "sequence_encoder",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        if num_factors % num_heads:
            raise refusal(
                "`num_heads` must divide `num_factors`",
                num_factors=num_factors,
                num_heads=num_heads,
            )
        self.num_items = num_items
        self.num_factors = num_factors
        self.num_blocks = num_blocks
        self.num_heads = num_heads
        self.max_length = max_length
        self.dropout = dropout
        self.tied = tied
        self.supports_masking = True
        layers, each = keras.layers, range(num_blocks)
        size, dtype = num_factors, self.dtype_policy
        self.items = layers.Embedding(num_items + 1, size, mask_zero=True, dtype=dtype)
        self.items_of_inputs = (
            self.items if tied else layers.Embedding(num_items + 1, size, dtype=dtype)
        )
        self.positions = layers.Embedding(max_length, size, dtype=dtype)
        self.norms = [layers.LayerNormalization(dtype=dtype) for _ in range(2 * num_blocks)]
        self.last_norm = layers.LayerNormalization(dtype=dtype)
        self.attentions = [
            layers.MultiHeadAttention(num_heads, size // num_heads, dropout=dropout, dtype=dtype)
            for _ in each
        ]
        self.hidden = [layers.Dense(size, "relu", dtype=dtype) for _ in each]
        self.linear = [layers.Dense(size, dtype=dtype) for _ in each]
        self.drop = Dropout(dropout, dtype=dtype)
        # before the first call: a loss takes the vectors of the items
        self.build([None, max_length])

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """As in `keras.Model`, without metrics of `tfrank_sel.metrics`."""
        for metric in tf.nest.flatten([args, kwargs]):
            if isinstance(metric, ListwiseMetric):
                rule = "must not rank: they get states, not scores. Measure what `best` returns"
                raise refusal(f"`metrics` {rule}", metric.name)
        super().compile(*args, **kwargs)

    def build(self, input_shape: Any) -> None:
        """Creates the weights, for `[batch_size, length]`."""
        self.built = True
        for layer in (self.items, self.items_of_inputs, self.positions):
            if not layer.built:
                layer.build(None)
        if not keras_versions.IS_KERAS_3:  # where attention is built by a call only
            self(tf.zeros([1, self.max_length], tf.int32))
            return
        states = (None, None, self.num_factors)
        for layer in self.attentions:
            layer.build(states, states)
        for layer in (*self.norms, self.last_norm, *self.hidden, *self.linear):
            layer.build(states)

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the state of each position."""
        expected = f"sequences must have at most `max_length` = {self.max_length} positions"
        if (inputs.shape[1] or 0) > self.max_length:
            raise refusal(expected, f"shape {inputs.shape}")
        if inputs.shape[1] is None:  # a GPU would take zeros for the positions beyond
            tf.debugging.assert_less_equal(tf.shape(inputs)[1], self.max_length, expected)
        mask = self.compute_mask(inputs)
        places = tf.cumsum(tf.cast(mask, tf.int32), axis=1, exclusive=True)
        states = math.sqrt(self.num_factors) * self.items_of_inputs(inputs) + self.positions(places)
        if inputs.shape[1] is None:  # XLA omits the assertion, and takes the last position for all
            states = tf.where(tf.shape(inputs)[1] <= self.max_length, states, math.nan)
        states = self.drop(states, training=training)
        norms = self.norms[::2], self.norms[1::2]
        blocks = zip(*norms, self.attentions, self.hidden, self.linear, strict=True)
        for before, between, attention, hidden, linear in blocks:
            normed = before(states)
            attended = attention(
                normed,
                normed,
                attention_mask=mask[:, tf.newaxis],
                use_causal_mask=True,
                training=training,
            )
            states += self.drop(attended, training=training)
            states += self.drop(linear(hidden(between(states))), training=training)
        return tf.where(mask[..., tf.newaxis], self.last_norm(states), 0.0)

    def compute_mask(self, inputs: tf.Tensor, previous_mask: Any = None) -> tf.Tensor:
        """Returns where there is an item."""
        return tf.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the states."""
        return (*input_shape, self.num_factors)

    def best(self, histories: Any, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the items that are most likely to come next, without those of the history.

        The logits of a part of the catalogue at a time are in memory.

        Args:
            histories: Numbers of items, `[batch_size, length]`, dense or ragged, 0 for padding. The
                last `max_length` items of each give the state, and all of them are left out.
                Without an item, all scores are 0.
            k: Number of items; positive.

        Returns:
            Numbers and scores, int32 and float32 `[batch_size, k]`, in descending order of the
            scores. If fewer items are left, the others are 0, with the lowest finite float32.

        Raises:
            ValueError: If `k` is not positive.
        """
        if k < 1:
            raise refusal("`k` must be positive", k=k)
        if isinstance(histories, tf.RaggedTensor):
            histories = histories.to_tensor()
        # The extra position leaves no history empty.
        seen = tf.pad(tf.cast(histories, tf.int32), [[0, 0], [1, 0]])
        order = tf.argsort(tf.cast(seen > 0, tf.int32), axis=1, stable=True)
        recent = tf.gather(seen, order, batch_dims=1)[:, -self.max_length :]
        states = tf.cast(self(recent, training=False)[:, -1], tf.float32)
        return catalogue.best_unseen(states, self.items.embeddings, seen, k)
