"""Settings of training and of the network, with their defaults, and the default losses."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

from tfrank_sel.arguments import Checked, Count, Natural, Positive, Rate

# classes; the baseline has the first, so that a run trains it once
LOSSES = ("RGCrossLoss",)
MANY = 10_000  # lists, of which an epoch has steps enough for an improvement


@dataclasses.dataclass(frozen=True)
class TrainingSettings(Checked):
    """Settings of training: the sections of a configuration describe each.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a number is out of range.
    """

    hidden_units: Sequence[Count] = (64, 32)
    dropout: Rate = 0.3
    num_heads: Natural = 0
    epochs: Count = 60
    patience: Count = 10
    batch_size: Count = 16
    learning_rate: Positive = 1e-3
    averaging: Rate = 0.98
    weight_decay: Rate = 0.03
    max_items: Natural = 0
    truncation: str = "random"
    seed: Natural = 42
    gain: str | float = "exponential"


DEFAULTS = TrainingSettings()
SettingsLike: TypeAlias = Any  # `TrainingSettings`, or a section of a configuration with its fields


def patience(settings: SettingsLike, lists: int) -> int:
    """Returns the number of epochs without improvement before training stops.

    It is that of the settings, or as many as have `MANY` lists for each of these epochs, if that
    is less; at least half of them.

    Example:
        >>> [patience(TrainingSettings(patience=10), lists) for lists in (500, 20_000, 10**6)]
        [10, 5, 5]
    """
    epochs: int = settings.patience
    return min(epochs, max(-(-epochs // 2), -(-epochs * MANY // lists)))
