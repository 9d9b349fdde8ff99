"""Command line of `python -m tfrank_sel.pipelines.tfx`."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

# TensorFlow reads it only once, at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import typer

from tfrank_sel.commandline import Application, Version, tell
from tfrank_sel.errors import received
from tfrank_sel.pipelines import Configuration, ConfigurationError, GateError, Progress
from tfrank_sel.pipelines.commands import options
from tfrank_sel.pipelines.commands.options import CONFIG, MODULE, SET, Given, keys
from tfrank_sel.terminal import Terminal

app = Application(ConfigurationError, no_args_is_help=True, pretty_exceptions_enable=False)

MostMilliseconds = Annotated[
    float, typer.Option(min=0.0, help="Maximum time to rank a list, at the 99th percentile.")
]
WarmStart = Annotated[
    bool, typer.Option("--warm-start", help="Warm start from the latest blessed model.")
]
BeamOption = Annotated[list[str], typer.Option(help="Option of Beam; may be repeated.")]

OPTIONS = (
    *(CONFIG, SET, MODULE),
    *keys("training.epochs", "training.patience", "training.batch_size", "training.seed"),
    *keys("blessing"),
)
SYNTHETIC_LISTS = 400
SYNTHETIC_LIST_SIZE = 50


@app.callback()
def _commands(version: Version = False) -> None:
    """Train and publish a ranker from lists of `SequenceExample`, by a TFX pipeline."""


@app.command()
@options.take_options(*OPTIONS, *keys("data.synthetic"))
def run(
    output: Annotated[Path, typer.Option(help="Folder of artefacts, metadata and served models.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of TFRecord files of SequenceExample.")
    ] = None,
    *,
    given: Given,
    most_milliseconds: MostMilliseconds = 1000.0,
    warm_start: WarmStart = False,
    beam_option: BeamOption = [],  # noqa: B006
) -> None:
    """Run the pipeline on this machine. In the same folder, it continues the earlier run.

    The champion is the latest blessed model. The exit status is 3 if the model is not pushed, or
    the data fails the gates. The pipeline uses these parts of the configuration: `modules`, the
    sections features, model, training, gates and blessing (without `champion`), and the column
    names and `synthetic` of the section data.
    """
    configuration = _load(given)
    if (data is None) != configuration.data.synthetic:
        which = "neither" if data is None else "both"
        raise typer.BadParameter(received("expected either --data or --synthetic", which))
    if data is not None and not data.is_dir():
        raise typer.BadParameter(received("--data must be a folder", data))
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    console = Terminal()
    log, metadata = output / "run.log", output / "metadata.sqlite"
    console.print(f"TFX and Beam log to {log}")
    with _log_stderr(log):
        with console.status("loading TFX"):
            from tfrank_sel.pipelines import comparison_table
            from tfrank_sel.pipelines.tfx import local
        composed = _compose(
            configuration,
            str((data or _synthesise(output, configuration.training.seed)).absolute()),
            str(output / "artefacts"),
            str(output / "serving" / "ranker"),
            most_milliseconds=most_milliseconds,
            warm_start=warm_start,
            metadata=str(metadata),
            beam_options=beam_option,
        )
        outcome = local.run(composed, metadata, Progress(console))
    console.print(comparison_table(outcome.overall, outcome.against))
    if outcome.version is None:
        tell(f"Not pushed: {'; '.join(outcome.objections)}")
        raise typer.Exit(3)
    console.print(f"Pushed {outcome.version}", soft_wrap=True)


@app.command("compile")
@options.take_options(*OPTIONS)
def compile_for_kubeflow(
    output: Annotated[Path, typer.Option(help="JSON file to write.")],
    image: Annotated[str, typer.Option(help="Container image with TFX and this package.")],
    data: Annotated[str, typer.Option(help="Folder of TFRecord files, such as gs://...")],
    root: Annotated[str, typer.Option(help="Folder of the artefacts, such as gs://...")],
    serving: Annotated[str, typer.Option(help="Folder to push to, such as gs://...")],
    given: Given,
    most_milliseconds: MostMilliseconds = 1000.0,
    warm_start: WarmStart = False,
    beam_option: BeamOption = [],  # noqa: B006
) -> None:
    """Compile the pipeline for Kubeflow Pipelines and Vertex AI."""
    configuration = _load(given)
    from tfrank_sel.pipelines.tfx import kubeflow

    composed = _compose(
        configuration,
        kubeflow.data_parameter(),
        root,
        serving,
        most_milliseconds=most_milliseconds,
        warm_start=warm_start,
        beam_options=beam_option,
    )
    kubeflow.compile_to(output.absolute(), composed, image=image, data=data)
    print(f"Compiled to {output}")


def _compose(
    configuration: Configuration, data: Any, root: str, serving: str, **options: Any
) -> Any:
    """The pipeline of a configuration; folders and further options are those of `pipeline`."""
    from tfrank_sel.pipelines import columns
    from tfrank_sel.pipelines.learning import instantiate
    from tfrank_sel.pipelines.tfx.pipeline import pipeline

    return pipeline(
        data,
        root,
        serving,
        configuration.settings,
        configuration.blessing,
        instantiate.candidate(configuration),
        columns=columns(configuration),
        gates=configuration.gates,
        **options,
    )


def _load(given: Given) -> Configuration:
    configuration = given.load()
    if (position := configuration.clicks.position) is not None:
        reason = "must be unset: correct the log by `tfrank-sel-clicks` before"
        raise configuration.error("clicks.position", reason, repr(position))
    if (region := configuration.training.region) is not None:
        reason = "must be unset: a TFX pipeline takes grades"
        raise configuration.error("training.region", reason, f"{region:g}")
    return configuration


def _synthesise(output: Path, seed: int) -> Path:
    """Writes synthetic lists, and one of the queries as a LETOR file to test the server."""
    from tfrank_sel.data import letor, synthetic
    from tfrank_sel.pipelines.tfx import sequences

    made = list(synthetic.lists(SYNTHETIC_LISTS, max_list_size=SYNTHETIC_LIST_SIZE, seed=seed))
    sequences.write(output / "data" / "lists.tfrecord", made)
    tried = next(item_list for item_list in made if len(item_list.labels) == SYNTHETIC_LIST_SIZE)
    (output / "one_query.txt").write_text(letor.text(tried), encoding="utf-8")
    return output / "data"


@contextlib.contextmanager
def _log_stderr(log: Path) -> Iterator[None]:
    """Redirects standard error to a file, also from native code; an error ends the command.

    The message of the error is shown, and its traceback is in the file.
    """
    failure = None
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("a", encoding="utf-8") as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except Exception as error:  # any exception of a component
            failure = error
            traceback.print_exc(file=written)
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
    if failure is not None:
        if isinstance(failure, ConfigurationError):
            raise failure
        tell(f"{failure}\nWhat led to it is in {log}")
        raise typer.Exit(3 if isinstance(failure, GateError) else 1) from failure


def main() -> None:
    """Runs the command line."""
    signal.signal(signal.SIGTERM, _stop)
    app()


def _stop(number: int, frame: FrameType | None) -> None:
    """Raises an exception, so that a server under test is also stopped."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
