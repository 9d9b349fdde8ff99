"""Settings of training, as JSON-ready values, and the size of shards."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tfrank_sel.arguments import Checked

SHARD_BYTES = 128 << 20  # of a file of records
TRUNCATIONS = ("random", "head", "top")


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    """How a model is trained; the same for ours and the baseline.

    Args:
        epochs: Largest number of epochs.
        patience: Epochs without a better validation NDCG@10 before training stops.
        batch_size: Lists in a batch.
        learning_rate: Step size of the optimizer, or where its schedule begins; positive.
        hidden_units: Widths of the hidden layers.
        dropout: Share of hidden units dropped, in [0, 1).
        averaging: Decay of the averaged weights, which the model is measured and served with.
        max_items: Number of items to keep of a longer list in training and validation; 0 for all.
        seed: Seed of weights, shuffling and dropout; at least 0.
        num_heads: Heads of the attention among the items of a list; 0 for no attention.
        truncation: Items to keep of a longer list: `"random"`, `"head"` for the first, or `"top"`
            for those of the highest labels.
        optimizer: Class of `keras.optimizers` and its arguments, such as `{"class": "AdamW",
            "weight_decay": 0.01}`, or a function of yours as `{"class": "my_package:my_optimizer"}`
            that takes `learning_rate`, `use_ema` and `ema_momentum`.
        schedule: Class of `keras.optimizers.schedules` and its arguments, which changes the
            learning rate with the step; None for a constant rate. `initial_learning_rate` is
            `learning_rate`, and `decay_steps` are all steps of `epochs`, unless it says otherwise.

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
    max_items: int = 0
    seed: int = 42
    num_heads: int = 0
    truncation: str = "random"
    optimizer: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"class": "Adam"})
    schedule: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {getattr(self, name)}")
        if not 0.0 <= self.averaging < 1.0 or min(self.seed, self.max_items) < 0:
            raise ValueError(
                "`averaging` must be in [0, 1), `seed` and `max_items` at least 0. Received: "
                f"averaging={self.averaging}, seed={self.seed}, max_items={self.max_items}"
            )
        if self.truncation not in TRUNCATIONS:
            raise ValueError(
                f"`truncation` must be one of {', '.join(TRUNCATIONS)}. "
                f"Received: {self.truncation!r}"
            )
