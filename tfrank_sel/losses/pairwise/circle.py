"""Circle loss: each similarity has a gradient in proportion to its distance from its optimum."""

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.label_ordered import LabelOrderedLoss
from tfrank_sel.ops import label_order, masking
from tfrank_sel.serialization import register


@register
class CircleLoss(LabelOrderedLoss):
    """Soft maximum over the pairs of a list, with each side scaled by its own distance.

    For each list of labels `y` in `y_true` and similarities in `y_pred`, clipped to `s` in [0, 1]:

    ```
    a_i  = max(0, 1 + margin - s_i) * (1 - margin - s_i)
    b_j  = max(0, s_j + margin) * (s_j - margin)
    loss = w * log(1 + sum_{y_i > y_j} exp(gamma * (a_i + b_j)))
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a pair of different labels. The gradient treats the first factors of
    `a` and `b` as constants, as the authors do: they set the speed of each side. So the gradient is
    not the derivative of the value, and outside [0, 1] it is 0.

    Args:
        gamma: Sharpness of the maximum; positive.
        margin: Distance from 1 and 0 that similarities may keep.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive.

    Inputs: as in `ListwiseLoss`, but scores are similarities in [0, 1].

    Example:
        >>> loss = losses.CircleLoss(gamma=4.0)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.75, 0.25, 0.5]])
        >>> round(float(loss(y_true, y_pred)), 4)  # both are where they should be: log(2)
        0.6931

    Reference:
        [Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization, 2020](
        https://arxiv.org/abs/2002.10857).
    """

    gamma: Positive = 64.0
    margin: float = 0.25

    def of_sorted(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Computes the soft maximum, in which the two sides of a pair are factors."""
        s, m = tf.clip_by_value(scores, 0.0, 1.0), self.margin
        above = self.gamma * tf.stop_gradient(tf.nn.relu(1.0 + m - s)) * (1.0 - m - s)
        below = self.gamma * tf.stop_gradient(tf.nn.relu(s + m)) * (s - m)
        x = above + label_order.log_sum_exp_below(below, labels, mask)
        has_pair = tf.cast(mask & (x > x.dtype.min), x.dtype)
        return masking.log1p_sum_exp(x, has_pair)
