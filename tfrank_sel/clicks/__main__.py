"""The command line: `tfrank-sel-clicks`, or `python -m tfrank_sel.clicks`."""

import pathlib
from typing import Annotated

import numpy as np

try:
    import typer
    from pyarrow import parquet
except ModuleNotFoundError as error:
    raise ImportError(
        f"tfrank-sel-clicks needs {error.name}: pip install 'tfrank_sel[clicks]'"
    ) from error

from tfrank_sel import clicks
from tfrank_sel.clicks import tables
from tfrank_sel.clicks.correction import Correction
from tfrank_sel.clicks.propensities import Method
from tfrank_sel.commandline import Application, Version, refused
from tfrank_sel.locks import created

File = Annotated[
    pathlib.Path, typer.Argument(help="The log: Parquet, Arrow, CSV, TSV or JSON lines.")
]
Query = Annotated[str, typer.Option(help="Column of the query.")]
Item = Annotated[str, typer.Option(help="Column of the item.")]
Position = Annotated[str, typer.Option(help="Column of the position, from 1.")]
Click = Annotated[str, typer.Option(help="Column of the click, 0 or 1.")]
Session = Annotated[str, typer.Option(help="Column of the session.")]

app = Application(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _commands(version: Version = False) -> None:
    """Correct a click log, estimate what a new ranker would earn, and compare two rankers."""


@app.command()
def correct(
    log: File,
    output: Annotated[
        pathlib.Path, typer.Option(help="Parquet file to write, with one row per query and item.")
    ],
    query: Query = "query",
    item: Item = "item",
    position: Position = "position",
    click: Click = "click",
    session: Annotated[
        str | None, typer.Option(help="Column of the session, for click models other than pbm.")
    ] = None,
    label: Annotated[str, typer.Option(help="Name of the column of corrected labels.")] = (
        "relevance"
    ),
    method: Annotated[
        Method, typer.Option(help="Method that estimates the propensities.")
    ] = "all_pairs",
    correction: Annotated[Correction, typer.Option(help="Correction of the labels.")] = "pooled",
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least propensity that divides clicks.")
    ] = 0.0,
) -> None:
    """Make a training table without position bias from a log of clicks.

    Other columns are kept, with their values in the first row of each query and item. The
    propensities are printed, and written to `NAME.propensities.json`.
    """
    try:
        if output.exists():
            raise ValueError(f"{output}: exists. Expected a new file")
        table = tables.read(log)
        roles = {"query": query, "item": item, "position": position, "click": click}
        roles |= {} if session is None else {"session": session}
        if label in set(table.column_names) - {click}:
            raise ValueError(f"{log}: has a column {label}, which --label would replace")
        found = clicks.Log(**tables.columns(log, table, roles))
        estimated = clicks.estimate(found, method)
        kept = tables.corrected(table, roles, found, estimated, label, correction, least)
        with created(output) as written:
            parquet.write_table(kept, written)
            estimated.save(output.with_suffix(".propensities.json"))
    except (OSError, ValueError) as error:
        raise refused(error) from error
    print("position  propensity  95 % interval")
    for row in zip(
        estimated.positions, estimated.values, estimated.low, estimated.high, strict=True
    ):
        print("{:8d}  {:10.3f}  {:.3f} to {:.3f}".format(*row))
    print(f"{kept.num_rows} labels in {output}")


@app.command()
def ubi(
    queries: Annotated[
        pathlib.Path, typer.Argument(help="Rows of `ubi_queries`: JSON lines or Parquet.")
    ],
    events: Annotated[pathlib.Path, typer.Argument(help="Rows of `ubi_events`.")],
    output: Annotated[pathlib.Path, typer.Option(help="Parquet file to write: the log.")],
    click: Annotated[str, typer.Option(help="Name of the action of a click.")] = "click",
    impression: Annotated[
        str,
        typer.Option(help="Name of the action of an impression; without any, hits were shown."),
    ] = "impression",
) -> None:
    """Make a log for the other commands from OpenSearch's User Behavior Insights."""
    try:
        if output.exists():
            raise ValueError(f"{output}: exists. Expected a new file")
        table = tables.ubi(queries, events, click=click, impression=impression)
        with created(output) as written:
            parquet.write_table(table, written)
    except (OSError, ValueError) as error:
        raise refused(error) from error
    print(f"{table.num_rows} items of {len(table['session'].unique())} sessions in {output}")


