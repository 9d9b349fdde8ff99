"""Settings of training, as JSON-ready values, and the size of shards."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tfrank_sel.arguments import Checked

SHARD_BYTES = 128 << 20  # target size of a file of records
TRUNCATIONS = ("random", "head", "top")
GAINS = ("exponential", "linear")  # of `ops.ranking`, which needs TensorFlow


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    """Settings of training, the same for our model and the baseline.

    Args:
        epochs: Maximum number of epochs.
        patience: Number of epochs without a better validation NDCG@10 before early stopping.
        batch_size: Number of lists in a batch.
        learning_rate: Learning rate of the optimizer, or initial value of its schedule; positive.
        hidden_units: Widths of the hidden layers.
        dropout: Dropout rate of the hidden units, in [0, 1).
        averaging: Decay of the moving average of the weights, used in validation and serving.
        weight_decay: Share by which the weights decay in each pass over the lists, decoupled from
            the gradient as in AdamW, in [0, 1). So the same value suits small and large data. A
            `weight_decay` of `optimizer`, which is per step, takes precedence.
        max_items: Maximum number of items of a list in training and validation; 0 for all.
        seed: Seed of weights, shuffling and dropout; at least 0.
        num_heads: Number of attention heads over the items of a list; 0 for no attention.
        truncation: Items to keep of a longer list: `"random"`, `"head"` for the first, or `"top"`
            for those with the highest labels.
        optimizer: Class of `keras.optimizers` and its arguments, such as `{"class": "AdamW",
            "weight_decay": 0.01}`, or your own function as `{"class": "my_package:my_optimizer"}`
            that takes `learning_rate`, `use_ema` and `ema_momentum`.
        schedule: Class of `keras.optimizers.schedules` and its arguments; None for a constant
            learning rate. Defaults: `initial_learning_rate` is `learning_rate`, and `decay_steps`
            is the number of steps in `epochs`.
        gain: Gain of the labels in NDCG: `"exponential"`, or `"linear"` for labels that are
            amounts.

    Raises:
        ValueError: If a number is out of range, or there is no such truncation.
    """

    epochs: int = 60
    patience: int = 10
    batch_size: int = 16
    learning_rate: float = 1e-3
    hidden_units: Sequence[int] = (64, 32)
    dropout: float = 0.3
    averaging: float = 0.98
    weight_decay: float = 0.03
    max_items: int = 0
    seed: int = 42
    num_heads: int = 0
    truncation: str = "random"
    optimizer: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"class": "Adam"})
    schedule: Mapping[str, Any] | None = None
    gain: str = "exponential"

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {getattr(self, name)}")
        for name in ("averaging", "weight_decay"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"`{name}` must be in [0, 1). Received: {getattr(self, name)}")
        if min(self.seed, self.max_items) < 0:
            raise ValueError(
                "`seed` and `max_items` must be at least 0. "
                f"Received: seed={self.seed}, max_items={self.max_items}"
            )
        if self.gain not in GAINS:
            raise ValueError(f"`gain` must be one of {', '.join(GAINS)}. Received: {self.gain!r}")
        if self.truncation not in TRUNCATIONS:
            raise ValueError(
                f"`truncation` must be one of {', '.join(TRUNCATIONS)}. "
                f"Received: {self.truncation!r}"
            )
