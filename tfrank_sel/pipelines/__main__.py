"""The command `tfrank-sel-pipelines`."""

import contextlib
import enum
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeAlias

# TensorFlow reads it once, when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import typer
from rich.console import Console

from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import flags, folders, manifests
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.commands import runs, tune
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError, load, text
from tfrank_sel.pipelines.configuration.inputs import complete, proposed

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Files: TypeAlias = list[str] | None
Step = enum.StrEnum("Step", {name: name for name in manifests.STEPS})  # type: ignore[misc]


@app.callback()
def _commands() -> None:
    """From files of lists to a served ranker."""


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
    split: Annotated[str | None, flags.option("data.split")] = None,
    format: Annotated[str | None, flags.option("data.format")] = None,
    query: Annotated[str | None, flags.option("data.query")] = None,
    label: Annotated[str | None, flags.option("data.label")] = None,
    doc_id: Annotated[str | None, flags.option("data.doc_id")] = None,
    weight: Annotated[str | None, flags.option("data.weight")] = None,
    list_weight: Annotated[str | None, flags.option("data.list_weight")] = None,
    propensity: Annotated[str | None, flags.option("data.propensity")] = None,
    features: Annotated[
        str | None, typer.Option(help="Names of the features, by commas; all numbers if unset.")
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
        bool | None, typer.Option(help="Train with three losses, or with RGCrossLoss alone.")
    ] = None,
    epochs: flags.Epochs = None,
    patience: flags.Patience = None,
    batch_size: flags.BatchSize = None,
    learning_rate: Annotated[float | None, flags.option("training.learning_rate")] = None,
    max_items: Annotated[int | None, flags.option("training.max_items")] = None,
    seed: flags.Seed = None,
    continue_from: Annotated[str | None, flags.option("data.continue_from")] = None,
    from_: Annotated[
        Step | None, typer.Option("--from", help="Run this step and those after it again.")
    ] = None,
) -> None:
    """Trains a ranker, compares it with a baseline and with the model that is served, and
    publishes it for serving.

    Each option is a key of the configuration, which `config` prints, and replaces the value in the
    file. Without files, a synthetic set is made. In a folder that holds a run, its configuration
    is read, steps that are up to date are kept, and what was interrupted goes on. A model that is
    not blessed is not published, and data that fails a gate is not trained on: the status is 3
    then, and all else is in the output folder.
    """
    _run(output, config, context.params, force=from_ and from_.value)


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
    """Prints the configuration, with a comment on each key.

    With files, a type is proposed for each column that has no role.
    """
    try:
        configuration, left_out = proposed(load(config, flags.overrides(context.params)))
    except (ConfigurationError, InputError) as error:
        raise _refused(error) from error
    print(text(configuration, left_out), end="")


def _step(step: str) -> Callable[..., None]:
    """Returns the command that runs a step alone."""

    def command(
        context: typer.Context,
        output: flags.Output,
        beam_options: flags.BeamOptions = None,
        config: flags.Config = None,
        set: flags.Set = None,
        module: flags.Module = None,
    ) -> None:
        _run(output, config, context.params, only=step)

    return command


_HELP = {
    "ingest": "Reads the files into records, split by query.",
    "analyze": "Finds statistics, the schema and anomalies, and holds them against the gates.",
    "train": "Trains the model and the baseline; goes on with a training that was interrupted.",
    "export": "Writes the SavedModel, and tries it.",
    "push": "Compares the model with the one that is served, and publishes it if it passes.",
}
for _name, _help in _HELP.items():
    app.command(_name, help=f"{_help} A step of `run`, alone.", epilog=flags.AFTER)(_step(_name))


app.command(epilog=flags.AFTER)(tune.tune)
app.add_typer(runs.app, name="runs")


def _run(
    output: Path,
    config: str | None,
    options: Mapping[str, Any],
    *,
    only: str | None = None,
    force: str | None = None,
) -> None:
    """Runs the steps that are not up to date, or one."""
    console = Console(soft_wrap=True)
    try:
        kept = output / folders.CONFIGURATION
        if config is None and kept.is_file():
            config = str(kept)
        configuration, found, left_out = complete(load(config, flags.overrides(options)))
        for name, reason in left_out.items():
            console.print(f"left out: the column {name!r}: {reason}", highlight=False)
        sources = [source.path for source in found.sources] if found else []
        chosen = [only] if only else [*manifests.STEPS]
        wanted = manifests.current(configuration, sources, output)
        stale = manifests.stale(wanted, output)
        if force or stale.keys() & chosen or not (only or _is_told(output, configuration)):
            # Imported late, so that help, mistakes and what is done do not wait for TensorFlow.
            with _quiet():
                from tfrank_sel.pipelines import console as tables, run as pipeline

            progress = tables.Progress(console)
            result = pipeline.run(configuration, output, progress, only=only, force=force)
            if only is None:
                for table in tables.tables(result):
                    console.print(table)
        else:
            for step in chosen:
                console.print(f"[green]kept[/] {step:18} up to date", highlight=False)
    except (ConfigurationError, InputError) as error:
        raise _refused(error) from error
    except GateError as error:
        print(f"{error}\nnothing is trained", file=sys.stderr)
        raise typer.Exit(3) from error
    except KeyboardInterrupt as error:
        raise _interrupted(output) from error
    if "push" in chosen:
        _tell_pushed(output, configuration, console)


def _is_told(output: Path, configuration: Configuration) -> bool:
    """Whether there is all that tells of a run beside its steps."""
    names = ["report.html", *(["tracking.json"] if configuration.tracking.mlflow else [])]
    return all((output / name).exists() for name in names)


def _tell_pushed(output: Path, configuration: Configuration, console: Console) -> None:
    """Says where the model is, or why it is not published."""
    pushed = json.loads((output / "push" / "pushed.json").read_text())
    if not pushed["blessed"]:
        for reason in pushed["reasons"]:
            print(f"not blessed: {reason}", file=sys.stderr)
        where = output.absolute() / "push" / "blessing.json"
        print(f"nothing is published; see {where}", file=sys.stderr)
        raise typer.Exit(3)
    console.print("Next:", style="bold")
    base = Path(pushed["saved_model"]).parent
    [one_query] = (output.absolute() / "export").glob("one_query.*")
    print(f"tfrank-sel-serving serve --model-base-path {base}")
    name = "" if base.name == "ranker" else f" --model-name {base.name}"
    print(f"tfrank-sel-serving rank --file {one_query}{name}")


def _interrupted(output: Path) -> typer.Exit:
    """Says what is kept, and how to go on."""
    kept = [step for step in manifests.STEPS if (output / step).is_dir()]
    if (output / ".train.partial").is_dir():
        kept.append("the epochs of the training")
    print(f"interrupted; kept: {', '.join(kept) or 'nothing'}", file=sys.stderr)
    if kept:
        print(f"go on with: tfrank-sel-pipelines run --output {output}", file=sys.stderr)
    return typer.Exit(130)


def _refused(error: Exception) -> typer.Exit:
    print(error, file=sys.stderr)
    return typer.Exit(2)


def main() -> None:
    """Runs the command line."""
    logging.basicConfig(level=logging.ERROR)  # Beam warns of cloud clients that nothing here uses
    signal.signal(signal.SIGTERM, _stop)
    app()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drops what TensorFlow's native code prints on loading, before its log level holds."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _stop(number: int, frame: FrameType | None) -> None:
    """Leaves as Ctrl-C does, so that what is half done is removed."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
