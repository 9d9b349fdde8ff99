"""Commands `score` and `evaluate`: an exported model on new data."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.console import Console

from tfrank_sel.commandline import refused
from tfrank_sel.data import stores
from tfrank_sel.data.formats import FORMATS, Columns
from tfrank_sel.data.lists import InputError
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines import flags
from tfrank_sel.pipelines.commands import steps
from tfrank_sel.pipelines.configuration import ConfigurationError
from tfrank_sel.pipelines.configuration.errors import choices

Model: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Folder or URL of an exported model: `RUN/export/saved_model`, or a version."
    ),
]
Files: TypeAlias = Annotated[list[str], typer.Option(help="Files, URLs or globs; may be repeated.")]
Query: TypeAlias = Annotated[str, flags.option("data.query")]
DocId: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Name of the item identifier; that of the model if unset."),
]
Format: TypeAlias = Annotated[str | None, flags.option("data.format")]
Adjacent: TypeAlias = Annotated[bool, flags.option("data.adjacent")]
AllowBadLines: TypeAlias = Annotated[int, flags.option("data.allow_bad_lines")]
Runner: TypeAlias = Annotated[str, flags.option("beam.runner")]


def score(
    model: Model,
    data: Files,
    output: Annotated[str, typer.Option(help="Folder or URL to write; new or empty.")],
    beam_options: flags.BeamOptions = None,
    query: Query = Columns.query,
    doc_id: DocId = None,
    format: Format = None,
    adjacent: Adjacent = False,
    allow_bad_lines: AllowBadLines = 0,
    output_format: Annotated[
        Literal["parquet", "jsonl", "csv"], typer.Option(help="Format of the ranked lists.")
    ] = "parquet",
    lists_per_file: Annotated[
        int, typer.Option(min=1, help="Number of lists in each output file.")
    ] = 10_000,
    runner: Runner = "DirectRunner",
) -> None:
    """Rank the lists of files with an exported model.

    Repeat the same command to continue after an interruption.
    """
    try:
        _check_format(format)
        # Imported late, so that help and option errors do not wait for TensorFlow.
        with quiet():
            from tfrank_sel.pipelines import console as shown, scoring

        inputs = scoring.inputs(
            [model],
            data,
            query=query,
            doc_id=doc_id,
            format=format,
            adjacent=adjacent,
            allow_bad_lines=allow_bad_lines,
        )
        scoring.score(
            model,
            inputs,
            output,
            shown.Progress(Console()),
            format=output_format,
            lists_per_file=lists_per_file,
            options=_options(runner, beam_options),
        )
    except (ConfigurationError, InputError) as error:
        raise refused(error) from error
    print(output if stores.is_remote(output) else os.path.abspath(output))


def evaluate(
    context: typer.Context,
    beam_options: flags.BeamOptions = None,
    output: Annotated[
        str | None,
        typer.Option(help="Folder or URL of a run: evaluate its model, as a step of `run`."),
    ] = None,
    config: flags.Config = None,
    set: flags.Set = None,
    module: flags.Module = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=(
                "Instead of --output: folder or URL of an exported model, to evaluate with --data."
            )
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Files, URLs or globs to evaluate --model on.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Another exported model to compare with; a random order if unset."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="File or URL for the metrics, as JSON.")
    ] = None,
    query: Query = Columns.query,
    label: Annotated[str, flags.option("data.label")] = "relevance",
    doc_id: DocId = None,
    slice_by: Annotated[str, flags.option("data.slice_by")] = "",
    format: Format = None,
    adjacent: Adjacent = False,
    allow_bad_lines: AllowBadLines = 0,
    runner: Runner = "DirectRunner",
) -> None:
    """Evaluate the model of a run, or an exported model on other files, with intervals."""
    if (output is None) == (model is None) or (model is None) != (data is None):
        wanted = "Expected --output, or --model and --data"
        raise refused(ValueError(f"{wanted}. Received: neither of them, or options of both"))
    if output is not None:
        own = {name: context.params[name] for name in ("set", "module", "beam_options")}
        steps.take(output, config, own, only="evaluate")
        return
    assert model is not None
    try:
        evaluate_model(
            model,
            data or (),
            against=against,
            metrics=metrics,
            query=query,
            label=label,
            doc_id=doc_id,
            slice_by=flags.names(slice_by),
            format=format,
            adjacent=adjacent,
            allow_bad_lines=allow_bad_lines,
            runner=runner,
            beam_options=beam_options,
        )
    except (ConfigurationError, InputError) as error:
        raise refused(error) from error


def evaluate_model(
    model: str,
    data: Sequence[str],
    *,
    against: str | None = None,
    metrics: str | None = None,
    query: str = Columns.query,
    label: str = "relevance",
    doc_id: str | None = None,
    slice_by: Sequence[str] = (),
    format: str | None = None,
    adjacent: bool = False,
    allow_bad_lines: int = 0,
    runner: str = "DirectRunner",
    beam_options: Sequence[str] | None = None,
) -> None:
    """Evaluates a model on new data, and prints metrics and slices.

    Args:
        model: Folder or URL of a SavedModel from `tfrank_sel.export`.
        data: Files, URLs or globs.
        against: Folder or URL of another such model to compare with; a random order if None.
        metrics: File or URL to write the metrics to, as JSON.
        query: Name of the query identifier, as in `pipelines.scoring.inputs`.
        label: Name of the relevance label.
        doc_id: Name of the item identifier.
        slice_by: Names of columns to slice by.
        format: Format of the files.
        adjacent: Whether the rows of a query are adjacent.
        allow_bad_lines: Maximum number of malformed lines, rows or records to skip.
        runner: Runner of Beam.
        beam_options: Options of Beam.

    Raises:
        ConfigurationError: If an option is invalid.
        tfrank_sel.data.InputError: If the input, a model or the output folder is invalid.
    """
    _check_format(format)
    with quiet():
        from tfrank_sel.pipelines import console as shown, scoring
        from tfrank_sel.pipelines.evaluation.blessing import Rules

    console = Console()
    inputs = scoring.inputs(
        [model, *([] if against is None else [against])],
        data,
        query=query,
        label=label,
        doc_id=doc_id,
        slice_by=slice_by,
        format=format,
        adjacent=adjacent,
        allow_bad_lines=allow_bad_lines,
    )
    found = scoring.judge(
        model,
        inputs,
        shown.Progress(console),
        against=against,
        metrics=metrics,
        options=_options(runner, beam_options),
    )
    console.print(shown.slices_table(found, Rules().metric))
    console.print(shown.comparison_table(found.overall, found.against))


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        raise ConfigurationError("--format", f"must be one of {choices(format, FORMATS)}")


def _options(runner: str, beam_options: Sequence[str] | None) -> Any:
    from tfrank_sel.pipelines import runners

    try:
        return runners.pipeline_options(runner, beam_options or ())
    except ValueError as error:
        raise ConfigurationError("--runner:", str(error)) from error
