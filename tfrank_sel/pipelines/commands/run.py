"""Commands of a run: all of its steps, a single step, its configuration, and `tune`."""

import contextlib
import enum
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tfrank_sel.commandline import Application, shell, tell
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines.analysis import leakage
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.commands import options
from tfrank_sel.pipelines.commands.options import (
    AFTER,
    COMMON,
    CONFIG,
    REFUSES,
    SET,
    Given,
    Option,
    keys,
)
from tfrank_sel.pipelines.configuration import Configuration, text
from tfrank_sel.pipelines.configuration.section import split
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.files.mirrors import Mirror
from tfrank_sel.pipelines.ingestion.inputs import Job, propose
from tfrank_sel.pipelines.run import execution
from tfrank_sel.pipelines.run.steps import STEPS, RunStep
from tfrank_sel.terminal import Terminal

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.tuning import Study

PIPELINES, SERVING = "tfrank-sel-pipelines", "tfrank-sel-serving"

app = Application(*REFUSES)

Output: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="FOLDER", help="Folder or URL of the run: new, empty, or of a run to continue."
    ),
]
Step = enum.StrEnum("Step", {name: name for name in STEPS})  # type: ignore[misc]


FEATURES = Option(
    "features",
    "features",
    str,
    typer.Option(help="Comma-separated names of the features; all numbers if unset."),
    lambda names: {name: {"type": "number", "missing": "refuse"} for name in split(names)},
)
ENSEMBLE = Option(
    "model.trees",
    "ensemble",
    bool,
    typer.Option(help="Train boosted trees beside networks, or networks alone."),
    lambda is_ensemble: "auto" if is_ensemble else False,
)
OF_RUN = keys("data", "beam", "blessing", "serving", "training")
OF_COLUMNS = keys(
    *("data.data", "data.train", "data.validation", "data.test", "data.format"),
    *("data.query", "data.label", "data.doc_id"),
    *("data.weight", "data.list_weight", "data.propensity", "data.slice_by", "data.omit"),
)


@app.command(epilog=AFTER)
@options.take_options(*COMMON, FEATURES, ENSEMBLE, *OF_RUN)
def run(
    output: Output,
    given: Given,
    from_: Annotated[
        Step | None,
        typer.Option(
            "--from",
            metavar="STEP",
            help=f"Run this step and all later steps again: {', '.join(STEPS)}.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Check configuration and columns, and print the steps only.")
    ] = False,
) -> None:
    """Train a ranker, compare it with a baseline and with the served model, and publish it.

    Each option replaces a key of the configuration file; `config --all` prints all keys. Name
    files, or ask for synthetic data with `--synthetic`. In the folder of a run, its configuration
    is read, steps that are up to date are kept, and interrupted steps continue. The exit status is
    3 if the data fails a gate, so that nothing is trained, or if the model does not pass, so that
    nothing is published. All other results are in the output folder.
    """
    execute(output, given, force=from_ and from_.value, is_dry=dry_run)


@app.command("config")
@options.take_options(CONFIG, SET, *OF_COLUMNS)
def print_configuration(
    given: Given,
    all_: Annotated[
        bool, typer.Option("--all", help="Print all keys, those with their defaults, too.")
    ] = False,
) -> None:
    """Print the keys of the configuration that differ from their defaults, with comments.

    With files, propose a type for each column without a role, and the correction of clicks, and
    mark features that order the labels alone.
    """
    configuration, left_out, why = propose(given.load())
    suspects = leakage.suspects(configuration)
    print(text(configuration, left_out, why, suspects, only_changed=not all_), end="")


def _single(step: RunStep) -> None:
    """Adds the command that runs a single step."""

    def command(output: Output, given: Given) -> None:
        execute(output, given, only=step.name)

    command.__doc__ = f"{step.description} A single step of `run`."
    app.command(step.name, epilog=AFTER)(options.take_options(*COMMON)(command))


for _step in STEPS.values():
    if _step.name != "evaluate":  # a command of its own, also for models without a run
        _single(_step)


@app.command(epilog=AFTER)
@options.take_options(*COMMON, *keys("search"))
def tune(
    output: Annotated[
        Path, typer.Option(help="Folder of the study: new, empty, or of a study to continue.")
    ],
    given: Given,
) -> None:
    """Search the ranges of the section `search` for the configuration with the best validation
    NDCG@10, and write it to `best.toml`.

    In the folder of a study, finished trials are kept and interrupted trials continue. Several
    processes can work on one study.
    """

    def on_interrupt() -> None:
        tell("interrupted; finished trials and epochs are kept")
        tell(f"continue with: {shell(PIPELINES, 'tune', '--output', output)}")

    console = Terminal(soft_wrap=True)
    with _exit_statuses(on_interrupt):
        configuration = Job.of(given.load(output), output).configuration
        # Imported late, so that help and errors do not wait for TensorFlow.
        with quiet():
            from tfrank_sel.pipelines.run import tuning

        # Optuna logs each trial, which the progress shows already.
        logging.getLogger("optuna").setLevel(logging.WARNING)
        # it warns when many models are traced
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        study = tuning.Study(configuration, output)
        study.prepare(Progress(console))
        study.run(console)
    _tell_best(study, console)


