"""Softmax losses over cosines, with a margin for the relevant classes."""

import abc
import math
from typing import Annotated

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0, Positive, Range
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class
from tfrank_sel.serialization import Frozen, register


class Margin(Frozen, abc.ABC):
    """A margin: a function that lowers the cosine of a relevant class.

    It is a value: two objects with the same parameters are equal. Its parameters are saved.
    """

    @abc.abstractmethod
    def __call__(self, cosines: Tensor) -> Tensor:
        """Lowers cosines, elementwise. Accepts cosines that exceed 1 by rounding."""


@register
class NormFace(Margin):
    """No margin: `cos(theta)`.

    Reference:
        [Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, 2017](
        https://arxiv.org/abs/1704.06369).
    """

    def __call__(self, cosines: Tensor) -> Tensor:
        return cosines


@register
class CosFace(Margin):
    """A margin of the cosine: `cos(theta) - margin`.

    Args:
        margin: At least 0.

    Raises:
        ValueError: If `margin` is negative.

    Reference:
        [Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, 2018](
        https://arxiv.org/abs/1801.09414).
    """

    margin: AtLeast0 = 0.35

    def __call__(self, cosines: Tensor) -> Tensor:
        return cosines - self.margin


@register
class ArcFace(Margin):
    """A margin of the angle: `cos(theta + margin)`.

    Beyond `theta + margin = pi` that would rise again: a class in the opposite direction would
    score higher than a class that is a little less opposite. There the margin falls back to
    `cos(theta) - margin * sin(margin)`, which continues to decrease.

    Args:
        margin: Radians, in [0, pi / 2].
        fall_back: Whether to fall back. If False, `exp(-loss)` is not a bound of any metric.

    Raises:
        ValueError: If `margin` is out of range.

    Reference:
        [Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, 2019](
        https://arxiv.org/abs/1801.07698).
    """

    margin: Annotated[float, Range("in [0, pi / 2]", ge=0.0, le=math.pi / 2)] = 0.5
    fall_back: bool = True

    def __call__(self, cosines: Tensor) -> Tensor:
        c, cos_m, sin_m = cosines, math.cos(self.margin), math.sin(self.margin)
        rotated = c * cos_m - _sine(c) * sin_m  # cos(theta + m), with no arccosine
        if not self.fall_back:
            return rotated
        return xp.where(c < -cos_m, c - self.margin * sin_m, rotated)


@register
class MarginSoftmaxLoss(ListwiseLoss):
    """Softmax cross-entropy over cosines, with a margin for the relevant classes.

    For each list of relevances `y` in `y_true` and cosines `c` in `y_pred`:

    ```
    x_i  = scale * (margin(c_i) if y_i > 0 else c_i)
    loss = -sum_i w_i * y_i / sum_j y_j * log softmax(x)_i
    ```

    It is 0 for a list without a relevant class. The margin lowers only the logits of relevant
    classes, so that `exp(-loss)` is still a lower bound of the reciprocal rank, and for binary
    relevances of the average precision and the NDCG. A `CosineClassifier` gives the cosines.

    Args:
        margin: `margin.NormFace()`, `margin.CosFace(m)` or `margin.ArcFace(m)`.
        scale: Multiplies the cosines; positive.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `scale` is not positive.

    Inputs: as in `ListwiseLoss`, or `y_true` holds the index of the one relevant class,
    `[batch_size]` or `[batch_size, 1]`; an index out of range means no relevant class.

    Example:
        >>> loss = losses.MarginSoftmaxLoss(losses.margin.CosFace(0.25), scale=4.0)
        >>> y_true = tf.constant([1])
        >>> y_pred = tf.constant([[0.5, 0.75]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference: those of the margins.
    """

    margin: Margin = NormFace()
    scale: Positive = 30.0

    takes_any_index = True
    has_class_form = True

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the cross-entropy of each class."""
        target = self.margin(one_class.scores_of(classes, scores))
        return one_class.cross_entropy(
            classes, self.scale * one_class.replace_scores(scores, classes, target)
        )

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the cross-entropy of each list."""
        x = self.scale * xp.where(labels > 0.0, self.margin(scores), scores)
        shares = xp.divide_no_nan(labels, xp.reduce_sum(labels, axis=-1, keepdims=True))
        return masking.cross_entropy(weights * shares, x, mask)


@xp.custom_gradient
def _sine(c: Tensor) -> tuple[Tensor, object]:
    """Computes the sine of the angle of a cosine, 0 beyond 1, with a bounded slope."""

    def gradient(upstream: Tensor) -> Tensor:
        # in this dtype, a sine below this has the same cosine as a sine of 0
        least = np.finfo(c.dtype.name).eps
        sine = xp.sqrt(xp.maximum((1.0 - c) * (1.0 + c), least))
        return -upstream * xp.where(xp.abs(c) <= 1.0, c / sine, 0.0)

    return xp.sqrt(xp.maximum((1.0 - c) * (1.0 + c), 0.0)), gradient
