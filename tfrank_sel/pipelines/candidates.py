"""Candidates: what is trained, a loss and a model, and how."""

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras

from tfrank_sel import losses, models
from tfrank_sel.arguments import Checked


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    """How a model is trained; the same for ours and the baseline.

    Args:
        epochs: Largest number of epochs.
        patience: Epochs without a better validation NDCG@10 before training stops.
        batch_size: Lists in a batch.
        learning_rate: Step size of Adam; positive.
        hidden_units: Widths of the hidden layers.
        dropout: Share of hidden units dropped, in [0, 1).
        averaging: Decay of the averaged weights, which the model is measured and served with.
        max_items: Of a longer list, so many items, chosen at random, are trained and stopped on; 0
            for all.
        seed: Seed of weights, shuffling and dropout; at least 0.

    Raises:
        ValueError: If a number is out of range.
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

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {getattr(self, name)}")
        if not 0.0 <= self.averaging < 1.0 or min(self.seed, self.max_items) < 0:
            raise ValueError(
                "`averaging` must be in [0, 1), `seed` and `max_items` at least 0. Received: "
                f"averaging={self.averaging}, seed={self.seed}, max_items={self.max_items}"
            )


def list_scorer(
    mean: Sequence[float], variance: Sequence[float], settings: Settings
) -> keras.Model:
    """Returns a `models.ListScorer`: the model that is trained by default.

    Args:
        mean: Mean of each feature after compression.
        variance: Variance of each feature after compression.
        settings: Widths of the hidden layers, and dropout.
    """
    return models.ListScorer(mean, variance, settings.hidden_units, settings.dropout)


@dataclasses.dataclass(frozen=True)
class Candidate(Checked):
    """A loss and a model to train with it.

    Args:
        loss: The loss of scores `[batch_size, list_size]`. Its labels are the grades; NaN is
            padding. Or several, of different names: a model is trained with each, from another
            seed, and the candidate is their `models.Ensemble`. By default `SoftmaxLoss`,
            `RGCrossLoss` and `LambdaLoss`.
        make_model: A function `(mean, variance, settings) -> keras.Model`, which makes the model,
            not compiled. The first two are those of each feature after compression, as
            `models.ListScorer` takes them. The model maps features `[batch_size, list_size,
            num_features]` to scores. If it has the attribute `takes_mask`, it gets a dict of
            `features` and `mask`, as in `export.export`. If it is a `models.Prepared`, such as
            `models.ListScorer`, lists are prepared once, and its network alone is trained.

    Raises:
        ValueError: If there is no loss, or two have the same name.

    Example:
        >>> candidate = Candidate(losses.LambdaLoss())
        >>> Candidate.from_config(candidate.get_config()).make_model.__name__
        'list_scorer'
    """

    loss: keras.losses.Loss | Sequence[keras.losses.Loss] = dataclasses.field(
        default_factory=lambda: (
            losses.SoftmaxLoss(),
            losses.RGCrossLoss(),
            losses.LambdaLoss(),
        )
    )
    make_model: Callable[[Sequence[float], Sequence[float], Settings], keras.Model] = list_scorer

    def __post_init__(self) -> None:
        names = [loss.name for loss in self.losses]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"`loss` must be one or several, of different names. Received: {names}"
            )

    @property
    def losses(self) -> Sequence[keras.losses.Loss]:
        """The losses, one or several."""
        return self.loss if isinstance(self.loss, Sequence) else [self.loss]

    def get_config(self) -> dict[str, Any]:
        """Returns the candidate as JSON-ready values, from which any machine can make it.

        Raises:
            ValueError: If Keras cannot find the loss, or Python cannot import `make_model`, by
                its name in a module.
        """
        make = self.make_model
        modules = sorted({type(loss).__module__ for loss in self.losses})
        try:
            config = {
                "losses": [keras.saving.serialize_keras_object(loss) for loss in self.losses],
                "modules": modules,
                "make_model": f"{make.__module__}:{make.__qualname__}",
            }
            found = self.from_config(config).make_model is make
        except (AttributeError, ImportError, TypeError, ValueError):
            found = False
        if not found or "__main__" in (*modules, make.__module__):
            raise ValueError(
                "a candidate for other machines must have losses that are registered with Keras "
                "and a `make_model` that is a function, all of modules that can be imported. "
                f"Received: {self}"
            )
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Makes the candidate that `get_config` described."""
        for module in config["modules"]:
            pkgutil.resolve_name(module)  # where a loss is registered
        found = [keras.saving.deserialize_keras_object(loss) for loss in config["losses"]]
        return cls(
            found if len(found) > 1 else found[0], pkgutil.resolve_name(config["make_model"])
        )
