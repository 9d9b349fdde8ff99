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
from tfrank_sel.errors import received
from tfrank_sel.losses.choice import Design, threshold
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
    import_modules(configuration)
    with _locate_errors(configuration):
        optimizer(configuration.settings, steps=1)
    made = _candidate(configuration, configuration.training.loss, "training.loss", labels)
    return dataclasses.replace(made, trees=_trees(configuration))


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
def _locate_errors(configuration: Configuration) -> Iterator[None]:
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
    with _locate_errors(configuration):
        scores = _scores(configuration, labels)
        if scores is not None:
            of_unit = (1.0, 0.0) if labels is None else (float(labels.std()), float(labels.mean()))
            arguments = {**arguments, **dict(zip(("scale", "shift"), of_unit, strict=True))}
            if len(tables) > 1:
                reason = "must be one loss with `training.region`: an ensemble standardises scores"
                raise ConfigurationError(key, received(reason, f"{len(tables)} losses"))
        make_model = MODELS.get(model.class_)
        if make_model is None:
            make_model = import_function(model.class_, "model.class")
            try:
                inspect.signature(make_model).bind(None, None, **arguments)
            except TypeError as error:
                parameters = ", ".join(["preparation", "settings", *arguments])
                reason = f"must name a function of ({parameters})"
                raise ConfigurationError(
                    "model.class", received(reason, f"{model.class_!r}, {error}")
                ) from error
        losses = [loss(table, x, scores) for table, x in zip(tables, keys, strict=True)]
        for made, x in zip(losses, keys, strict=True):
            if configuration.training.workers > 1 and made.reduction not in MEANS:
                reason = f"must have the reduction {MEANS[0]} with more than 1 worker"
                raise ConfigurationError(x, received(reason, repr(made.reduction)))
        try:
            return Candidate(losses if len(losses) > 1 else losses[0], make_model, arguments)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{key}:", f"{error}") from error


def _scores(configuration: Configuration, labels: np.ndarray | None) -> Mapping[str, Any] | None:
    """The arguments of `losses.design` for labels that are scores, if they are; else None."""
    region, gain = configuration.training.region, configuration.settings.gain
    if region is None or labels is None:
        return None if region is None else {}
    values = np.unique(labels)
    if len(values) < 3:
        reason = "is for labels that are scores, of more than two values; leave it out for clicks"
        few = ", ".join(f"{x:g}" for x in values)
        raise ConfigurationError("training.region", received(reason, f"labels {few}"))
    if isinstance(gain, str):
        return {"scores": labels, "share": region}
    if not values[0] <= gain < values[-1]:
        reason = f"must be from {values[0]:g} to below {values[-1]:g}, as labels of train are"
        raise ConfigurationError("evaluation.gain", received(reason, f"{gain:g}"))
    return {"scores": labels, "share": region, "at": gain}


def _trees(configuration: Configuration) -> Trees | None:
    table = configuration.model.trees
    if table == "auto":
        is_wanted = configuration.training.takes_trees and has_lightgbm()
        table = {} if is_wanted else False
    if table is False:
        return None
    if configuration.training.region is not None:
        reason = "must be unset with `training.region`: an ensemble standardises scores"
        raise configuration.error("model.trees", reason, table)
    parameters = {name: x for name, x in table.items() if name != "loss"}
    with _locate_errors(configuration):
        try:
            if "loss" not in table:
                return Trees(parameters=parameters)
            losses = [
                LAMBDARANK if x == {"class": LAMBDARANK} else loss(x, "model.trees.loss")
                for x in table["loss"]
            ]
            return Trees(losses, parameters)
        except ConfigurationError:
            raise
        except (ImportError, TypeError, ValueError) as error:
            raise ConfigurationError("model.trees:", f"{error}") from error


def import_modules(configuration: Configuration) -> None:
    """Imports the user's files, each under its own name.

    Raises:
        ConfigurationError: If one cannot be imported, or has the name of another module.
    """
    for file in map(stores.near, configuration.modules):
        name = Path(file).stem
        loaded = sys.modules.get(name)
        if loaded is not None and getattr(loaded, "__file__", None) == os.path.abspath(file):
            continue
        spec = importlib.util.spec_from_file_location(name, os.path.abspath(file))
        if loaded is not None or spec is None or spec.loader is None:
            expected = "must be Python files whose names differ from those of other modules"
            raise configuration.error("modules", expected, repr(file))
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # any exception that the file raises
            del sys.modules[name]
            raise configuration.error(
                "modules", "must be files that can be imported", f"{file!r}, {error!r}"
            ) from error


