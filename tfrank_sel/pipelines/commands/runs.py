"""The commands `runs list` and `runs compare`."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from tfrank_sel.commandline import Application
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines.commands.options import REFUSES
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import mirrors
from tfrank_sel.pipelines.run import registry
from tfrank_sel.terminal import Terminal

app = Application(*REFUSES, no_args_is_help=True, help="List and compare runs.")


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder of runs.")] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs in a folder, at any depth."""
    summaries = [registry.summary(run) for run in registry.runs(folder)]
    summaries.sort(key=lambda run: run.made or "")
    if as_json:
        print(json.dumps([dataclasses.asdict(run) for run in summaries], indent=2, default=str))
        return
    table = Table(
        Column("run", overflow="fold"),
        Column("made", min_width=10),
        Column("losses", no_wrap=True),
        registry.METRIC,
        "difference (95 % interval)",
        Column("published", min_width=9),
    )
    for run in summaries:
        table.add_row(
            str(run.folder.relative_to(folder)),
            (run.made or "")[:16].replace("T", " "),
            "\n".join(run.losses),
            *_metric(run),
            _describe_version(run),
        )
    Terminal().print(table if summaries else f"no run in {folder}")


def _describe_version(run: registry.RunSummary) -> str:
    if run.damage is not None:
        return f"damaged: {run.damage}"
    if run.unfinished:
        return f"unfinished: {', '.join(run.unfinished)}"
    return f"version {run.version}" if run.blessed else "no"


def _metric(run: registry.RunSummary) -> tuple[str, str]:
    if run.metric is None:
        return "", ""
    value, low, high = (run.metric[name] for name in ("ours", "low", "high"))
    gap = value - run.metric["baseline"]
    return f"{value:.4f}", f"{gap:+.4f} ({low:+.4f} to {high:+.4f}) {run.against}"


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="Folder or URL of a run, whose test split is used.")],
    b: Annotated[str, typer.Argument(help="Folder or URL of another run.")],
) -> None:
    """Compare the exported models of two runs on the same lists, their settings and training."""
    console = Terminal()
    # Imported late, so that help and errors do not wait for TensorFlow.
    with quiet():
        from tfrank_sel.pipelines.reporting import tables
        from tfrank_sel.pipelines.run import comparison

    compared = comparison.compare(mirrors.near(a), mirrors.near(b), Progress(console))
    settings = Table("setting", *compared.names)
    for key, *values in compared.settings:
        settings.add_row(key, *("" if x is None else str(x) for x in values))
    training = Table("run", "loss", "epochs, trees", "best validation NDCG@10")
    for name, fits in compared.fits.items():
        for fit in fits:
            training.add_row(name, fit["loss"], str(fit["epochs"]), f"{fit['validation_ndcg']:.4f}")
    first, second = compared.names
    for table in (
        settings,
        training,
        tables.slices_table(compared.evaluation, registry.METRIC, second),
        tables.comparison_table(compared.evaluation.overall, first, second),
    ):
        console.print(table)
