"""Candidate, baseline, settings and rules from a configuration."""

import dataclasses
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel.data import stores
from tfrank_sel.pipelines import candidates, classes, runners
from tfrank_sel.pipelines.analysis.gates import Gates
from tfrank_sel.pipelines.candidates import Candidate, Trees
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError
from tfrank_sel.pipelines.configuration.inputs import has_lightgbm
from tfrank_sel.pipelines.evaluation.blessing import Rules
from tfrank_sel.pipelines.learning.trees import LAMBDARANK
from tfrank_sel.pipelines.settings import Settings

MEANS = ("sum_over_batch_size", "mean")  # reductions to the mean over lists


def beam_options(configuration: Configuration) -> PipelineOptions:
    """Returns the options of every Beam pipeline.

    Raises:
        ConfigurationError: If there is no such runner, or Beam has no such option.
    """
    beam = configuration.beam
    try:
        return runners.pipeline_options(beam.runner, beam.options)
    except ValueError as error:
        raise configuration.error("beam:", str(error)) from error


def candidate(configuration: Configuration) -> Candidate:
    """Returns the candidate to train, after importing the user's modules.

    Raises:
        ConfigurationError: If a loss, the model or the optimizer cannot be created, or boosted
            trees cannot be trained.
    """
    _import(configuration)
    try:
        classes.optimizer(settings(configuration), steps=1)
    except ConfigurationError as error:
        raise configuration.error(error.key, error.reason) from error
    found = _candidate(configuration, configuration.training.loss, "training.loss")
    return dataclasses.replace(found, trees=_trees(configuration))


def _trees(configuration: Configuration) -> Trees | None:
    table = configuration.model.trees
    if table == "auto":
        is_wanted = len(configuration.training.loss) > 1 and has_lightgbm()
        table = {"loss": [{"class": LAMBDARANK}]} if is_wanted else False
    if table is False:
        return None
    parameters = {name: x for name, x in table.items() if name != "loss"}
    try:
        if "loss" not in table:
            return Trees(parameters=parameters)
        losses = [
            LAMBDARANK if x == {"class": LAMBDARANK} else classes.loss(x, "model.trees.loss")
            for x in table["loss"]
        ]
        return Trees(losses, parameters)
    except ConfigurationError as error:
        raise configuration.error(error.key, error.reason) from error
    except (ImportError, TypeError, ValueError) as error:
        raise configuration.error("model.trees:", f"{error}") from error


def baseline(configuration: Configuration) -> Candidate | None:
    """Returns the baseline to train, or None to compare with a random order.

    Raises:
        ConfigurationError: If its loss cannot be created.
    """
    table = configuration.evaluation.baseline
    return None if table is False else _candidate(configuration, [table], "evaluation.baseline")


def settings(configuration: Configuration) -> Settings:
    """Returns the settings of training."""
    model, training = configuration.model, configuration.training
    return Settings(
        hidden_units=model.hidden_units,
        dropout=model.dropout,
        num_heads=model.num_heads,
        gain=configuration.evaluation.gain,
        **training.model_dump(exclude={"loss", "workers"}),
    )


def check_export(configuration: Configuration) -> None:
    """Raises an error if the model is to be written in a format whose packages are missing."""
    if not configuration.export.onnx:
        return
    for name in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            reason = f"requires {name}: install `tfrank_sel[onnx]`. Received: no {name}"
            raise configuration.error("export.onnx", reason)


def rules(configuration: Configuration) -> Rules:
    """Returns the rules that a model must meet to be published."""
    return Rules(**configuration.blessing.model_dump(exclude={"champion"}))


def gates(configuration: Configuration) -> Gates:
    """Returns the gates of the data."""
    rules = configuration.gates.model_dump(exclude={"features"})
    of_features = configuration.gates.features
    return Gates.from_config({"rules": rules, "features": of_features})


def _candidate(
    configuration: Configuration, tables: Sequence[Mapping[str, Any]], key: str
) -> Candidate:
    keys = [key] if len(tables) == 1 else [f"{key}[{number}]" for number in range(len(tables))]
    model = configuration.model
    make_model = {"ListScorer": candidates.list_scorer, "Scorer": candidates.scorer}.get(
        model.class_
    )
    try:
        if make_model is None:
            make_model = classes.imported(model.class_, "model.class")
            _check_signature(make_model, model.arguments, model.class_)
        found = [classes.loss(table, x) for table, x in zip(tables, keys, strict=True)]
        for loss, x in zip(found, keys, strict=True):
            if configuration.training.workers > 1 and loss.reduction not in MEANS:
                reason = f"must have the reduction {MEANS[0]} with more than 1 worker"
                raise ConfigurationError(x, f"{reason}. Received: {loss.reduction!r}")
        try:
            return Candidate(found if len(found) > 1 else found[0], make_model, model.arguments)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{key}:", f"{error}") from error
    except ConfigurationError as error:
        raise configuration.error(error.key, error.reason) from error


def _check_signature(make_model: Any, arguments: Mapping[str, Any], name: str) -> None:
    try:
        inspect.signature(make_model).bind(None, None, **arguments)
    except TypeError as error:
        wanted = ", ".join(["preparation", "settings", *arguments])
        reason = f"must name a function of ({wanted}). Received: {name!r}, {error}"
        raise ConfigurationError("model.class", reason) from error


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
