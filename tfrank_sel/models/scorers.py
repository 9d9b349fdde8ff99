"""Networks that score the items of lists."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
import tensorflow as tf

from tfrank_sel import keras_versions
from tfrank_sel.arguments import Count, Natural, Positive, Rate, check_heads
from tfrank_sel.errors import refusal
from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.listwise import as_lists
from tfrank_sel.models.preparation import (
    Preparation,
    ScoresItems,
    features_and_mask,
    features_shape,
    inputs_of,
    standardise,
)
from tfrank_sel.serialization import Configurable, register


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

    if keras_versions.IS_KERAS_3:

        def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
            """Drops a share of the inputs in training."""
            if not training or self.rate in (0, 1):
                return super().call(inputs, training=training)
            seed, shape = tf.cast(self.seed_generator.next(), tf.int64), self.noise_shape
            if shape is not None:  # None for an axis of the inputs
                sizes = tf.unstack(tf.shape(inputs), len(shape))
                shape = [size if x is None else x for x, size in zip(shape, sizes, strict=True)]
            return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed, "philox", shape)


@register
class Perceptron(Configurable, ScoresItems, keras.Model):
    """Multilayer perceptron over the prepared features of an item.

    Dense layers with ReLU, and one linear output. With `num_heads`, there is one attention layer
    over the items of a list before the output:

    ```
    u      = hidden(x)
    score  = linear(u + attention(u, u))
    ```

    For labels such as seconds, the output is `scale * linear(u) + shift`, so that an optimizer need
    not learn their unit.

    Args:
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention, which must divide the last width; 0 for no attention.
        embeddings: `[numbers, integers, size]` of each embedding: the number of columns among the
            last numbers of an item that are integers to look up, the number of integers, and the
            length of each vector. Several vectors are averaged, without those of 0.
        scale: Factor of the linear output; positive.
        shift: Score of a linear output of 0.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: prepared features `[batch_size, list_size, width]`, alone or in a dict with `mask`, as
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
        hidden_units: Sequence[Count] = (64, 32),
        dropout: Rate = 0.0,
        num_heads: Natural = 0,
        embeddings: Sequence[Sequence[int]] = (),
        scale: Positive = 1.0,
        shift: float = 0.0,
        name: str = "perceptron",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        # float16 cannot represent the integers of embeddings; the layers cast their inputs
        super().__init__(name=name, autocast=False, **kwargs)
        check_heads(hidden_units, num_heads)
        self.hidden_units = [int(units) for units in hidden_units]
        self.dropout = dropout
        self.num_heads = num_heads
        self.embeddings = [[int(number) for number in embedding] for embedding in embeddings]
        self.scale, self.shift = scale, shift
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
            attended = self._attention(u, u, attention_mask=seen[:, tf.newaxis])
            attended = tf.reshape(attended, tf.shape(values))
            values += self._drops[-1](attended, training=training)
        return tf.reshape(self.scale * self._score(values) + self.shift, lists)

    def _looked_up(self, values: tf.Tensor) -> tf.Tensor:
        """Replaces the integers of each item by their embeddings."""
        if not self.embeddings:
            return values
        counts = [count for count, _, _ in self.embeddings]
        numbers, *ids = tf.split(values, [values.shape[-1] - sum(counts), *counts], axis=-1)
        parts = [numbers]
        for embedding, indices in zip(self._embeddings, ids, strict=True):
            vectors = embedding(tf.cast(indices, tf.int32))
            if indices.shape[-1] > 1:
                # a set without values has the vector of integer 0
                is_value = tf.cast(indices > 0.0, vectors.dtype)[..., tf.newaxis]
                count = tf.reduce_sum(is_value, axis=1)
                mean = tf.math.divide_no_nan(tf.reduce_sum(vectors * is_value, axis=1), count)
                vectors = tf.where(count > 0.0, mean, vectors[:, 0])
            else:
                vectors = vectors[:, 0]
            parts.append(tf.cast(vectors, values.dtype))
        return tf.concat(parts, axis=-1)


