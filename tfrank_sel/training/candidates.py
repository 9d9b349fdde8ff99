"""Candidates: a loss and a model to train."""

import dataclasses
import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import keras
from numpy.typing import ArrayLike

from tfrank_sel import losses, models, objectives
from tfrank_sel.arguments import Checked
from tfrank_sel.errors import refusal
from tfrank_sel.objectives.lists import check_labels
from tfrank_sel.training import has_lightgbm
from tfrank_sel.training.settings import LOSSES, SettingsLike
from tfrank_sel.training.trees import DEFAULTS, LAMBDARANK, MOST, name_of

BOOSTED = ("MeanSquaredLoss", "RGCrossLoss")
# losses of networks and of trees by the time of training, the best first, by
# `benchmarks.quality.ensembles`
EFFORTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "low": ((), BOOSTED),
    "default": (LOSSES, BOOSTED),
    "high": ((*LOSSES, "LambdaLoss", "SoftmaxLoss"), (*BOOSTED, LAMBDARANK)),
}


def list_scorer(
    preparation: models.Preparation, settings: SettingsLike, scale: float = 1.0, shift: float = 0.0
) -> keras.Model:
    """Returns a scorer that compares each item with the others of its list: the default model.

    Args:
        preparation: Layer that prepares the features.
        settings: Widths of the hidden layers, dropout and heads.
        scale: As in `models.Perceptron`.
        shift: As in `models.Perceptron`.
    """
    network = models.Perceptron(
        settings.hidden_units,
        settings.dropout,
        settings.num_heads,
        preparation.embeddings,
        scale,
        shift,
    )
    return models.Prepared(preparation, network, name="list_scorer")


def scorer(
    preparation: models.Preparation, settings: SettingsLike, scale: float = 1.0, shift: float = 0.0
) -> keras.Model:
    """Returns a scorer that scores each item independently.

    Args:
        preparation: Layer that prepares the features; used without `within_list`.
        settings: Widths of the hidden layers, and dropout.
        scale: As in `models.Perceptron`.
        shift: As in `models.Perceptron`.
    """
    alone = models.Preparation.from_config({**preparation.get_config(), "within_list": False})
    network = models.Perceptron(
        settings.hidden_units,
        settings.dropout,
        embeddings=alone.embeddings,
        scale=scale,
        shift=shift,
    )
    return models.Prepared(alone, network, name="scorer")


def default_losses(of_trees: bool = False, effort: str = "default") -> tuple[Any, ...]:
    """Returns the losses that are used unless others are named.

    Args:
        of_trees: Whether they are for trees, which may have LightGBM's own, `LAMBDARANK`.
        effort: A name of `EFFORTS`.
    """
    names = EFFORTS[effort][of_trees]
    return tuple(x if x == LAMBDARANK else getattr(losses, x)() for x in names)


def unique_names(names: Iterable[str]) -> list[str]:
    """Makes names unique.

    Example:
        >>> unique_names(["lambdarank", "rg_cross_loss", "lambdarank"])
        ['lambdarank', 'rg_cross_loss', 'lambdarank_2']
    """
    all_names = list(names)
    turns = [all_names[:place].count(name) + 1 for place, name in enumerate(all_names)]
    return [name + (f"_{x}" if x > 1 else "") for name, x in zip(all_names, turns, strict=True)]


def check_names(argument: str, losses: Sequence[keras.losses.Loss | str]) -> None:
    """Raises a `ValueError` if there is no loss, or two objects have the same name."""
    names = [loss.name for loss in losses if not isinstance(loss, str)]
    if not losses or len(set(names)) < len(names):
        raise refusal(f"`{argument}` must be one or several with unique names", names)


