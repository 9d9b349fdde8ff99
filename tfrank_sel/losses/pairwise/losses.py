"""Pairwise losses, which depend on the score differences of pairs of items."""

from typing import Any

import tensorflow as tf

from tfrank_sel.arguments import OpenShare, Positive
from tfrank_sel.links.elementary import Identity, Sigmoid
from tfrank_sel.links.piecewise import PiecewiseLinear
from tfrank_sel.links.steps import Sign
from tfrank_sel.losses.lambdas import LambdaWeight, NDCGLambdaWeightV2
from tfrank_sel.losses.normalization import Normalizer
from tfrank_sel.losses.pairwise.base import PairwiseLoss
from tfrank_sel.serialization import register

LAMBDA_LOSS = NDCGLambdaWeightV2()


@register
class PairwiseLogisticLoss(PairwiseLoss):
    """Logistic loss of each pair, also known as RankNet.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * log(1 + exp(-(s_i - s_j) / temperature))
    ```

    The surrogate is the potential of the `Sigmoid` link.

    Args:
        lambda_weight: Weight of each pair: `lambdas.NDCGLambdaWeight(smooth_fraction=1.0)` makes
            this LambdaRank. All are equal if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseLogisticLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Burges et al., Learning to Rank using Gradient Descent, 2005](
        https://dl.acm.org/doi/10.1145/1102351.1102363).
    """

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `log(1 + exp(-x))`."""
        return Sigmoid().potential(-x)


@register
class LambdaLoss(PairwiseLoss):
    """LambdaLoss: logistic loss of each pair, weighted by the effect of the pair on the NDCG.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    G_i      = gain(y_i) / DCG@k(y, gain(y))
    loss     = sum_{y_i > y_j} w_i * lambda_ij * log(1 + exp(-(s_i - s_j) / temperature))
    lambda_ij = (G_i - G_j) * (D(t) - D(t + 1)), where t = abs(r_i - r_j)
    ```

    where `r` are the ranks by score and `D` is the discount; for the effect of `k`, and for other
    weights, see `losses.lambdas`. It is a `PairwiseLogisticLoss` with these weights.

    Args:
        lambda_weight: Weighs each pair.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.LambdaLoss(losses.lambdas.NDCGLambdaWeightV2(k=10))
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # (1 - 1 / log2(3)) * log(2)
        0.2558

    Reference:
        [Wang et al., The LambdaLoss Framework for Ranking Metric Optimization, 2018](
        https://research.google/pubs/pub47258/).
    """

    lambda_weight: LambdaWeight = LAMBDA_LOSS

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `log(1 + exp(-x))`."""
        return Sigmoid().potential(-x)


@register
class PairwiseHingeLoss(PairwiseLoss):
    """Hinge loss of each pair, also known as RankSVM.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * max(0, 1 - (s_i - s_j) / temperature)
    ```

    A pair on the margin has gradient 0.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseHingeLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.5, 9.0]])
        >>> float(loss(y_true, y_pred))
        1.5

    Reference:
        [Joachims, Optimizing Search Engines using Clickthrough Data, 2002](
        https://dl.acm.org/doi/10.1145/775047.775067).
    """

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `max(0, 1 - x)`."""
        return tf.nn.relu(1.0 - x)


@register
class PairwiseSoftZeroOneLoss(PairwiseLoss):
    """Smoothed share of pairs in the wrong order.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * sigmoid(-(s_i - s_j) / temperature)
    ```

    It is bounded, so it is not convex. As the temperature goes to 0, it becomes the share itself.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseSoftZeroOneLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> float(loss(y_true, y_pred))
        0.5

    Reference:
        [Wang et al., The LambdaLoss Framework for Ranking Metric Optimization, 2018](
        https://research.google/pubs/pub47258/).
    """

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `1 / (1 + exp(x))`."""
        return Sigmoid()(-x)


@register
class PairwiseMSELoss(PairwiseLoss):
    """Squared error between the score difference and the label difference of each pair.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{i != j} w_i * lambda_ij * ((s_i - s_j) / temperature - (y_i - y_j))**2
    ```

    over all ordered pairs of items, including pairs of equal labels.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseMSELoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[4.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # (3 - 1)**2
        4.0

    Reference:
        `tfr.keras.losses.PairwiseMSELoss` of [TensorFlow Ranking](
        https://github.com/tensorflow/ranking).
    """

    ordered = False

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes `(x - y)**2`."""
        return Identity(scale=2.0).potential(x - y)


@register
class PairwiseQuantileLoss(PairwiseLoss):
    """Quantile regression of the score difference of each pair.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    u_ij = (s_i - s_j) / temperature - (y_i - y_j)
    loss = mean_{y_i > y_j} w_i * lambda_ij * (tau * max(0, -u_ij) + (1 - tau) * max(0, u_ij))
    ```

    or, `squared`, with the squares of both maxima: then it is expectile regression.

    Args:
        tau: The quantile, between 0 and 1: the larger, the more a difference that is too small
            costs.
        squared: Whether errors are squared.
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `tau` is not between 0 and 1.

    Example:
        >>> loss = losses.PairwiseQuantileLoss(tau=0.75)
        >>> y_true = tf.constant([[3.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # 0.75 * 2
        1.5

    Reference:
        [Koenker and Bassett, Regression Quantiles, 1978](https://www.jstor.org/stable/1913643), of
        pairs, as in [Rax](https://github.com/google/rax).
    """

    def __init__(
        self,
        tau: OpenShare = 0.5,
        squared: bool = False,
        lambda_weight: LambdaWeight | None = None,
        temperature: Positive = 1.0,
        normalizer: Normalizer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(lambda_weight, temperature, normalizer, **kwargs)
        self.tau = tau
        self.squared = squared

    def surrogate(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Computes the tilted absolute or squared error between `x` and `y`."""
        u, tau = x - y, self.tau
        if not self.squared:
            return 0.5 * Sign().potential(u) + (0.5 - tau) * u
        slopes = {"slope_below": 2.0 * tau, "slope_above": 2.0 * (1.0 - tau)}
        return PiecewiseLinear(knots=[0.0], values=[0.0], **slopes).potential(u)