def _tell_best(study: "Study", console: Terminal) -> None:
    """Prints the best trial, and the command to train it."""
    best = study.best
    if best is None:
        console.print("no trial is complete")
        return
    console.print(f"best: NDCG@10 {best.value:.4f} of trial {best.number}")
    console.print("Next:", style="bold")
    console.print(shell("optuna-dashboard", f"sqlite:///{study.output / 'study.db'}"))
    console.print(
        shell(PIPELINES, "run", "--config", study.output / "best.toml", "--output", "RUN")
    )


@contextlib.contextmanager
def _exit_statuses(interrupted: Callable[[], None]) -> Iterator[None]:
    """Ends a command with one line and its exit status: 3 by a gate, 130 by an interrupt."""
    try:
        yield
    except GateError as error:
        tell(f"{error}\nnothing is trained")
        raise typer.Exit(3) from error
    except KeyboardInterrupt as error:
        interrupted()
        raise typer.Exit(130) from error


def execute(
    output: str,
    given: Given,
    *,
    only: str | None = None,
    force: str | None = None,
    is_dry: bool = False,
) -> None:
    """Runs all steps that are not up to date, or a single step.

    Args:
        output: Folder of the run.
        given: The configuration; by default that of the run.
        only: The only step to run.
        force: The first step to run again.
        is_dry: Whether to check the configuration and print the steps only.
    """
    console = Terminal(soft_wrap=True)
    with _exit_statuses(lambda: _tell_interrupted(output)):
        if re.search(r"[\[\\]", output if stores.is_remote(output) else os.path.abspath(output)):
            # it reads the variables of a model by a pattern
            raise InputError(output, "the path must have no `[` and no `\\`, as TensorFlow's paths")
        asked = given.load(output)
        if only and given.file is None and asked.data == Configuration().data:
            raise rejection(output, "expected the folder of a run, or --config", "neither")
        may_assist = only in (None, "train") and os.environ.get("TF_CONFIG")
        if may_assist and execution.assist(asked, output, force=force):
            return
        job = Job.of(asked, output)
        for name, reason in job.left_out.items():
            console.print(f"omitted column {name!r}: {reason}")
        if asked.model.trees != job.configuration.model.trees and asked.training.takes_trees:
            console.print("no boosted trees: LightGBM is not installed (`tfrank_sel[lightgbm]`)")
        if is_dry:
            _tell_plan(job, force, console)
            return
        result, steps = execution.carry_out(job, Progress(console), only=only, force=force), []
        if result and only is None:
            from tfrank_sel.pipelines.reporting import tables, verdict

            judged = verdict.Verdict.of(result)
            steps = judged.next
            console.print(judged.headline, style="bold")
            if judged.difference:
                console.print(judged.difference)
            if judged.losses:
                console.print(judged.losses, style="red")
            for table in tables.tables(result):
                console.print(table)
    if only in (None, "push"):
        _tell_pushed(job.path, steps, console)


def _tell_plan(job: Job, force: str | None, console: Terminal) -> None:
    """Prints the features and the steps of a run, after checks of the configuration."""
    plan = execution.check(job, force)
    for name, feature in job.configuration.features.items():
        console.print(f"feature {name!r}: {feature}")
    for name, step in plan.steps.items():
        verb = "run " if step.reason else "keep"
        console.print(f"{verb} {name:10} {step.reason}")
    print("dry run: nothing is written")


def _tell_pushed(output: Path, steps: Sequence[str], console: Terminal) -> None:
    """Prints where the model is, or why it is not published, and what to do next."""
    pushed = folders.read_json(output / "push" / "pushed.json")
    if not pushed["blessed"]:
        for reason in pushed["reasons"]:
            tell(f"not blessed: {reason}")
        where = output / "push" / "blessing.json"
        tell(f"nothing is published; see {where}")
        if steps:
            _tell_next(steps, console)
        raise typer.Exit(3)
    damage = stores.difference(pushed["saved_model"], output / "export" / "saved_model")
    if damage is not None:
        again = "`run --from push` publishes the model again"
        tell(f"{damage} was removed or changed: {again}")
        raise typer.Exit(3)
    _tell_next(steps, console)
    base, _, _ = pushed["saved_model"].rpartition("/")
    request = output / "export" / folders.REQUEST
    [one_query] = {*request.parent.glob("one_query.*")} - {request}
    console.print(shell(SERVING, "serve", "--model-base-path", base))
    model = Path(base).name
    name = [] if model == "ranker" else ["--model-name", model]
    console.print(shell(SERVING, "rank", "--file", one_query, *name))
    # Runs of earlier versions have no request.
    if request.exists():
        predict = f"http://localhost:8501/v1/models/{model}:predict"
        console.print(shell("curl", "-d", f"@{request}", predict))


def _tell_next(steps: Sequence[str], console: Terminal) -> None:
    console.print("Next:", style="bold")
    for step in steps:
        console.print(step)


def _tell_interrupted(output: str) -> None:
    """Prints what is kept, and how to continue."""
    folder = Mirror.of(output).path
    kept = [step for step in STEPS if (folder / step).is_dir()]
    if (folder / ".train.partial").is_dir():
        kept.append("the epochs of the training")
    tell(f"interrupted; kept: {', '.join(kept) or 'nothing'}")
    if kept:
        tell(f"continue with: {shell(PIPELINES, 'run', '--output', output)}")
