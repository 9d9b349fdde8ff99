"""A scorer that looks at each item alone."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfrank_sel.serialization import Configurable, register


@register
class Scorer(Configurable, keras.Model):
    """Multilayer perceptron over the standardised features of an item.

    Each feature `x` is compressed and standardised,

    ```
    u = (sign(x) * log(1 + abs(x)) - mean) / sqrt(variance)
    ```

    (0 where the variance is 0), then dense layers with ReLU follow, and one linear output. The
    layers see the items of all lists as one matrix `[batch_size * list_size, num_features]`, which
    serves faster than the same layers over a third axis.

    Args:
        mean: Mean of each feature after compression, `num_features` of them.
        variance: Variance of each feature after compression.
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: features of shape `[batch_size, list_size, num_features]`.

    Outputs: scores of shape `[batch_size, list_size]`, float32.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, or `dropout` is out of range.

    Example:
        >>> scorer = Scorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> tuple(scorer(tf.zeros([3, 5, 2])).shape)
        (3, 5)
    """

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[int] = (128, 64, 32),
        dropout: float = 0.0,
        name: str = "scorer",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        check_moments(mean, variance)
        check_layers(hidden_units, dropout)
        self.mean = [float(value) for value in mean]
        self.variance = [float(value) for value in variance]
        self.hidden_units = [int(units) for units in hidden_units]
        self.dropout = dropout
        self._hidden = [keras.layers.Dense(units, activation="relu") for units in hidden_units]
        self._drops = [keras.layers.Dropout(dropout) for _ in hidden_units]
        # float32, so that scores keep their digits under mixed precision.
        self._score = keras.layers.Dense(1, dtype="float32")

    def build(self, input_shape: Any) -> None:
        """Makes the weights, for `[batch_size, list_size, num_features]`."""
        if input_shape[-1] != len(self.mean):
            raise ValueError(
                f"Features must have shape [batch_size, list_size, {len(self.mean)}]. "
                f"Received: {tuple(input_shape)}"
            )
        for layer, width in zip(
            (*self._hidden, self._score), (len(self.mean), *self.hidden_units), strict=True
        ):
            layer.build((None, width))
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the scores of the items."""
        values = tf.reshape(inputs, [-1, len(self.mean)])
        values = standardised(values, self.mean, self.variance)
        for dense, drop in zip(self._hidden, self._drops, strict=True):
            values = drop(dense(values), training=training)
        return tf.reshape(self._score(values), tf.shape(inputs)[:-1])

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores: the input's without its last axis."""
        return tuple(input_shape[:-1])


def standardised(
    features: tf.Tensor, mean: Sequence[float], variance: Sequence[float]
) -> tf.Tensor:
    """Compresses features to `sign(x) * log(1 + abs(x))` and standardises them, as float32."""
    values = tf.cast(features, tf.float32)
    values = tf.sign(values) * tf.math.log1p(tf.abs(values)) - tf.constant(mean)
    return tf.math.divide_no_nan(values, tf.sqrt(tf.constant(variance)))


def moments(
    features: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> tuple[list[float], list[float]]:
    """Returns the mean and variance with which `Scorer` and `ListScorer` standardise features.

    They are those of `sign(x) * log(1 + abs(x))` over the items, in float64. The variance is 0, and
    scorers leave the feature out, where float32 can hardly tell its values apart.

    Args:
        features: Features of items, `[..., num_features]`.
        mask: True for an item, False for padding, `[...]`; None if there is no padding.

    Raises:
        ValueError: If there is no item, or a feature of one is not finite.

    Example:
        >>> mean, variance = moments([[0.0, 3.0], [1.0, 3.0]])
        >>> [f"{value:.4f}" for value in (*mean, *variance)]
        ['0.3466', '1.3863', '0.1201', '0.0000']
    """
    values = np.asarray(features, np.float64)
    rows = (
        values.reshape([-1, values.shape[-1]]) if mask is None else values[np.asarray(mask, bool)]
    )
    if not rows.size or not np.isfinite(rows).all():
        raise ValueError(
            "`features` must hold an item, and be finite. "
            f"Received: {len(rows)} items, {int((~np.isfinite(rows)).sum())} values not finite"
        )
    values = compressed(rows)
    mean = values.mean(axis=0)
    return mean.tolist(), told_apart(mean, values.var(axis=0)).tolist()


def compressed(values: npt.ArrayLike) -> np.ndarray:
    """Compresses features to `sign(x) * log(1 + abs(x))`, outside of a model."""
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))


def told_apart(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Returns variances, 0 where float32, in which a model computes, hardly tells values apart.

    To divide by what is left of rounding would make noise of a constant.
    """
    return np.where(np.sqrt(variance) < 2.0**-20 * np.abs(mean), 0.0, variance)


def check_moments(mean: Sequence[float], variance: Sequence[float]) -> None:
    """Refuses moments that are not one a feature."""
    if len(mean) != len(variance) or not len(mean) or min(variance) < 0.0:
        raise ValueError(
            "`mean` and `variance` must have one value a feature, and no variance be negative. "
            f"Received: mean={mean}, variance={variance}"
        )


def check_layers(hidden_units: Sequence[int], dropout: float) -> None:
    """Refuses widths and shares that no network has."""
    if any(units < 1 for units in hidden_units) or not 0.0 <= dropout < 1.0:
        raise ValueError(
            "`hidden_units` must be positive and `dropout` in [0, 1). "
            f"Received: hidden_units={hidden_units}, dropout={dropout}"
        )
