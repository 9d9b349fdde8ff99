"""What a scorer needs of features, and what does not depend on its weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfrank_sel.models.within_list import WithinList
from tfrank_sel.serialization import Configurable, register


@register
class Preparation(Configurable, keras.layers.Layer):
    """Compresses and standardises features, and appends where each stands within its list.

    Each feature `x` becomes

    ```
    u = (sign(x) * log(1 + abs(x)) - mean) / sqrt(variance)
    ```

    (0 where the variance is 0), and with `within_list`, `WithinList` of `u` follows. It has no
    weights: it can run once before training, and its results be kept. What it gives for a list does
    not depend on padding, nor on the other lists of the batch, to the last bit.

    Args:
        mean: Mean of each feature after compression, `num_features` of them; see `moments`.
        variance: Variance of each feature after compression.
        within_list: Whether to append the place of each feature within its list.
        name: Name of the layer.
        **kwargs: As in `keras.layers.Layer`.

    Inputs: features of shape `[batch_size, list_size, num_features]`; or a dict of these, under any
    name, and `mask` `[batch_size, list_size]`, True for an item.

    Outputs: prepared features `[batch_size, list_size, width]`, float32, where `width` is
    `num_features`, or thrice that with `within_list`; or a dict of `features` and `mask`.

    Raises:
        ValueError: If `mean` and `variance` differ in length, or a variance is negative.

    Example:
        >>> preparation = Preparation([0.0], [1.0], within_list=True)
        >>> tuple(preparation(tf.zeros([3, 5, 1])).shape)
        (3, 5, 3)
    """

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        within_list: bool = False,
        name: str = "preparation",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        if len(mean) != len(variance) or not len(mean) or min(variance) < 0.0:
            raise ValueError(
                "`mean` and `variance` must have one value a feature, and no variance be negative. "
                f"Received: mean={mean}, variance={variance}"
            )
        self.mean = [float(value) for value in mean]
        self.variance = [float(value) for value in variance]
        self.within_list = within_list
        self._places = WithinList() if within_list else None

    @property
    def width(self) -> int:
        """Number of prepared features."""
        return len(self.mean) * (3 if self.within_list else 1)

    def build(self, input_shape: Any) -> None:
        """Checks the number of features."""
        shape = features_shape(input_shape)
        if shape[-1] != len(self.mean):
            raise ValueError(
                f"Features must have shape [batch_size, list_size, {len(self.mean)}]. "
                f"Received: {tuple(shape)}"
            )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the prepared features, in a dict with their mask if the inputs are one."""
        features, mask = features_and_mask(inputs)
        # a logarithm of float32 depends on where in a tensor a number stands, one of float64 hardly
        x = tf.cast(features, tf.float64)
        x = tf.sign(x) * tf.math.log1p(tf.abs(x)) - tf.constant(self.mean, tf.float64)
        deviation = np.sqrt(np.asarray(self.variance))
        values = tf.cast(tf.math.divide_no_nan(x, deviation), tf.float32)
        if self._places is not None:
            values = self._places(values, mask)
        return {"features": values, "mask": mask} if isinstance(inputs, Mapping) else values

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the prepared features, in a dict if that of the inputs is one."""
        shape = (*features_shape(input_shape)[:-1], self.width)
        if isinstance(input_shape, Mapping):
            return {"features": shape, "mask": input_shape["mask"]}
        return shape


def moments(
    features: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> tuple[list[float], list[float]]:
    """Returns the mean and variance with which `Preparation` standardises features.

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
