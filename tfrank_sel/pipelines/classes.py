"""Creation of losses, links, optimizers, schedules and models from their class names."""

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import keras

from tfrank_sel import links, losses
from tfrank_sel.pipelines.configuration.errors import ConfigurationError, choices
from tfrank_sel.pipelines.settings import Settings
from tfrank_sel.training import decay_per_step

Names: TypeAlias = Mapping[str, Callable[..., Any]]


def loss(table: Mapping[str, Any], key: str = "training.loss") -> keras.losses.Loss:
    """Creates the loss described by a table.

    Args:
        table: `class`, the name of a loss of `tfrank_sel.losses` or `module:function`, and its
            arguments. An argument may itself be such a table, also of a link, or a list of tables.
        key: The key of the table, for errors.

    Raises:
        ConfigurationError: If there is no such class, it rejects an argument, or is not a loss.

    Example:
        >>> made = loss({"class": "SelectiveSoftmaxLoss",
        ...     "scaling": {"class": "Exp", "scale": 1.5}, "label_map": {"class": "gain"}})
        >>> made.scaling.scale
        1.5
    """
    found = _made(table, key, _ours(), keras.losses.Loss)
    if getattr(found, "label_map", found) is None:
        raise ConfigurationError(
            key,
            f"must say by `label_map` which score stands for a grade: {table['class']} takes "
            'scores as labels. Accepted: a link, such as {class = "gain"} or, if the labels '
            'are scores, {class = "Identity"}. Received: no `label_map`',
        )
    return found


def optimizer(settings: Settings, steps: int) -> keras.optimizers.Optimizer:
    """Creates the optimizer of the settings, with decay and averaging of the weights.

    Args:
        settings: Optimizer, learning rate, schedule, decay and averaging.
        steps: Number of steps of an epoch.

    Raises:
        ConfigurationError: If there is no such class, or it rejects an argument.

    Example:
        >>> made = optimizer(Settings(schedule={"class": "CosineDecay"}), 100)
        >>> type(made).__name__, type(made._learning_rate).__name__
        ('Adam', 'CosineDecay')
    """
    kind = keras.optimizers.schedules.LearningRateSchedule
    rate: Any = settings.learning_rate
    if settings.schedule is not None:
        known = _classes(keras.optimizers.schedules, kind)
        defaults = {"initial_learning_rate": rate, "decay_steps": settings.epochs * steps}
        rate = _made(settings.schedule, "training.schedule", known, kind, defaults)
    kind = keras.optimizers.Optimizer
    defaults = {
        "learning_rate": rate,
        "weight_decay": decay_per_step(settings.weight_decay, settings.learning_rate, steps),
        "use_ema": True,
        "ema_momentum": settings.averaging,
    }
    known = _classes(keras.optimizers, kind)
    return _made(settings.optimizer, "training.optimizer", known, kind, defaults)


def imported(name: str, key: str) -> Callable[..., Any]:
    """Imports the function `module:function`.

    Raises:
        ConfigurationError: If there is no such function.
    """
    try:
        found = pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError) as error:
        wanted = "must name a function that can be imported, as `module:function`"
        raise ConfigurationError(key, f"{wanted}. Received: {name!r}, {error}") from error
    if not callable(found):
        raise ConfigurationError(key, f"must name a function. Received: {name!r}, {found!r}")
    return found


def _made(
    table: Mapping[str, Any],
    key: str,
    known: Names,
    kind: type,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Creates the object of a table, with the defaults that its signature accepts."""
    name = table.get("class")
    if not isinstance(name, str):
        raise ConfigurationError(key, f"must have a `class`, a string. Received: {dict(table)}")
    make = imported(name, key) if ":" in name else known.get(name)
    if make is None:
        of_kind = sorted(x for x, found in known.items() if _makes(found, kind))
        raise ConfigurationError(f"{key}.class", f"must be one of {choices(name, of_kind)}")
    arguments = {x: _argument(y, f"{key}.{x}", known) for x, y in table.items() if x != "class"}
    parameters = inspect.signature(make).parameters
    taken = {x: y for x, y in (defaults or {}).items() if x in parameters}
    try:
        found = make(**{**taken, **arguments})
    except (TypeError, ValueError) as error:
        accepted = ", ".join(x for x in parameters if x not in ("args", "kwargs"))
        reason = f"{name} cannot be made: {error}. Its arguments are: {accepted}"
        raise ConfigurationError(f"{key}:", reason) from error
    if not isinstance(found, kind):
        wanted = f"must be an object of {kind.__name__}"
        raise ConfigurationError(key, f"{wanted}. Received: {type(found).__name__} of {name!r}")
    return found


def _argument(value: Any, key: str, known: Names) -> Any:
    """Creates the value of an argument: a table with a `class`, or `module:function`."""
    if isinstance(value, Mapping) and "class" in value:
        return _made(value, key, known, object)
    if isinstance(value, list):
        return [_argument(item, f"{key}[{number}]", known) for number, item in enumerate(value)]
    if isinstance(value, str) and ":" in value:
        return imported(value, key)
    return value


def _ours() -> Names:
    """The public classes and functions for losses and their arguments, by name."""
    folders = (losses.lambdas, losses.margin, losses.targets, links.labels, links, losses)
    return {
        name: found
        for folder in folders
        for name, found in vars(folder).items()
        if not name.startswith("_")
        and getattr(found, "__module__", "").startswith("tfrank_sel")
        and not inspect.isabstract(found)
    }


def _classes(module: Any, kind: type) -> Names:
    return {x: y for x, y in vars(module).items() if _makes(y, kind) and y is not kind}


def _makes(made_by: Any, kind: type) -> bool:
    return inspect.isclass(made_by) and issubclass(made_by, kind)
