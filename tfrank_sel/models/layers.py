"""Layers for losses: cosine classifier, soft top k, and correction of in-batch sampling."""

import math
from typing import Annotated, Any, Unpack

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import keras_versions
from tfrank_sel.arguments import Count, Positive, Range
from tfrank_sel.errors import received, refusal
from tfrank_sel.keras_versions import LayerOptions
from tfrank_sel.ops import soft_topk
from tfrank_sel.serialization import Configurable, register

_PRIME = 2**31 - 1


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

    def __init__(
        self, classes: Count, name: str | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.classes = classes

    def build(self, input_shape: Any) -> None:
        """Creates the class vectors, for `[..., num_features]`."""
        shape = (int(input_shape[-1]), self.classes)
        self.kernel = self.add_weight(
            shape=shape,
            initializer="glorot_uniform",
            name="kernel",
            **keras_versions.FULL_PRECISION,
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


@register
class SoftTopK(Configurable, keras.layers.Layer):
    """Soft membership of each item in the top `k` of its list.

    ```
    p_i = F((s_i - b) / temperature),  sum_i p_i = k
    ```

    where `F` is the distribution function of Laplace's distribution, and `b` the threshold for
    which the sum is `k`. As the temperature goes to 0, the `k` best items have 1 and the others 0.
    Multiply embeddings or losses of items by it to train what comes before the selection. It takes
    time and memory linear in the list size, and its gradient is exact.

    Args:
        k: Sum of the memberships; positive, not necessarily an integer.
        temperature: Divides the scores; positive.
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: scores `[batch_size, list_size]`, and a mask of that shape, True for the items; all are
    items without it. Keras' mask of the scores is the default. A score of `-inf` is padding, too.

    Outputs: memberships `[batch_size, list_size]`: in (0, 1), all 1 in a list of up to `k` items,
    and 0 at padding. They are float32, also under mixed precision, unless `dtype` is float64.

    Raises:
        ValueError: If `k` or `temperature` is not positive, or if scores or mask have another shape
            or are ragged.
        TypeError: If the scores are not numbers, or the mask is not Boolean.

    Example:
        >>> scores = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> mask = tf.constant([[True, True, True, False]])
        >>> print(SoftTopK(1.0)(scores, mask=mask).numpy().round(2))
        [[0.65 0.1  0.26 0.  ]]
        >>> print(SoftTopK(1.0, temperature=0.1)(scores, mask=mask).numpy().round(2))
        [[1. 0. 0. 0.]]

    Reference:
        [Struski et al., LapSum: One Method to Differentiate Them All, 2025](
        https://arxiv.org/abs/2503.06242).
    """

    def __init__(
        self,
        k: Positive,
        temperature: Positive = 1.0,
        name: str = "soft_top_k",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.k = k
        self.temperature = temperature
        self.supports_masking = True

    def call(self, scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the memberships."""
        for name, x in (("scores", scores), ("mask", mask)):
            if isinstance(x, tf.RaggedTensor):
                raise refusal(
                    f"`{name}` must be dense; pad with to_tensor() and pass a mask",
                    f"a ragged tensor of shape {x.shape}",
                )
        scores = tf.convert_to_tensor(scores)
        mask = tf.ones_like(scores, tf.bool) if mask is None else tf.convert_to_tensor(mask)
        if not (scores.dtype.is_floating or scores.dtype.is_integer) or mask.dtype != tf.bool:
            dtypes = f"scores.dtype={scores.dtype.name}, mask.dtype={mask.dtype.name}"
            raise TypeError(received("`scores` must be numbers and `mask` Boolean", dtypes))
        _check_shapes(scores.shape, mask.shape)
        # a function traced for several ranks has no static rank
        scores = tf.ensure_shape(scores, [None, None])
        scores = tf.cast(scores, "float64" if self.compute_dtype == "float64" else "float32")
        mask &= scores != -math.inf
        scores = tf.where(mask, scores, 0.0) / self.temperature
        return soft_topk.memberships(scores, self.k, mask)

    def compute_output_shape(self, scores_shape: Any) -> Any:
        """Returns the shape of the scores."""
        _check_shapes(scores_shape, scores_shape)
        return scores_shape


def _check_shapes(scores: Any, mask: Any) -> None:
    scores, mask = tf.TensorShape(scores), tf.TensorShape(mask)
    if not (scores.is_compatible_with([None, None]) and mask.is_compatible_with(scores)):
        raise refusal(
            "`scores` and `mask` must both have shape [batch_size, list_size]",
            f"scores.shape={scores}, mask.shape={mask}",
        )


@register
class LogQCorrection(Configurable, keras.layers.Layer):
    """logQ correction of in-batch similarities, with item frequencies estimated in training.

    For the similarities `S` of queries and items of a batch, in training, at step `t`:

    ```
    B[h(j)] = B[h(j)] + rate * ((t - A[h(j)]) / c_j - B[h(j)]),    A[h(j)] = t
    output  = S_ij - temperature * log q_j,                        q_j = 1 / max_h B[h(j)]
    ```

    for each item `j`, which occurs `c_j` times in the batch. `h` maps identities to buckets. `A`
    holds the last step of each bucket, and `B` the mean number of steps between occurrences, so
    that `q_j` estimates the number of occurrences of item `j` per batch. `rate` is `alpha`, but
    `1 / n` for the first occurrences `n < 1 / alpha` of a bucket, so that `B` begins as a mean;
    `c_j` occurrences in one batch count as `c_j`. In the paper `c_j = 1`, because its items are
    rarely twice in a batch. With several hash functions the largest `B` is used, because a
    collision can only make a bucket more frequent.

    Outside training the output is `S` and the estimates do not change: evaluation and serving are
    not corrected. The estimates are weights of the layer, which are saved with the model. Make this
    the last layer of the model, and compile with `InBatchInfoNCELoss(temperature)`. The loss is the
    same as with its argument `log_q`.

    Args:
        num_buckets: Length of `A` and `B`; positive. With at least as many buckets as items, the
            first hash function has no collisions.
        temperature: Temperature of the loss; positive.
        alpha: Update rate of the estimates, in (0, 1]. A small rate is accurate on a stationary
            stream; a large rate follows drift.
        num_hashes: Number of hash functions; positive. Use more than one if there are more items
            than buckets.
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: similarities `[batch_size, batch_size]`, and identities of the items: integers from 0
    to `2**31 - 2`, `[batch_size]` or `[batch_size, 1]`.

    Outputs: corrected similarities, `[batch_size, batch_size]`.

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> layer = LogQCorrection(num_buckets=2)
        >>> similarities = tf.zeros([1, 1])
        >>> for item in [0, 1, 0, 0]:  # three in four batches have item 0
        ...     output = layer(similarities, tf.constant([item]), training=True)
        >>> round(float(tf.exp(-output)[0, 0]), 2)  # gaps of 1, 2 and 1 steps
        0.75

    Reference:
        [Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations,
        2019](https://doi.org/10.1145/3298689.3346996), algorithms 2 and 3.
    """

    def __init__(
        self,
        num_buckets: Count,
        temperature: Positive = 1.0,
        alpha: Annotated[float, Range("in (0, 1]", gt=0.0, le=1.0)] = 0.01,
        num_hashes: Count = 1,
        name: str = "log_q_correction",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.num_buckets = num_buckets
        self.temperature = temperature
        self.alpha = alpha
        self.num_hashes = num_hashes

    def build(self, similarities_shape: Any, identities_shape: Any = None) -> None:
        """Creates the tables and the hash functions, of which the first is the identity."""

        def table(name: str, shape: list[int], dtype: str) -> Any:
            kept = {"initializer": "zeros", "trainable": False, **keras_versions.FULL_PRECISION}
            return self.add_weight(name=name, shape=shape, dtype=dtype, **kept)

        size = [self.num_hashes * self.num_buckets]
        self.step = table("step", [], "int32")
        self.last = table("last", size, "int32")
        self.visits = table("visits", size, "int32")
        self.gaps = table("gaps", size, "float32")
        factors = np.random.default_rng(0).integers(1, _PRIME, [self.num_hashes, 2])
        self._factors = np.concatenate([[[1, 0]], factors[1:]]).astype(np.int64)
        self.built = True

    def call(self, similarities: tf.Tensor, identities: tf.Tensor, training: Any = None) -> Any:
        """Returns the similarities, corrected in training."""
        if not training:
            return similarities
        places = self._places(tf.reshape(identities, [-1]))
        self._count(places)
        gap = tf.reduce_max(tf.gather(tf.convert_to_tensor(self.gaps), places), axis=0)
        # log q = -log gap
        return similarities + tf.cast(self.temperature * tf.math.log(gap), similarities.dtype)

    def compute_output_shape(self, similarities_shape: Any, identities_shape: Any = None) -> Any:
        """Returns the shape of the similarities."""
        return similarities_shape

    def _places(self, identities: tf.Tensor) -> tf.Tensor:
        """Returns the bucket of each identity in the concatenated tables of all hashes."""
        multiplier, offset = (tf.constant(x[:, np.newaxis]) for x in self._factors.T)
        hashed = (tf.cast(identities, tf.int64) * multiplier + offset) % _PRIME % self.num_buckets
        return hashed + self.num_buckets * tf.range(self.num_hashes, dtype=tf.int64)[:, tf.newaxis]

    def _count(self, places: tf.Tensor) -> None:
        """Updates the tables at the places."""
        step, indices = tf.convert_to_tensor(self.step) + 1, places[..., tf.newaxis]
        last, visits, gaps = (
            tf.gather(tf.convert_to_tensor(x), places) for x in (self.last, self.visits, self.gaps)
        )
        times = tf.tensor_scatter_nd_add(
            tf.zeros_like(tf.convert_to_tensor(self.visits)), indices, tf.ones_like(visits)
        )
        c = tf.gather(times, places)
        visits += c
        count = tf.cast(c, tf.float32)
        rate = tf.maximum(1.0 - (1.0 - self.alpha) ** count, count / tf.cast(visits, tf.float32))
        gaps += rate * (tf.cast(step - last, tf.float32) / count - gaps)
        for table, values in (
            (self.last, tf.fill(tf.shape(places), step)),
            (self.visits, visits),
            (self.gaps, gaps),
        ):
            # an item that occurs twice in the batch has the same values twice
            table.assign(tf.tensor_scatter_nd_update(tf.convert_to_tensor(table), indices, values))
        self.step.assign(step)
