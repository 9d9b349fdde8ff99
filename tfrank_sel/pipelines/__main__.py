"""Command line of `tfrank-sel-pipelines`."""

import enum
import logging
import os
from typing import Annotated, TypeAlias

# TensorFlow reads it only once, at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import typer

from tfrank_sel.commandline import Version, refused
from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import flags, interrupts
from tfrank_sel.pipelines.commands import runs, scoring, steps, tune
from tfrank_sel.pipelines.configuration import ConfigurationError, load, text
from tfrank_sel.pipelines.configuration.inputs import proposed
from tfrank_sel.pipelines.files import manifests

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

Files: TypeAlias = list[str] | None
Step = enum.StrEnum("Step", {name: name for name in manifests.STEPS})  # type: ignore[misc]

_BEAM = "Pass options of Beam and its runner last, after `--`."


@app.callback()
def _commands(version: Version = False) -> None:
    """Train, evaluate and publish a ranker from files of lists."""


@app.command(epilog=flags.AFTER)
def run(
    context: typer.Context,
    output: flags.Output,
    beam_options: flags.BeamOptions = None,
    config: flags.Config = None,
    set: flags.Set = None,
    module: flags.Module = None,
    train: Annotated[Files, flags.option("data.train")] = None,
    validation: Annotated[Files, flags.option("data.validation")] = None,
    test: Annotated[Files, flags.option("data.test")] = None,
    data: Annotated[Files, flags.option("data.data")] = None,
    synthetic: Annotated[bool | None, flags.option("data.synthetic")] = None,
    split: Annotated[str | None, flags.option("data.split")] = None,
    format: Annotated[str | None, flags.option("data.format")] = None,
    query: Annotated[str | None, flags.option("data.query")] = None,
    label: Annotated[str | None, flags.option("data.label")] = None,
    doc_id: Annotated[str | None, flags.option("data.doc_id")] = None,
    weight: Annotated[str | None, flags.option("data.weight")] = None,
    list_weight: Annotated[str | None, flags.option("data.list_weight")] = None,
    propensity: Annotated[str | None, flags.option("data.propensity")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Comma-separated names of the features; all numbers if unset."),
    ] = None,
    slice_by: Annotated[str | None, flags.option("data.slice_by")] = None,
    adjacent: Annotated[bool | None, flags.option("data.adjacent")] = None,
    num_features: Annotated[int | None, flags.option("data.num_features")] = None,
    allow_bad_lines: Annotated[int | None, flags.option("data.allow_bad_lines")] = None,
    reference: Annotated[str | None, flags.option("data.reference")] = None,
    runner: Annotated[str | None, flags.option("beam.runner")] = None,
    bless_metric: flags.BlessMetric = None,
    bless_margin: flags.BlessMargin = None,
    bless_slice_margin: flags.BlessSliceMargin = None,
    bless_min_value: flags.BlessMinValue = None,
    bless_min_queries: flags.BlessMinQueries = None,
    model_name: Annotated[str | None, flags.option("serving.model_name")] = None,
    version: Annotated[int | None, flags.option("serving.version")] = None,
    ensemble: Annotated[
        bool | None, typer.Option(help="Train with three losses, or only with RGCrossLoss.")
    ] = None,
    epochs: flags.Epochs = None,
    patience: flags.Patience = None,
    batch_size: flags.BatchSize = None,
    workers: Annotated[int | None, flags.option("training.workers")] = None,
    learning_rate: Annotated[float | None, flags.option("training.learning_rate")] = None,
    max_items: Annotated[int | None, flags.option("training.max_items")] = None,
    seed: flags.Seed = None,
    continue_from: Annotated[str | None, flags.option("data.continue_from")] = None,
    from_: Annotated[
        Step | None, typer.Option("--from", help="Run this step and all later steps again.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Check configuration and columns, and print the steps only.")
    ] = False,
) -> None:
    """Train a ranker, compare it with a baseline and with the served model, and publish it.

    Each option replaces a key of the configuration file; `config` prints all keys. Name files, or
    ask for synthetic data with `--synthetic`. In the folder of a run, its configuration is read,
    steps that are up to date are kept, and interrupted steps continue. The exit status is 3 if the
    data fails a gate, so that nothing is trained, or if the model is not blessed, so that nothing
    is published. All other results are in the output folder.
    """
    steps.take(output, config, context.params, force=from_ and from_.value, is_dry=dry_run)


@app.command("config")
def print_configuration(
    context: typer.Context,
    config: flags.Config = None,
    set: flags.Set = None,
    data: Annotated[Files, flags.option("data.data")] = None,
    format: Annotated[str | None, flags.option("data.format")] = None,
    query: Annotated[str | None, flags.option("data.query")] = None,
    label: Annotated[str | None, flags.option("data.label")] = None,
    doc_id: Annotated[str | None, flags.option("data.doc_id")] = None,
    weight: Annotated[str | None, flags.option("data.weight")] = None,
    list_weight: Annotated[str | None, flags.option("data.list_weight")] = None,
    propensity: Annotated[str | None, flags.option("data.propensity")] = None,
    slice_by: Annotated[str | None, flags.option("data.slice_by")] = None,
) -> None:
    """Print the configuration, with a comment on each key.

    With files, propose a type for each column without a role.
    """
    try:
        configuration, left_out = proposed(load(config, flags.overrides(context.params)))
    except (ConfigurationError, InputError) as error:
        raise refused(error) from error
    print(text(configuration, left_out), end="")


for _name, _command in steps.COMMANDS.items():
    app.command(_name, epilog=flags.AFTER)(_command)
app.command(epilog=flags.AFTER)(scoring.evaluate)
app.command(epilog=flags.AFTER)(scoring.score)
app.command(epilog=flags.AFTER)(tune.tune)
app.add_typer(runs.app, name="runs")


def main() -> None:
    """Runs the command line."""
    # Beam warns about cloud clients that are not used here
    logging.basicConfig(level=logging.ERROR)
    interrupts.listen()
    app()


if __name__ == "__main__":
    main()
