"""Pointwise scorer, which scores each item independently."""

from collections.abc import Sequence
from typing import Any

from tfrank_sel.models.perceptron import Perceptron
from tfrank_sel.models.preparation import Preparation
from tfrank_sel.models.prepared import Prepared
from tfrank_sel.serialization import register


@register
class Scorer(Prepared):
    """Multilayer perceptron over the standardised features of an item.

    It combines a `Preparation` and a `Perceptron`.

    Args:
        mean: As in `Preparation`.
        variance: As in `Preparation`.
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Attributes:
        preparation: The layer that standardises the features.
        network: The model with the weights.

    Inputs: as in `Preparation`.

    Outputs: scores of shape `[batch_size, list_size]`, float32.

    Raises:
        ValueError: If `mean` and `variance` differ in length, a variance is negative, a width is
            not positive, or `dropout` is out of range.

    Example:
        >>> scorer = Scorer(mean=[0.0, 0.0], variance=[1.0, 1.0], hidden_units=[8])
        >>> tuple(scorer(tf.zeros([3, 5, 2])).shape)
        (3, 5)
    """

    takes_mask = False

    def __init__(
        self,
        mean: Sequence[float],
        variance: Sequence[float],
        hidden_units: Sequence[int] = (128, 64, 32),
        dropout: float = 0.0,
        name: str = "scorer",
        **kwargs: Any,
    ) -> None:
        preparation = Preparation(mean, variance)
        super().__init__(preparation, Perceptron(hidden_units, dropout), name, **kwargs)
        self.mean, self.variance = preparation.mean, preparation.variance
        self.hidden_units, self.dropout = self.network.hidden_units, dropout
