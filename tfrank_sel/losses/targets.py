"""What a softmax is trained towards: a distribution over the items of a list, from its labels."""

import abc
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.ops import masking, ranking
from tfrank_sel.serialization import Configurable, register


def check_temperature(temperature: float, name: str = "temperature") -> None:
    """Raises a `ValueError` unless the temperature of this name is positive."""
    if not temperature > 0.0:
        raise ValueError(f"`{name}` must be positive. Received: {name}={temperature}")


@dataclasses.dataclass(frozen=True)
class Targets(Configurable, abc.ABC):
    """A map from the labels of each list to a distribution over its items.

    It is a value: two with the same parameters are equal, and are saved by their parameters.
    """

    @abc.abstractmethod
    def __call__(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Computes the distribution of each list, `[batch_size, list_size]`, 0 on padding."""


@register
@dataclasses.dataclass(frozen=True)
class Shares(Targets):
    """Each item's share of the gains of its list; all 0 where no item has a gain.

    Args:
        gain: Maps labels to gains. With the gain of an NDCG, `exp(-loss)` bounds that NDCG from
            below, for graded labels, too.

    Example:
        >>> y, mask = tf.constant([[1.0, 3.0]]), tf.constant([[True, True]])
        >>> losses.targets.Shares()(y, mask).numpy().tolist()
        [[0.25, 0.75]]
    """

    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.linear_gain

    def __call__(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        gains = tf.where(mask, self.gain(labels), 0.0)
        return tf.math.divide_no_nan(gains, tf.reduce_sum(gains, axis=-1, keepdims=True))


@register
@dataclasses.dataclass(frozen=True)
class Softmax(Targets):
    """The softmax of the labels: an item of label 0 has a share, too.

    Args:
        temperature: Divides the labels; positive.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> y, mask = tf.constant([[2.0, 2.0, 0.0]]), tf.constant([[True, True, False]])
        >>> losses.targets.Softmax(temperature=0.5)(y, mask).numpy().tolist()
        [[0.5, 0.5, 0.0]]
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def __call__(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        return masking.softmax(labels / self.temperature, mask)