@register
class Prepared(Configurable, ScoresItems, keras.Model):
    """A preparation followed by a network, as one servable model.

    ```
    scores = network(preparation(inputs))
    ```

    You can train the network alone, on inputs that were prepared once. This model shares its
    weights and takes raw features.

    Args:
        preparation: A layer without weights, such as `Preparation`.
        network: The model that is trained, such as `Perceptron`. It gets the mask of the items only
            if it has the attribute `takes_mask`.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: those of the preparation.

    Outputs: those of the network.

    Example:
        >>> from tfrank_sel import models
        >>> model = Prepared(models.Preparation([0.0], [1.0]), models.Perceptron([8]))
        >>> tuple(model(tf.zeros([3, 5, 1])).shape)
        (3, 5)
    """

    takes_mask = True

    def __init__(
        self,
        preparation: keras.layers.Layer,
        network: keras.Model,
        name: str = "prepared",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.preparation = preparation
        self.network = network

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the network."""
        if not self.preparation.built:
            self.preparation.build(input_shape)
        if not self.network.built:
            self.network.build(self.preparation.compute_output_shape(input_shape))
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        prepared = inputs_of(self.network, self.preparation(inputs))
        return self.network(prepared, training=training)

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The layers, starting with those of a perceptron, as version 0.1 saved them."""
        inner = self.network.layers if isinstance(self.network, Perceptron) else []
        return [*inner, self.preparation, self.network]


@register
class Scorer(Prepared):
    """Multilayer perceptron over the standardised features of an item.

    It combines a `Preparation` and a `Perceptron`.

    Args:
        mean: As in `Preparation`.
        variance: As in `Preparation`.
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Attributes:
        preparation: The layer that standardises the features.
        network: The model with the weights.

    Inputs: as in `Preparation`.

    Outputs: scores of shape `[batch_size, list_size]`, float32.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, or `dropout` is out of range.

    Example:
        >>> scorer = Scorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> tuple(scorer(tf.zeros([3, 5, 2])).shape)
        (3, 5)
    """

    takes_mask = False

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[Count] = (128, 64, 32),
        dropout: Rate = 0.0,
        name: str = "scorer",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        preparation = Preparation(mean, variance)
        super().__init__(preparation, Perceptron(hidden_units, dropout), name, **kwargs)
        self.mean, self.variance = preparation.mean, preparation.variance
        self.hidden_units, self.dropout = self.network.hidden_units, dropout


@register
class ListScorer(Prepared):
    """Multilayer perceptron over the features of an item and their values relative to its list.

    It combines a `Preparation` with `within_list` and a `Perceptron`; with `num_heads`, the items
    of a list also attend to one another. Scores do not depend on the order of the items or on
    padding.

    To train faster, prepare the data once, and train the network alone. The scorer shares its
    weights and takes raw features:

    ```python
    prepared = batches.map(lambda inputs, labels: (scorer.preparation(inputs), labels)).cache()
    scorer.network.compile("adam", losses.RGCrossLoss())
    scorer.network.fit(prepared, epochs=20)
    ```

    Args:
        mean: As in `Preparation`.
        variance: As in `Preparation`.
        hidden_units: Widths of the hidden layers; at least one.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention, which must divide the last width; 0 for no attention.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Attributes:
        preparation: The layer that standardises and compares the features.
        network: The model with the weights.

    Inputs: a dict of the features `[batch_size, list_size, num_features]`, under any name, and
    `mask` `[batch_size, list_size]`, True for an item, as in the batches of
    `data.batches(..., inputs=["features", "mask"])`; or only the features, if there is no padding.

    Outputs: scores of shape `[batch_size, list_size]`, float32; ignore the scores of padding.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, `dropout` is out of range, or `num_heads` does not divide the last width.

    Example:
        >>> scorer = ListScorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> features = tf.random.stateless_normal([3, 5, 2], seed=[0, 0])
        >>> mask = tf.sequence_mask([5, 3, 0], 5)
        >>> tuple(scorer({"features": features, "mask": mask}).shape)
        (3, 5)
    """

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[Count] = (64, 32),
        dropout: Rate = 0.3,
        num_heads: Natural = 0,
        name: str = "list_scorer",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        if not hidden_units:
            raise refusal("`hidden_units` must not be empty", hidden_units)
        preparation = Preparation(mean, variance, within_list=True)
        network = Perceptron(hidden_units, dropout, num_heads)
        super().__init__(preparation, network, name, **kwargs)
        self.mean, self.variance = preparation.mean, preparation.variance
        self.hidden_units, self.dropout = network.hidden_units, dropout
        self.num_heads = num_heads


@register
class TwoTower(Configurable, keras.Model):
    """Embeddings of users and of items, whose inner product is the score.

    ```
    score(u, i) = p_u . q_i
    ```

    Args:
        num_users: Number of users.
        num_items: Number of items.
        num_factors: Length of the embeddings.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: a dict of integers, `user` `[batch_size]` and `item` `[batch_size, list_size]`.

    Outputs: scores of shape `[batch_size, list_size]`, float32.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> model = TwoTower(num_users=5, num_items=9, num_factors=4)
        >>> tuple(model({"user": tf.constant([1, 4]), "item": tf.zeros([2, 3], tf.int32)}).shape)
        (2, 3)
    """

    def __init__(
        self,
        num_users: Count,
        num_items: Count,
        num_factors: Count,
        name: str = "two_tower",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.num_users = int(num_users)
        self.num_items = int(num_items)
        self.num_factors = int(num_factors)
        self.users = keras.layers.Embedding(self.num_users, self.num_factors, name="users")
        self.items = keras.layers.Embedding(self.num_items, self.num_factors, name="items")

    def build(self, input_shape: Any = None) -> None:
        """Creates the embeddings."""
        self.users.build((None,))
        self.items.build((None, None))
        self.built = True

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the scores of the items."""
        users, items = self.users(inputs["user"]), self.items(inputs["item"])
        return tf.cast(tf.einsum("bk,blk->bl", users, items), tf.float32)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores, which is that of the items."""
        return tuple(input_shape["item"])


@register
class Ensemble(Configurable, ScoresItems, keras.Model):
    """Mean of the scores of several models, each standardised within the list.

    ```
    score_i = sum_m share_m * (s_mi - mean_j s_mj) / deviation_j s_mj
    ```

    Standardisation gives equal weight to models trained with different losses, whose scores differ
    in scale. Scores are then not comparable between lists. A member whose scores of a list differ
    by no more than rounding, as those of equal items do, adds 0. Train the members independently,
    for example with several seeds, so that their errors cancel.

    Args:
        members: The models, trained or not; each maps features to scores, and also takes a mask if
            it has the attribute `takes_mask`.
        shares: Relative weight of each member, positive; None for equal weights.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: as in `ListScorer`.

    Outputs: scores of shape `[batch_size, list_size]`, float32; 0 at padding.

    Raises:
        ValueError: If `members` is empty, or `shares` are not as many positive numbers.

    Example:
        >>> from tfrank_sel import models
        >>> scorers = [models.Scorer([0.0], [1.0], [4]) for _ in range(3)]
        >>> tuple(models.Ensemble(scorers)(tf.zeros([2, 5, 1])).shape)
        (2, 5)
    """

    takes_mask = True

    def __init__(
        self,
        members: Sequence[keras.Model],
        shares: Sequence[float] | None = None,
        name: str = "ensemble",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        # float16 cannot represent all features; the members cast what they take
        super().__init__(name=name, autocast=False, **kwargs)
        if not members:
            raise refusal("`members` must not be empty", members)
        if shares is not None and [share > 0.0 for share in shares] != [True] * len(members):
            raise refusal(
                f"`shares` must be a positive number for each of {len(members)} members", shares
            )
        self.members = list(members)
        self.shares = None if shares is None else list(shares)

    @property
    def factors(self) -> list[float]:
        """The factor of the scores of each member; the sum is 1."""
        shares = self.shares or [1.0] * len(self.members)
        return [share / sum(shares) for share in shares]

    def build(self, input_shape: Any) -> None:
        """Creates the weights of the members."""
        shape = features_shape(input_shape)
        for member in self.members:
            if not member.built:
                member.build(shape)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        features, mask = features_and_mask(inputs)
        both, total = {"features": features, "mask": mask}, tf.zeros_like(mask, tf.float64)
        for member, factor in zip(self.members, self.factors, strict=True):
            scores = as_lists(member(inputs_of(member, both), training=training))
            total += factor * standardise(scores, mask)
        return tf.cast(total, tf.float32)