@app.command()
def models(
    log: File,
    query: Query = "query",
    item: Item = "item",
    position: Position = "position",
    click: Click = "click",
    session: Session = "session",
) -> None:
    """Compare click models by the likelihood of held-out sessions, the best one first."""
    try:
        roles = {"query": query, "item": item, "position": position, "click": click}
        roles["session"] = session
        found = clicks.compare(clicks.Log(**tables.columns(log, tables.read(log), roles)))
    except (OSError, ValueError) as error:
        raise refused(error) from error
    print("model    log-likelihood per session  perplexity")
    for fit in found:
        print(f"{fit.model:7}  {fit.log_likelihood:26.4f}  {fit.perplexity:10.4f}")


@app.command()
def value(
    log: File,
    score: Annotated[str, typer.Option(help="Column of the new ranker's score.")],
    propensities: Annotated[
        pathlib.Path, typer.Option(help="File of propensities that `correct` wrote.")
    ],
    position: Position = "position",
    click: Click = "click",
    session: Session = "session",
) -> None:
    """Estimate the clicks per session that a new ranker would earn, from the log of another.

    The new ranker orders the items of each session by its score. Clicks are weighted by the ratio
    of the propensities of new and logged position.
    """
    try:
        known = clicks.Propensities.load(propensities)
        roles = {"score": score, "position": position, "click": click, "session": session}
        table = tables.columns(log, tables.read(log), roles)
        found = clicks.Log(  # each row is an item of its own
            table["session"],
            np.arange(len(table["session"])),
            table["position"],
            table["click"],
            session=table["session"],
        )
        values = clicks.reordered(found, known, table["score"], "ips")
    except (OSError, ValueError) as error:
        raise refused(error) from error
    print("ranker      clicks per session  95 % interval  effective impressions")
    for name, x in values.items():
        print(f"{name:10}  {x.value:18.4f}  {x.low:.4f} to {x.high:.4f}  {x.effective:.0f}")


@app.command()
def interleaved(
    log: Annotated[
        pathlib.Path,
        typer.Argument(help="The log of `serve --interleave`, or a table with teams and clicks."),
    ],
    clicked: Annotated[
        pathlib.Path | None,
        typer.Option("--clicks", help="Table of sessions and clicked items, for that log."),
    ] = None,
    session: Session = "session",
    item: Item = "item",
    team: Annotated[str, typer.Option(help="Column of the team of each item, 0 or 1.")] = "team",
    credit: Annotated[
        str | None,
        typer.Option(help="Column of the credit of each item, of `optimised`, instead of teams."),
    ] = None,
    click: Click = "click",
) -> None:
    """Compare two rankers by the clicks on lists that were mixed by interleaving.

    Sessions of teams are compared by the sign test, those of credits by the test of their mean.
    """
    try:
        if clicked:
            roles = {"session": session, "item": item, "click": click}
            credits, are_teams = tables.session_credits(log, clicked, roles)
        else:
            are_teams = credit is None
            roles = {"session": session, "credit": credit or team, "click": click}
            table = tables.columns(log, tables.read(log), roles)
            values = table["credit"]
            if are_teams:
                if (wrong := values[(values != 0) & (values != 1)]).size:
                    raise ValueError(f"{log}: `{team}` must be 0 or 1. Received: {wrong[0]}")
                values = 1 - 2 * values
            _, sessions = np.unique(table["session"], return_inverse=True)
            credits = np.bincount(sessions, table["click"] * values)
        credits = credits.round(9)  # what is 0 but for rounding decides nothing
        p = clicks.sign_test(credits, 0.0 * credits) if are_teams else clicks.mean_test(credits)
    except (OSError, ValueError) as error:
        raise refused(error) from error
    wins = [int((sign * credits > 0.0).sum()) for sign in (1, -1)]
    print(f"sessions won by 0: {wins[0]}, by 1: {wins[1]}, by none: {len(credits) - sum(wins)}")
    print(f"p-value: {p:.4g}")


def main() -> None:
    """Runs the command line; a wrong file or column ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
