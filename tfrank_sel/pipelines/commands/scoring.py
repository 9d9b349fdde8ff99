"""Commands `score` and `evaluate`: an exported model on new data."""

import os
from typing import Annotated, Literal, TypeAlias

import typer

from tfrank_sel.commandline import Application
from tfrank_sel.data import stores
from tfrank_sel.errors import received
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines.commands import options
from tfrank_sel.pipelines.commands.options import AFTER, BEAM, COMMON, REFUSES, Given, keys
from tfrank_sel.pipelines.commands.run import execute
from tfrank_sel.pipelines.configuration import ConfigurationError
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion.inputs import check_format
from tfrank_sel.terminal import Terminal

app = Application(*REFUSES)

Model: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Folder or URL of an exported model: `RUN/export/saved_model`, or a version."
    ),
]
Files: TypeAlias = Annotated[list[str], typer.Option(help="Files, URLs or globs; may be repeated.")]
DocId: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Name of the item identifier; that of the model if unset."),
]
OF_EVALUATION = ("data.label", "data.slice_by", "evaluation.gain", "training.seed")
OF_FILES = ("data.query", "data.format", "data.adjacent", "data.allow_bad_lines", "beam.runner")


@app.command(epilog=AFTER)
@options.take_options(*COMMON, *keys(*OF_FILES, "data.label", "data.slice_by"))
def evaluate(
    output: Annotated[
        str | None,
        typer.Option(help="Folder or URL of a run: evaluate its model, as a step of `run`."),
    ] = None,
    *,
    given: Given,
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
    doc_id: DocId = None,
) -> None:
    """Evaluate the model of a run, or an exported model on other files, with intervals."""
    if (output is None) == (model is None) or (model is None) != (data is None):
        reason = "Expected --output, or --model and --data"
        raise ConfigurationError("", received(reason, "neither of them, or options of both"))
    if output is not None:
        of_model = {"--against": against, "--metrics": metrics, "--doc-id": doc_id}
        if unread := next((x for x, value in of_model.items() if value is not None), ""):
            raise ConfigurationError(unread, received("needs --model", f"--output {output}"))
        execute(output, given, only="evaluate")
        return
    assert model is not None
    given.check_read("modules", *OF_FILES, *OF_EVALUATION, "blessing.metric", "beam.options")
    named = given.load()
    check_format(named)
    # Imported late, so that help and option errors do not wait for TensorFlow.
    with quiet():
        from tfrank_sel.pipelines import runners, scoring
        from tfrank_sel.pipelines.learning import instantiate
        from tfrank_sel.pipelines.reporting import tables

    models = [model, *([] if against is None else [against])]
    inputs = scoring.inputs(models, data or (), named.data, label=named.data.label, doc_id=doc_id)
    configuration = given.load(more=scoring.settings(model))
    instantiate.import_modules(configuration)
    console = Terminal()
    evaluation = scoring.judge(
        model,
        inputs,
        configuration,
        Progress(console),
        against=against,
        metrics=metrics,
        options=runners.beam_options(configuration),
    )
    console.print(tables.slices_table(evaluation, configuration.blessing.metric))
    console.print(tables.comparison_table(evaluation.overall, evaluation.against))


@app.command(epilog=AFTER)
@options.take_options(BEAM, *keys(*OF_FILES))
def score(
    model: Model,
    data: Files,
    output: Annotated[str, typer.Option(help="Folder or URL to write; new or empty.")],
    given: Given,
    doc_id: DocId = None,
    output_format: Annotated[
        Literal["parquet", "jsonl", "csv"], typer.Option(help="Format of the ranked lists.")
    ] = "parquet",
    lists_per_file: Annotated[
        int, typer.Option(min=1, help="Number of lists in each output file.")
    ] = 10_000,
    explain: Annotated[
        int,
        typer.Option(min=0, help="Number of first items of each list to explain against the next."),
    ] = 0,
) -> None:
    """Rank the lists of files with an exported model.

    Repeat the same command to continue after an interruption.
    """
    configuration = given.load()
    check_format(configuration)
    # Imported late, so that help and option errors do not wait for TensorFlow.
    with quiet():
        from tfrank_sel.pipelines import runners, scoring

    scoring.score(
        model,
        scoring.inputs([model], data, configuration.data, doc_id=doc_id),
        output,
        Progress(Terminal()),
        format=output_format,
        lists_per_file=lists_per_file,
        explain=explain,
        options=runners.beam_options(configuration),
    )
    print(output if stores.is_remote(output) else os.path.abspath(output))
