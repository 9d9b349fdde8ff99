"""The command `tfrank-sel-pipelines`."""

import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

# TensorFlow reads it once, when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import typer
from rich.console import Console

from tfrank_sel.pipelines import flags

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Files = Annotated[list[str] | None, typer.Option(help="Files or globs; may be repeated.")]


@app.callback()
def _commands() -> None:
    """From files of lists to a served ranker."""


@app.command(epilog="Options of Beam and of its runner come last, after `--`.")
def run(
    output: Annotated[Path, typer.Option(help="Folder to make; new or empty.")],
    beam_options: Annotated[list[str] | None, typer.Argument(help="Options of Beam.")] = None,
    train: Files = None,
    validation: Files = None,
    test: Files = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Files or globs that --split divides; may be repeated."),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Shares of train, validation and test, by a hash of the query.")
    ] = "80,10,10",
    format: Annotated[
        str | None,
        typer.Option(
            help="letor, elwc, eie, sequence-example, example, parquet or csv; "
            "by default told by the name of the file."
        ),
    ] = None,
    query: Annotated[str, typer.Option(help="Name of the query's identifier.")] = "query_id",
    label: Annotated[str, typer.Option(help="Name of the relevance.")] = "relevance",
    doc_id: Annotated[str, typer.Option(help="Name of the item's identifier.")] = "doc_id",
    features: Annotated[
        str, typer.Option(help="Names of the features, by commas; by default all numbers.")
    ] = "",
    slice_by: Annotated[
        str, typer.Option(help="Names of what to slice the evaluation by, by commas.")
    ] = "",
    adjacent: Annotated[
        bool, typer.Option(help="Rows of a query stand together; need not be grouped.")
    ] = False,
    num_features: Annotated[
        int | None,
        typer.Option(min=1, help="Of LETOR files; by default they are read once more for it."),
    ] = None,
    allow_bad_lines: Annotated[
        int, typer.Option(min=0, help="Lines, rows or records that may be left out.")
    ] = 0,
    reference: Annotated[
        Path | None, typer.Option(help="Folder of another run: tell what drifted.")
    ] = None,
    runner: Annotated[
        str, typer.Option(help="DirectRunner, FlinkRunner, SparkRunner or DataflowRunner.")
    ] = "DirectRunner",
    bless_metric: flags.BlessMetric = "NDCG@10",
    bless_margin: flags.BlessMargin = 0.02,
    bless_slice_margin: flags.BlessSliceMargin = 0.1,
    bless_min_value: flags.BlessMinValue = 0.0,
    bless_min_queries: flags.BlessMinQueries = 1,
    model_name: Annotated[str, typer.Option(help="Name to serve the model under.")] = "ranker",
    version: Annotated[int, typer.Option(min=0, help="Version to serve it under.")] = 1,
    ensemble: Annotated[
        bool, typer.Option(help="Train with three losses, or with RGCrossLoss alone.")
    ] = True,
    epochs: flags.Epochs = 60,
    patience: flags.Patience = 10,
    batch_size: flags.BatchSize = 16,
    learning_rate: Annotated[float, typer.Option(help="Step size of Adam.")] = 1e-3,
    max_items: Annotated[
        int, typer.Option(min=0, help="Train on so many items of a longer list; 0 for all.")
    ] = 0,
    seed: flags.Seed = 42,
) -> None:
    """Trains a ranker, compares it with a baseline, and publishes it for serving.

    Without files, a synthetic set is made. A model that is not blessed is not published: the status
    is 3 then, and all else is in the output folder.
    """
    # Imported late, so that help and mistakes in the options do not wait for TensorFlow.
    with _quiet():
        from tfrank_sel import losses
        from tfrank_sel.data import InputError
        from tfrank_sel.data.formats import Columns
        from tfrank_sel.pipelines import arguments, console as tables, run as pipeline, runners
        from tfrank_sel.pipelines.candidates import Candidate, Settings
        from tfrank_sel.pipelines.evaluation.blessing import Rules

    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", model_name):
        raise typer.BadParameter(f"--model-name must be a plain word. Received: {model_name!r}")
    if not learning_rate > 0.0:
        raise typer.BadParameter(f"--learning-rate must be positive. Received: {learning_rate}")
    console = Console()
    try:
        columns = Columns(
            query,
            label,
            doc_id,
            arguments.names(features),
            arguments.names(slice_by),
            num_features,
        )
        inputs = arguments.inputs(
            {"train": train, "validation": validation, "test": test},
            data,
            split,
            format,
            columns,
            allow_bad_lines=allow_bad_lines,
            adjacent=adjacent,
        )
        rules = Rules(
            bless_metric, bless_min_queries, bless_min_value, bless_margin, bless_slice_margin
        )
        settings = Settings(
            epochs, patience, batch_size, learning_rate, max_items=max_items, seed=seed
        )
        options = runners.pipeline_options(runner, beam_options or [])
    except InputError as error:
        raise _refused(error) from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    candidate = Candidate() if ensemble else Candidate(losses.RGCrossLoss())
    plan = pipeline.Plan(inputs, rules, reference, options, model_name, version, candidate)
    try:
        result = pipeline.run(plan, output, settings, tables.Progress(console))
    except InputError as error:
        raise _refused(error) from error
    for table in (
        tables.seconds_table(result.seconds),
        tables.speed_table(result.trained),
        tables.slices_table(result.evaluation, bless_metric),
        tables.comparison_table(result.evaluation.overall, result.evaluation.against),
    ):
        console.print(table)
    if not result.blessing.blessed:
        for reason in result.blessing.reasons:
            print(f"not blessed: {reason}", file=sys.stderr)
        print(f"nothing is published; see {output.absolute()}/blessing.json", file=sys.stderr)
        raise typer.Exit(3)
    console.print("Next:", style="bold")
    print(f"tfrank-sel-serving serve --model-base-path {result.model_base}")
    print(f"tfrank-sel-serving rank --file {result.one_query}")


def _refused(error: Exception | str) -> typer.Exit:
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
    """Leaves by an exception, so that what is half done is removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
