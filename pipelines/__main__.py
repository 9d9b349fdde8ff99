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

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

LetorFile = Annotated[Path | None, typer.Option(help="LETOR or SVMLight file, plain or .gz.")]


@app.callback()
def _commands() -> None:
    """From a LETOR file to a served ranker."""


@app.command()
def run(
    output: Annotated[Path, typer.Option(help="Folder to make; new or empty.")],
    train: LetorFile = None,
    validation: LetorFile = None,
    test: LetorFile = None,
    model_name: Annotated[str, typer.Option(help="Name to serve the model under.")] = "ranker",
    version: Annotated[int, typer.Option(min=0, help="Version to serve it under.")] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="Largest number of epochs.")] = 60,
    patience: Annotated[int, typer.Option(min=1, help="Epochs to wait for a better one.")] = 10,
    batch_size: Annotated[int, typer.Option(min=1, help="Lists in a batch.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Step size of Adam.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 42,
) -> None:
    """Trains a ranker, compares it with a baseline, and publishes it for serving.

    Without files, a synthetic set is made.
    """
    # Imported late, so that help and mistakes in the options do not wait for TensorFlow.
    with _quiet():
        from pipelines import console as tables, run as pipeline
        from pipelines.training import Settings
        from tfrank_sel import data

    given = {"train": train, "validation": validation, "test": test}
    sources = {split: path for split, path in given.items() if path is not None}
    if sources and len(sources) < len(given):
        missing = ", ".join(f"--{split}" for split in given if split not in sources)
        raise typer.BadParameter(f"give all of --train, --validation, --test. Missing: {missing}")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", model_name):
        raise typer.BadParameter(f"--model-name must be a plain word. Received: {model_name!r}")
    if not learning_rate > 0.0:
        raise typer.BadParameter(f"--learning-rate must be positive. Received: {learning_rate}")
    settings = Settings(
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    console = Console()
    try:
        result = pipeline.run(
            sources or None,
            output,
            settings,
            tables.Progress(console),
            model_name=model_name,
            version=version,
        )
    except data.InputError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    for table in (
        tables.seconds_table(result.seconds),
        tables.speed_table(result.trained),
        tables.comparison_table(result.comparisons),
    ):
        console.print(table)
    console.print("Next:", style="bold")
    print(f"tfrank-sel-serving serve --model-base-path {result.model_base}")
    print(f"tfrank-sel-serving rank --file {result.one_query}")


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
