"""Targets of a softmax over the items of a list, made from its labels."""

import abc
import math
from collections.abc import Callable

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, ranking
from tfrank_sel.serialization import Frozen, register


class Targets(Frozen, abc.ABC):
    """A map from the labels of each list to the targets of its items.

    It is a value: two objects with the same parameters are equal. Its parameters are saved.
    """

    def largest_label(self, dtype: str) -> float:
        """Returns the largest label with finite targets in a dtype."""
        return math.inf

    @abc.abstractmethod
    def __call__(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Computes the target of each item, `[batch_size, list_size]`, 0 on padding."""


@register
class Shares(Targets):
    """Each item's share of the gains of its list; all 0 if no item has a gain.

    Args:
        gain: Maps labels to gains. With the gain of an NDCG, `exp(-loss)` is a lower bound of that
            NDCG, also for graded labels.

    Example:
        >>> y, mask = tf.constant([[1.0, 3.0]]), tf.constant([[True, True]])
        >>> losses.targets.Shares()(y, mask).numpy().tolist()
        [[0.25, 0.75]]
    """

    gain: Callable[[Tensor], Tensor] = ranking.linear_gain

    def __call__(self, labels: Tensor, mask: Tensor) -> Tensor:
        gains = ranking.relative_gains(self.gain, labels, mask)
        return xp.divide_no_nan(gains, xp.reduce_sum(gains, axis=-1, keepdims=True))


@register
class Gains(Targets):
    """Each item's gain: the loss of `Shares`, multiplied by the sum of the gains of the list.

    The sum is the weight of the list: lists with more or higher labels count more. This is the
    scale of tensorflow-ranking.

    Args:
        gain: Maps labels to gains.

    Example:
        >>> y, mask = tf.constant([[1.0, 3.0]]), tf.constant([[True, True]])
        >>> losses.targets.Gains()(y, mask).numpy().tolist()
        [[1.0, 3.0]]
    """

    gain: Callable[[Tensor], Tensor] = ranking.linear_gain

    def largest_label(self, dtype: str) -> float:
        return ranking.largest_label(self.gain, dtype)

    def __call__(self, labels: Tensor, mask: Tensor) -> Tensor:
        return xp.where(mask, self.gain(labels), 0.0)


@register
class Softmax(Targets):
    """The softmax of the labels; an item of label 0 also has a share.

    Args:
        temperature: Divides the labels; positive.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> y, mask = tf.constant([[2.0, 2.0, 0.0]]), tf.constant([[True, True, False]])
        >>> losses.targets.Softmax(temperature=0.5)(y, mask).numpy().tolist()
        [[0.5, 0.5, 0.0]]
    """

    temperature: Positive = 1.0

    def __call__(self, labels: Tensor, mask: Tensor) -> Tensor:
        return masking.softmax(labels / self.temperature, mask)


BY_SHARES = Shares()
