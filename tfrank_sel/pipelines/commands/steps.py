"""Commands of a run: all of its steps, or a single step."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tfrank_sel.commandline import refused
from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines import flags
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError, load
from tfrank_sel.pipelines.configuration.inputs import complete
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.files.mirrors import Mirror


def take(
    output: str,
    config: str | None,
    options: Mapping[str, Any],
    *,
    only: str | None = None,
    force: str | None = None,
    is_dry: bool = False,
) -> None:
    """Runs all steps that are not up to date, or a single step.

    Args:
        output: Folder of the run.
        config: Configuration file; by default that of the run.
        options: Options of the command, by name.
        only: The only step to run.
        force: The first step to run again.
        is_dry: Whether to check the configuration and print the steps only.
    """
    console = Console(soft_wrap=True)
    try:
        kept = stores.join(output, folders.CONFIGURATION)
        if config is None and stores.is_file(kept):
            config = kept
        given = load(config, flags.overrides(options))
        if only in (None, "train") and os.environ.get("TF_CONFIG"):
            with quiet():
                from tfrank_sel.pipelines import run as pipeline

            if pipeline.assist(given, output, is_forced=force is not None):
                return
        configuration, found, left_out = complete(given)
        for name, reason in left_out.items():
            console.print(f"omitted column {name!r}: {reason}", highlight=False)
        if given.model.trees != configuration.model.trees and len(given.training.loss) > 1:
            told = "no boosted trees: LightGBM is not installed (`tfrank_sel[lightgbm]`)"
            console.print(told, highlight=False, markup=False)
        sources = [source.path for source in found.sources] if found else []
        chosen = [only] if only else [*manifests.STEPS]
        mirror = Mirror.of(output)
        if is_dry:
            _tell_plan(configuration, output, force, console)
            return
        if mirror.url or force or _is_due(mirror.path, configuration, sources, chosen):
            # Imported late, so that help, errors and finished runs do not wait for TensorFlow.
            with quiet():
                from tfrank_sel.pipelines import console as tables, run as pipeline

            progress = tables.Progress(console)
            result = pipeline.run(configuration, output, progress, only=only, force=force)
            if only is None:
                for table in tables.tables(result):
                    console.print(table)
        else:
            stale = manifests.stale(
                manifests.current(configuration, sources, mirror.path), mirror.path
            )
            manifests.check_written(mirror.path, [x for x in manifests.STEPS if x not in stale])
            for step in chosen:
                console.print(f"[green]kept[/] {step:18} up to date", highlight=False)
    except (ConfigurationError, InputError) as error:
        raise refused(error) from error
    except GateError as error:
        print(f"{error}\nnothing is trained", file=sys.stderr)
        raise typer.Exit(3) from error
    except KeyboardInterrupt as error:
        raise _interrupted(output) from error
    if "push" in chosen:
        _tell_pushed(mirror.path, console)


def _tell_plan(
    configuration: Configuration, output: str, force: str | None, console: Console
) -> None:
    """Prints the features and the steps of a run, after checks of the configuration."""
    with quiet():
        from tfrank_sel.pipelines import run as pipeline

    stale, forced = pipeline.plan(configuration, output), False
    for name, feature in configuration.features.items():
        console.print(f"feature {name!r}: {feature}", highlight=False)
    for step in manifests.STEPS:
        forced = forced or step == force
        reason = stale.get(step, "forced" if forced else "")
        console.print(f"{'run ' if reason else 'keep'} {step:10} {reason}", highlight=False)
    print("dry run: nothing is written")


def _is_due(
    output: Path, configuration: Configuration, sources: Sequence[str], chosen: Sequence[str]
) -> bool:
    """Whether a step is not up to date, or a summary file of the whole run is missing."""
    wanted = manifests.current(configuration, sources, output)
    if manifests.stale(wanted, output).keys() & chosen:
        return True
    told = ["report.html", *(["tracking.json"] if configuration.tracking.mlflow else [])]
    return len(chosen) > 1 and not all((output / name).exists() for name in told)


def _tell_pushed(output: Path, console: Console) -> None:
    """Prints where the model is, or why it is not published."""
    pushed = json.loads((output / "push" / "pushed.json").read_text())
    if not pushed["blessed"]:
        for reason in pushed["reasons"]:
            print(f"not blessed: {reason}", file=sys.stderr)
        where = output / "push" / "blessing.json"
        print(f"nothing is published; see {where}", file=sys.stderr)
        raise typer.Exit(3)
    if not stores.is_file(stores.join(pushed["saved_model"], "saved_model.pb")):
        again = "`run --from push` publishes the model again"
        print(f"{pushed['saved_model']} was removed: {again}", file=sys.stderr)
        raise typer.Exit(3)
    console.print("Next:", style="bold")
    base, _, _ = pushed["saved_model"].rpartition("/")
    request = output / "export" / folders.REQUEST
    [one_query] = {*request.parent.glob("one_query.*")} - {request}
    print(f"tfrank-sel-serving serve --model-base-path {base}")
    model = Path(base).name
    name = "" if model == "ranker" else f" --model-name {model}"
    print(f"tfrank-sel-serving rank --file {one_query}{name}")
    if request.exists():  # absent from older runs
        print(f"curl -d @{request} http://localhost:8501/v1/models/{model}:predict")


def _interrupted(output: str) -> typer.Exit:
    """Prints what is kept, and how to continue."""
    folder = Mirror.of(output).path
    kept = [step for step in manifests.STEPS if (folder / step).is_dir()]
    if (folder / ".train.partial").is_dir():
        kept.append("the epochs of the training")
    print(f"interrupted; kept: {', '.join(kept) or 'nothing'}", file=sys.stderr)
    if kept:
        print(f"continue with: tfrank-sel-pipelines run --output {output}", file=sys.stderr)
    return typer.Exit(130)


def _command(step: str, told: str) -> Callable[..., None]:
    """Returns the command that runs a single step."""

    def command(
        context: typer.Context,
        output: flags.Output,
        beam_options: flags.BeamOptions = None,
        config: flags.Config = None,
        set: flags.Set = None,
        module: flags.Module = None,
    ) -> None:
        take(output, config, context.params, only=step)

    command.__doc__ = f"{told} A single step of `run`."
    return command


COMMANDS = {
    step: _command(step, told)
    for step, told in {
        "ingest": "Convert the files to records, split by query.",
        "analyze": "Compute statistics, schema and anomalies, and check them against the gates.",
        "train": "Train the model and the baseline; continues an interrupted training.",
        "export": "Export the SavedModel, and test it.",
        "push": "Compare the model with the served one, and publish it if it passes.",
    }.items()
}
