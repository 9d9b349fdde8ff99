"""MarginMSE: a student learns the differences between a teacher's scores."""

import math
from typing import Any

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.links.elementary import Identity
from tfrank_sel.losses.normalization import Normalizer
from tfrank_sel.losses.pairwise.base import PairwiseLoss
from tfrank_sel.serialization import register


@register
class MarginMSELoss(PairwiseLoss):
    """Squared error between the differences of a student's and of a teacher's scores.

    For each list of a teacher's scores `y` in `y_true` and a student's `s` in `y_pred`:

    ```
    loss = mean_{i != j} w_i * ((s_i - s_j) / temperature - (y_i - y_j))**2
    ```

    over all ordered pairs of items. The loss does not change if the same number is added to all
    scores of a list. It is `PairwiseMSELoss` for labels of any sign.

    Args:
        temperature: Divides the student's scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding.

    Example:
        >>> loss = losses.MarginMSELoss()
        >>> y_true = tf.constant([[-1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[4.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # (3 - 1)**2
        4.0

    Reference:
        [Hofstätter et al., Improving Efficient Neural Ranking Models with Cross-Architecture
        Knowledge Distillation, 2020](https://arxiv.org/abs/2010.02666), over all pairs of a list.
    """

    min_label = -math.inf
    takes_classes = False
    ordered = False

    def __init__(
        self,
        temperature: Positive = 1.0,
        normalizer: Normalizer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(None, temperature, normalizer, **kwargs)

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `(x - y)**2`."""
        return Identity(scale=2.0).potential(x - y)
