"""Softmax cross-entropy for multi-label classification, with any number of true labels."""

from typing import Any

import tensorflow as tf

from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class ZLPRLoss(ListwiseLoss):
    """Softmax cross-entropy for multi-label classification (zero-bounded log-sum-exp, ZLPR).

    For each list of label probabilities `t` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = log(1 + sum_i w_i * t_i * exp(threshold - s_i))
         + log(1 + sum_i w_i * (1 - t_i) * exp(s_i - threshold))
    ```

    Hard labels, 0 and 1, push the scores of true labels above the threshold and all others below
    it. The gradient of each side sums to less than one, for any number of labels. For soft labels,
    the minimum is exactly at `sigmoid(2 * (s - threshold)) = t`, not at `sigmoid(s) = t`.

    Args:
        threshold: Score that separates true labels from false ones.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`, but labels are probabilities; a label above 1 counts as 1. An item
    of weight 2 counts like two equal items.

    Example:
        >>> loss = losses.ZLPRLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 2 * log(2)
        1.3863

    Reference:
        [Su et al., ZLPR: A Novel Loss for Multi-label Classification, 2022](
        https://arxiv.org/abs/2208.02955).
    """

    threshold: float = 0.0

    compares_items = False

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Adds the losses of the true labels and of the false ones."""
        t = tf.where(mask, tf.minimum(labels, 1.0), 0.0)
        return _zlpr(t, scores - self.threshold, tf.where(mask, weights, 0.0))

    def probabilities(self, y_pred: Any) -> tf.Tensor:
        """Converts scores to the probability of each label, `sigmoid(2 * (s - c))`.

        Args:
            y_pred: Scores `s`, of any shape; `c` is the threshold.

        Returns:
            The probabilities, of the shape of `y_pred`: above 1/2 where the score is above `c`.

        Example:
            >>> losses.ZLPRLoss(threshold=1.0).probabilities(tf.constant([1.0])).numpy().tolist()
            [0.5]
        """
        return tf.sigmoid(2.0 * (tf.convert_to_tensor(y_pred) - self.threshold))


def _zlpr(t: tf.Tensor, s: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes the loss, with a gradient that is also accurate near the optimum."""

    def value(s: tf.Tensor) -> tf.Tensor:
        held = masking.log1p_sum_exp(-s, weights * t)
        return held + masking.log1p_sum_exp(s, weights * (1.0 - t))

    @tf.custom_gradient
    def f(s: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(s)
                loss = value(s)
            far = tape.gradient(loss, s, upstream)
            is_near, near = _slope_near_optimum(t, s, weights)
            return tf.where(is_near, upstream[:, tf.newaxis] * near, far)

        return value(s), gradient

    return f(s)


def _slope_near_optimum(
    t: tf.Tensor, s: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the gradient of lists near their optimum, and a mask of these lists.

    With `d = 2 * s - logit(t)`, both terms of the gradient, and the sums `S` of either side, are
    multiples of each other:

    ```
    (1 - t_i) * exp(s_i) = t_i * exp(-s_i) * exp(d_i)
    log(1 + S_neg) = log(1 + S_pos) + log1p(sum_i t_i * exp(-s_i) * expm1(d_i) / (1 + S_pos))
    ```
    """
    counts = weights > 0.0
    soft = counts & (t > 0.0) & (t < 1.0)
    t = tf.where(soft, t, 0.5)
    d = 2.0 * s - (tf.math.log(t) - tf.math.log1p(-t))
    is_near = tf.reduce_all(tf.where(soft, tf.abs(d) < 1.0, ~counts), axis=-1, keepdims=True)
    use = soft & is_near
    s, d = tf.where(use, s, 0.0), tf.where(use, d, 0.0)
    positive = tf.where(use, weights * t * tf.exp(-s), 0.0)
    total = 1.0 + tf.reduce_sum(positive, axis=-1, keepdims=True)
    excess = tf.reduce_sum(positive * tf.math.expm1(d), axis=-1, keepdims=True)
    return is_near, positive / total * tf.math.expm1(d - tf.math.log1p(excess / total))
