"""logQ correction: a layer that corrects in-batch similarities for item frequencies."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.serialization import Configurable, register

_PRIME = 2**31 - 1


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
        num_buckets: int,
        temperature: float = 1.0,
        alpha: float = 0.01,
        num_hashes: int = 1,
        name: str = "log_q_correction",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if min(num_buckets, num_hashes) < 1 or not temperature > 0.0 or not 0.0 < alpha <= 1.0:
            raise ValueError(
                "`num_buckets`, `num_hashes` and `temperature` must be positive, and `alpha` in "
                f"(0, 1]. Received: num_buckets={num_buckets}, num_hashes={num_hashes}, "
                f"temperature={temperature}, alpha={alpha}"
            )
        self.num_buckets = num_buckets
        self.temperature = temperature
        self.alpha = alpha
        self.num_hashes = num_hashes

    def build(self, similarities_shape: Any, identities_shape: Any = None) -> None:
        """Creates the tables and the hash functions, of which the first is the identity."""

        def table(name: str, shape: list[int], dtype: str) -> Any:
            kept = {"initializer": "zeros", "trainable": False, **stack.FULL_PRECISION}
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