@dataclasses.dataclass(frozen=True)
class Trees(Checked):
    """Boosted trees of LightGBM, one model for each loss.

    Args:
        losses: Losses of this package with unique names, or `LAMBDARANK` for LightGBM's own
            objective, which may occur several times. By default those of `default_losses`.
        parameters: Parameters of LightGBM that differ from `DEFAULTS`.

    Raises:
        ImportError: If LightGBM is not installed.
        TypeError: If a loss is not of this package.
        ValueError: If there is no loss, two have the same name, or one cannot be an objective (see
            `objectives.Derivatives`); or if a parameter is not one of `DEFAULTS`, which LightGBM
            would ignore or prefer to its other name, or not a number.
    """

    losses: Sequence[keras.losses.Loss | str] = dataclasses.field(
        default_factory=functools.partial(default_losses, of_trees=True)
    )
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not has_lightgbm():
            raise ImportError("boosted trees need LightGBM: pip install 'tfrank_sel[lightgbm]'")
        check_names("losses", self.losses)
        for loss in self.losses:
            if not isinstance(loss, str):
                objectives.Derivatives(loss)
            elif loss != LAMBDARANK:
                raise refusal(f"losses must be objects, or {LAMBDARANK!r}", repr(loss))
        if unknown := sorted(self.parameters.keys() - DEFAULTS.keys()):
            accepted = ", ".join(DEFAULTS)
            raise refusal(f"parameters must be among {accepted}", unknown)
        values = {**DEFAULTS, **self.parameters}
        if not all(isinstance(x, (int, float)) for x in values.values()) or values[MOST] < 1:
            received = dict(self.parameters)
            raise refusal(f"parameters must be numbers, and {MOST} at least 1", received)

    @property
    def names(self) -> list[str]:
        """A name for the trees of each loss."""
        return [f"{name}_trees" for name in unique_names(map(name_of, self.losses))]

    def get_config(self) -> dict[str, Any]:
        """Returns the losses and parameters as JSON-ready values."""
        losses = [
            x if isinstance(x, str) else keras.saving.serialize_keras_object(x) for x in self.losses
        ]
        return {"losses": losses, "parameters": dict(self.parameters)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Creates trees from the result of `get_config`."""
        losses = [
            x if isinstance(x, str) else keras.saving.deserialize_keras_object(x)
            for x in config["losses"]
        ]
        return cls(losses, config["parameters"])


@dataclasses.dataclass(frozen=True)
class Candidate(Checked):
    """A loss and a model to train with it.

    Args:
        loss: The loss of scores `[batch_size, list_size]`. Its labels are the grades; NaN is
            padding. Or several losses with unique names: one model is trained with each, from
            different seeds, and the candidate is their `models.Ensemble`; or none, for `trees`
            alone. By default those of `default_losses`.
        make_model: A function `(preparation, settings, **arguments) -> keras.Model` that returns an
            uncompiled model, which maps features to scores. The `models.Preparation` converts
            features `[batch_size, list_size, num_features]` to inputs of a network. If the model
            has the attribute `takes_mask`, it gets a dict of `features` and `mask`, as in
            `export.export`. If it is a `models.Prepared`, as from `list_scorer`, lists are prepared
            once, and only its network is trained.
        arguments: Further arguments of `make_model`, JSON-ready.
        trees: Boosted trees to train together with the networks, on the same prepared features. The
            candidate is then the `models.Ensemble` of the networks and the trees, with equal
            weights, which is served without LightGBM.

    Raises:
        ValueError: If there is no loss, or two have the same name.

    Example:
        >>> candidate = Candidate(losses.LambdaLoss())
        >>> Candidate.from_config(candidate.get_config()).make_model.__name__
        'list_scorer'
    """

    loss: keras.losses.Loss | Sequence[keras.losses.Loss] = dataclasses.field(
        default_factory=default_losses
    )
    make_model: Callable[..., keras.Model] = list_scorer
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    trees: Trees | None = None

    def __post_init__(self) -> None:
        if self.losses or self.trees is None:
            check_names("loss", self.losses)

    @property
    def losses(self) -> Sequence[keras.losses.Loss]:
        """The losses, one or several."""
        return self.loss if isinstance(self.loss, Sequence) else [self.loss]

    @property
    def all_losses(self) -> Sequence[keras.losses.Loss | str]:
        """The losses of the networks, then those of the trees, or the name of LightGBM's own."""
        return [*self.losses, *(self.trees.losses if self.trees else ())]

    def check(self, labels: ArrayLike) -> None:
        """Checks that the losses can be computed for labels.

        Args:
            labels: Labels of items.

        Raises:
            ValueError: If a loss rejects them, takes one for padding, or is not finite for them.
        """
        for loss in self.all_losses:
            if not isinstance(loss, str):  # LightGBM's own is for any labels
                check_labels(loss, labels)

    def get_config(self) -> dict[str, Any]:
        """Returns the candidate as JSON-ready values, from which another machine can create it.

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
                "arguments": dict(self.arguments),
                "trees": self.trees and self.trees.get_config(),
            }
            is_importable = self.from_config(config).make_model is make
        except (AttributeError, ImportError, TypeError, ValueError):
            is_importable = False
        if not is_importable or "__main__" in (*modules, make.__module__):
            raise refusal(
                "a candidate for other machines must have losses that are registered with Keras "
                "and a `make_model` that is a function, all of modules that can be imported",
                self,
            )
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Creates a candidate from the result of `get_config`."""
        for module in config["modules"]:
            # The import registers the loss.
            pkgutil.resolve_name(module)
        losses = [keras.saving.deserialize_keras_object(loss) for loss in config["losses"]]
        return cls(
            losses[0] if len(losses) == 1 else losses,
            pkgutil.resolve_name(config["make_model"]),
            config["arguments"],
            config["trees"] and Trees.from_config(config["trees"]),
        )
