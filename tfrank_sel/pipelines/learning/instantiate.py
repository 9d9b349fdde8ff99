"""Objects that a configuration names: candidates, losses, trees, optimizers and schedules."""

import contextlib
import dataclasses
import importlib.util
import inspect
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np

from tfrank_sel import links, losses
from tfrank_sel.data import stores
from tfrank_sel.losses.choice import Design
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError
from tfrank_sel.pipelines.configuration.section import choices
from tfrank_sel.pipelines.configuration.training import Settings
from tfrank_sel.training import candidates, has_lightgbm
from tfrank_sel.training.candidates import Candidate, Trees
from tfrank_sel.training.networks import optimization
from tfrank_sel.training.trees import LAMBDARANK

Names: TypeAlias = Mapping[str, Callable[..., Any]]
MEANS = ("sum_over_batch_size", "mean")  # reductions to the mean over lists
MODELS = {"ListScorer": candidates.list_scorer, "Scorer": candidates.scorer}


def named_candidates(
    configuration: Configuration, labels: np.ndarray | None = None
) -> dict[str, Candidate]:
    """Returns the candidates to train: `baseline`, if there is one, and `ours`.

    Args:
        configuration: The configuration.
        labels: Labels of the training split, which losses and models of scores read; None before
            they are known.

    Raises:
        ConfigurationError: As in `candidate`; or if the labels have no region.
    """
    other = baseline(configuration, labels)
    ours = {"ours": candidate(configuration, labels)}
    return ours if other is None else {"baseline": other, **ours}


def candidate(configuration: Configuration, labels: np.ndarray | None = None) -> Candidate:
    """Returns the candidate to train, after importing the user's modules.

    Raises:
        ConfigurationError: If a loss, the model or the optimizer cannot be created, or boosted
            trees cannot be trained.
    """
    _import(configuration)
    with _placed(configuration):
        optimizer(configuration.settings, steps=1)
    found = _candidate(configuration, configuration.training.loss, "training.loss", labels)
    return dataclasses.replace(found, trees=_trees(configuration))


def baseline(configuration: Configuration, labels: np.ndarray | None = None) -> Candidate | None:
    """Returns the baseline to train, or None to compare with a random order.

    Raises:
        ConfigurationError: If its loss cannot be created.
    """
    table = configuration.evaluation.baseline
    if table is False:
        return None
    return _candidate(configuration, [table], "evaluation.baseline", labels)


@contextlib.contextmanager
def _placed(configuration: Configuration) -> Iterator[None]:
    """Adds the file or option that set the value to errors."""
    try:
        yield
    except ConfigurationError as error:
        raise configuration.error(error.key, error.reason) from error


def _candidate(
    configuration: Configuration,
    tables: Sequence[Mapping[str, Any]],
    key: str,
    labels: np.ndarray | None,
) -> Candidate:
    keys = [key] if len(tables) == 1 else [f"{key}[{number}]" for number in range(len(tables))]
    model, arguments = configuration.model, configuration.model.arguments
    with _placed(configuration):
        scores = _scores(configuration, labels)
        if scores is not None:
            of_unit = (1.0, 0.0) if labels is None else (float(labels.std()), float(labels.mean()))
            arguments = {**arguments, **dict(zip(("scale", "shift"), of_unit, strict=True))}
            if len(tables) > 1:
                reason = "must be one loss with `training.region`: an ensemble standardises scores"
                raise ConfigurationError(key, f"{reason}. Received: {len(tables)} losses")
        make_model = MODELS.get(model.class_)
        if make_model is None:
            make_model = imported(model.class_, "model.class")
            _check_signature(make_model, arguments, model.class_)
        found = [loss(table, x, scores) for table, x in zip(tables, keys, strict=True)]
        for one, x in zip(found, keys, strict=True):
            if configuration.training.workers > 1 and one.reduction not in MEANS:
                reason = f"must have the reduction {MEANS[0]} with more than 1 worker"
                raise ConfigurationError(x, f"{reason}. Received: {one.reduction!r}")
        try:
            return Candidate(found if len(found) > 1 else found[0], make_model, arguments)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{key}:", f"{error}") from error


