"""Matching losses: the area between a link and its value at the label."""

import math
from typing import Any

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.losses.base import ListwiseLoss
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class MatchingLoss(ListwiseLoss):
    """Scalar matching loss of a link, averaged over the items of each list.

    For each list of observed scores `s` in `y_true` and predicted scores `z` in `y_pred`:

    ```
    loss = mean_i w_i * (H(z_i) - H(s_i) - (z_i - s_i) * h(s_i))
    ```

    where `h` is the link, `H` its potential, and the mean is over the valid items. Each term is the
    area between the link and its value at `s_i`: at least 0, convex in `z_i`, zero at `z_i = s_i`,
    with gradient `h(z_i) - h(s_i)`, so that the loss is sensitive where the link is steep.

    Args:
        link: The increasing function `h`. `Identity()` gives half the mean squared error.
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, NaN is padding.

    Example:
        >>> loss = losses.MatchingLoss(links.Identity())
        >>> y_true = tf.constant([[1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, -2.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # the mean of (3 - 1)**2 / 2 and 0
        1.0

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446).
    """

    min_label = -math.inf
    compares_items = False

    def __init__(self, link: Link, name: str = "matching_loss", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.link = link

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the divergence of each item."""
        return masking.masked_mean(weights * self.link.divergence(scores, labels), mask)