def loss(
    table: Mapping[str, Any], key: str = "training.loss", scores: Mapping[str, Any] | None = None
) -> keras.losses.Loss:
    """Creates the loss described by a table.

    Args:
        table: `class`, the name of a loss of `tfrank_sel.losses` or `module:function`, and its
            arguments. An argument may itself be such a table, also of a link, or a list of tables.
            The class `design` is that of `losses.design`; `lower = "region"` is where the region
            of the scores begins.
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
            reason = "needs labels that are scores: name their share that matters, training.region"
            raise ConfigurationError(key, received(reason, "no region"))
        designed: Design = _create(table, key, _ours(), Design, scores)
        return designed.loss
    if scores is not None and table.get("lower") == "region":
        begin = scores.get("at", 0.0)
        if scores and "at" not in scores:
            begin = threshold(scores["scores"], scores["share"])
        table = {**table, "lower": begin}
    made = _create(table, key, _ours(), keras.losses.Loss)
    if scores is not None:
        if getattr(made, "min_label", -math.inf) > -math.inf:
            reason = "must match scores with `training.region`, as MeanSquaredLoss does"
            raise ConfigurationError(key, received(reason, table["class"]))
    elif getattr(made, "label_map", made) is None:
        raise ConfigurationError(
            key,
            f"must say by `label_map` which score stands for a grade: {table['class']} takes "
            'scores as labels. Accepted: a link, such as {class = "gain"} or, if the labels '
            'are scores, {class = "Identity"}. Received: no `label_map`',
        )
    return made


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
        classes = _classes(keras.optimizers.schedules, kind)
        defaults = {"initial_learning_rate": rate, "decay_steps": settings.epochs * steps}
        rate = _create(settings.schedule, "training.schedule", classes, kind, defaults)
    kind = keras.optimizers.Optimizer
    defaults = {**optimization(settings, steps), "learning_rate": rate}
    classes = _classes(keras.optimizers, kind)
    return _create(settings.optimizer, "training.optimizer", classes, kind, defaults)


def import_function(name: str, key: str) -> Callable[..., Any]:
    """Imports the function `module:function`.

    Raises:
        ConfigurationError: If there is no such function.
    """
    try:
        function = pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError) as error:
        reason = "must name a function that can be imported, as `module:function`"
        raise ConfigurationError(key, received(reason, f"{name!r}, {error}")) from error
    if not callable(function):
        raise ConfigurationError(key, received("must name a function", f"{name!r}, {function!r}"))
    return function


def _create(
    table: Mapping[str, Any],
    key: str,
    classes: Names,
    kind: type,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Creates the object of a table, with the defaults that its signature accepts."""
    name = table.get("class")
    if not isinstance(name, str):
        raise ConfigurationError(key, received("must have a `class`, a string", dict(table)))
    make = import_function(name, key) if ":" in name else classes.get(name)
    if make is None:
        of_kind = sorted(x for x, made in classes.items() if _makes(made, kind))
        raise ConfigurationError(f"{key}.class", f"must be one of {choices(name, of_kind)}")
    arguments = {x: _argument(y, f"{key}.{x}", classes) for x, y in table.items() if x != "class"}
    parameters = inspect.signature(make).parameters
    taken = {x: y for x, y in (defaults or {}).items() if x in parameters}
    try:
        made = make(**{**taken, **arguments})
    except (TypeError, ValueError) as error:
        accepted = ", ".join(x for x in parameters if x not in ("args", "kwargs"))
        reason = f"{name} cannot be made: {error}. Its arguments are: {accepted}"
        raise ConfigurationError(f"{key}:", reason) from error
    if not isinstance(made, kind):
        expected = f"must be an object of {kind.__name__}"
        raise ConfigurationError(key, received(expected, f"{type(made).__name__} of {name!r}"))
    return made


def _argument(value: Any, key: str, classes: Names) -> Any:
    """Creates the value of an argument: a table with a `class`, or `module:function`."""
    if isinstance(value, Mapping) and "class" in value:
        return _create(value, key, classes, object)
    if isinstance(value, list):
        return [_argument(item, f"{key}[{number}]", classes) for number, item in enumerate(value)]
    if isinstance(value, str) and ":" in value:
        return import_function(value, key)
    return value


def _ours() -> Names:
    """The public classes and functions for losses and their arguments, by name."""
    folders = (losses.lambdas, losses.margin, losses.targets, links.labels, links, losses)
    return {
        name: member
        for folder in folders
        for name, member in vars(folder).items()
        if not name.startswith("_")
        and getattr(member, "__module__", "").startswith("tfrank_sel")
        and not inspect.isabstract(member)
    }


def _classes(module: Any, kind: type) -> Names:
    return {x: y for x, y in vars(module).items() if _makes(y, kind) and y is not kind}


def _makes(made_by: Any, kind: type) -> bool:
    return inspect.isclass(made_by) and issubclass(made_by, kind)
