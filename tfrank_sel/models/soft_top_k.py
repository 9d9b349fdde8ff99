"""A layer that selects the top items of a list, with a gradient."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.ops import soft_topk
from tfrank_sel.serialization import Configurable, register


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
        self, k: float, temperature: float = 1.0, name: str = "soft_top_k", **kwargs: Any
    ) -> None:
        if not (k > 0.0 and temperature > 0.0):
            received = f"k={k}, temperature={temperature}"
            raise ValueError(f"`k` and `temperature` must be positive. Received: {received}")
        super().__init__(name=name, autocast=False, **kwargs)
        self.k = k
        self.temperature = temperature
        self.supports_masking = True

    def call(self, scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the memberships."""
        for name, x in (("scores", scores), ("mask", mask)):
            if isinstance(x, tf.RaggedTensor):
                raise ValueError(
                    f"`{name}` must be dense; pad with to_tensor() and pass a mask. Received: a "
                    f"ragged tensor of shape {x.shape}"
                )
        scores = tf.convert_to_tensor(scores)
        mask = tf.ones_like(scores, tf.bool) if mask is None else tf.convert_to_tensor(mask)
        if not (scores.dtype.is_floating or scores.dtype.is_integer) or mask.dtype != tf.bool:
            raise TypeError(
                "`scores` must be numbers and `mask` Boolean. "
                f"Received: scores.dtype={scores.dtype.name}, mask.dtype={mask.dtype.name}"
            )
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
        raise ValueError(
            "`scores` and `mask` must both have shape [batch_size, list_size]. "
            f"Received: scores.shape={scores}, mask.shape={mask}"
        )