def _scores(configuration: Configuration, labels: np.ndarray | None) -> Mapping[str, Any] | None:
    """The arguments of `losses.design` for labels that are scores, if they are; else None."""
    region, gain = configuration.training.region, configuration.settings.gain
    if region is None or labels is None:
        return None if region is None else {}
    known = np.unique(labels)
    if len(known) < 3:
        wanted = "is for labels that are scores, of more than two values; leave it out for clicks"
        received = ", ".join(f"{x:g}" for x in known)
        raise ConfigurationError("training.region", f"{wanted}. Received: labels {received}")
    if isinstance(gain, str):
        return {"scores": labels, "share": region}
    if not known[0] <= gain < known[-1]:
        wanted = f"must be from {known[0]:g} to below {known[-1]:g}, as labels of train are"
        raise ConfigurationError("evaluation.gain", f"{wanted}. Received: {gain:g}")
    return {"scores": labels, "share": region, "at": gain}


def _check_signature(make_model: Any, arguments: Mapping[str, Any], name: str) -> None:
    try:
        inspect.signature(make_model).bind(None, None, **arguments)
    except TypeError as error:
        wanted = ", ".join(["preparation", "settings", *arguments])
        reason = f"must name a function of ({wanted}). Received: {name!r}, {error}"
        raise ConfigurationError("model.class", reason) from error


def _trees(configuration: Configuration) -> Trees | None:
    table = configuration.model.trees
    if table == "auto":
        is_wanted = len(configuration.training.loss) > 1 and has_lightgbm()
        table = {"loss": [{"class": LAMBDARANK}]} if is_wanted else False
    if table is False:
        return None
    if configuration.training.region is not None:
        reason = "must be unset with `training.region`: an ensemble standardises scores"
        raise configuration.error("model.trees", f"{reason}. Received: {table}")
    parameters = {name: x for name, x in table.items() if name != "loss"}
    with _placed(configuration):
        try:
            if "loss" not in table:
                return Trees(parameters=parameters)
            return Trees([_loss_of_trees(x) for x in table["loss"]], parameters)
        except ConfigurationError:
            raise
        except (ImportError, TypeError, ValueError) as error:
            raise ConfigurationError("model.trees:", f"{error}") from error


def _loss_of_trees(table: Mapping[str, Any]) -> keras.losses.Loss | str:
    return LAMBDARANK if table == {"class": LAMBDARANK} else loss(table, "model.trees.loss")


def _import(configuration: Configuration) -> None:
    """Imports the user's files, each under its own name."""
    for file in map(stores.near, configuration.modules):
        name = Path(file).stem
        known = sys.modules.get(name)
        if known is not None and getattr(known, "__file__", None) == os.path.abspath(file):
            continue
        spec = importlib.util.spec_from_file_location(name, os.path.abspath(file))
        if known is not None or spec is None or spec.loader is None:
            wanted = "must be Python files whose names differ from those of other modules"
            raise configuration.error("modules", f"{wanted}. Received: {file!r}")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # any exception that the file raises
            del sys.modules[name]
            reason = f"must be files that can be imported. Received: {file!r}, {error!r}"
            raise configuration.error("modules", reason) from error


def loss(
    table: Mapping[str, Any], key: str = "training.loss", scores: Mapping[str, Any] | None = None
) -> keras.losses.Loss:
    """Creates the loss described by a table.

    Args:
        table: `class`, the name of a loss of `tfrank_sel.losses` or `module:function`, and its
            arguments. An argument may itself be such a table, also of a link, or a list of tables.
            The class `design` is that of `losses.design`.
        key: The key of the table, for errors.
        scores: What `losses.design` reads from labels that are scores; None if they are not.

    Raises:
        ConfigurationError: If there is no such class, it rejects an argument, or is not a loss; or
            if it does not match the scores.

    Example:
        >>> made = loss({"class": "SelectiveSoftmaxLoss",
        ...     "scaling": {"class": "Exp", "scale": 1.5}, "label_map": {"class": "gain"}})
        >>> made.scaling.scale
        1.5
    """
    if table.get("class") == "design":
        if scores is None:
            wanted = "needs labels that are scores: name their share that matters, training.region"
            raise ConfigurationError(key, f"{wanted}. Received: no region")
        named = {"name": "designed_loss", **table}
        designed: Design = _made(named, key, _ours(), Design, scores)
        return designed.loss
    found = _made(table, key, _ours(), keras.losses.Loss)
    if scores is not None:
        if getattr(found, "min_label", -math.inf) > -math.inf:
            wanted = "must match scores with `training.region`, as MeanSquaredLoss does"
            raise ConfigurationError(key, f"{wanted}. Received: {table['class']}")
    elif getattr(found, "label_map", found) is None:
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
    defaults = {**optimization(settings, steps), "learning_rate": rate}
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
