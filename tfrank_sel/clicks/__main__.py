"""The command line: `tfrank-sel-clicks`, or `python -m tfrank_sel.clicks`."""

import dataclasses
import pathlib
from typing import Annotated

import numpy as np

from tfrank_sel.errors import refusal, require_extra

with require_extra("tfrank-sel-clicks", "clicks"):
    import typer
    from pyarrow import parquet

from tfrank_sel import clicks
from tfrank_sel.clicks import tables, ubi as insights
from tfrank_sel.clicks.comparison import choose
from tfrank_sel.clicks.correction import Correction
from tfrank_sel.clicks.log import read
from tfrank_sel.clicks.propensities import Method
from tfrank_sel.commandline import Application, Version, log_warnings
from tfrank_sel.data import stores
from tfrank_sel.data.table import readable
from tfrank_sel.locks import atomic_path

Files = Annotated[
    list[str],
    typer.Argument(
        help="The log: files, folders or patterns; Parquet, Arrow, CSV, TSV or JSON lines."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(help="Format of the files, such as tsv; inferred from their names if unset."),
]
Query = Annotated[str, typer.Option(help="Column of the query.")]
Item = Annotated[str, typer.Option(help="Column of the item.")]
Position = Annotated[str, typer.Option(help="Column of the position, from 1.")]
Click = Annotated[str, typer.Option(help="Column of the click, 0 or 1.")]
Session = Annotated[str, typer.Option(help="Column of the session.")]
Shown = Annotated[
    str,
    typer.Option(
        help="Column of the number of impressions, if the log is of counts; empty if it is not."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        help="Column of the device or page layout; warns if positions have other effects in some."
    ),
]

app = Application(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _commands(version: Version = False) -> None:
    """Correct a click log, estimate what a new ranker would earn, and compare two rankers."""


@app.command()
def correct(
    log: Files,
    output: Annotated[
        pathlib.Path, typer.Option(help="Parquet file to write, with one row per query and item.")
    ],
    query: Query = "query",
    item: Item = "item",
    position: Position = "position",
    click: Click = "click",
    session: Annotated[
        str | None, typer.Option(help="Column of the session, for models of what users read.")
    ] = None,
    shown: Shown = "shown",
    label: Annotated[str, typer.Option(help="Name of the column of corrected labels.")] = (
        "relevance"
    ),
    method: Annotated[
        Method, typer.Option(help="Method that estimates the propensities.")
    ] = "auto",
    correction: Annotated[Correction, typer.Option(help="Correction of the labels.")] = "pooled",
    least: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least propensity that divides clicks.")
    ] = 0.0,
    group: Group = None,
    format: Format = None,
) -> None:
    """Make a training table without position bias from a log of clicks.

    Other columns are kept, with their values in the first row of each query and item. The
    propensities are printed, and written to `NAME.propensities.json`.
    """
    if output.exists():
        raise ValueError(f"{output}: exists. Expected a new file")
    if not label:
        raise refusal("--label must be the name of a column", repr(label))
    if group and method != "auto":
        raise refusal("--group requires --method auto, which compares groups", f"{method}")
    roles = _roles(query, item, position, click, session, shown)
    roles |= {"group": group} if group else {}
    table = read(stores.expand(log), roles, others=True, format=format)
    if label in set(table.columns.column_names) - {click}:
        raise ValueError(f"{log[0]}: has a column {label}, which --label would replace")
    with log_warnings():
        click_log = clicks.Log.of(table)
        estimated = clicks.estimate(click_log, method)
    with atomic_path(output) as written:
        with readable(log[0], "columns that Parquet can hold"), log_warnings():
            parts = table.restore_types(), roles, click_log, estimated
            kept = tables.unbiased_table(*parts, label, correction, least)
            parquet.write_table(kept, written)
        estimated.save(output.with_suffix(".propensities.json"))
    print(f"method: {estimated.reason}")
    print("position  propensity  95 % interval")
    for row in zip(
        estimated.positions, estimated.values, estimated.low, estimated.high, strict=True
    ):
        print("{:8d}  {:10.3f}  {:.3f} to {:.3f}".format(*row))
    for name, reason in table.left_out.items():
        print(f"left out: column {name}: {reason}")
    print(f"{kept.num_rows} labels in {output}")


@app.command()
def ubi(
    queries: Annotated[
        str,
        typer.Argument(
            help="Rows of `ubi_queries`: a file, folder or pattern; JSON lines, Parquet or CSV."
        ),
    ],
    events: Annotated[str, typer.Argument(help="Rows of `ubi_events`.")],
    output: Annotated[pathlib.Path, typer.Option(help="Parquet file to write: the log.")],
    click: Annotated[str, typer.Option(help="Name of the action of a click.")] = "click",
    impression: Annotated[
        str, typer.Option(help="Name of the action of an impression; without any, hits were shown.")
    ] = "impression",
    format: Format = None,
) -> None:
    """Make a log for the other commands from OpenSearch's User Behavior Insights."""
    if output.exists():
        raise ValueError(f"{output}: exists. Expected a new file")
    paths = stores.expand([queries]), stores.expand([events])
    table, left_out = insights.read(*paths, click=click, impression=impression, format=format)
    with atomic_path(output) as written:
        parquet.write_table(table, written)
    print(f"{table.num_rows} items of {len(table['session'].unique())} sessions in {output}")
    if left_out:
        print(insights.summary_line(left_out))


@app.command()
def models(
    log: Files,
    query: Query = "query",
    item: Item = "item",
    position: Position = "position",
    click: Click = "click",
    session: Session = "session",
    shown: Shown = "shown",
    format: Format = None,
) -> None:
    """Compare click models by the likelihood of held-out sessions, the best one first."""
    roles = _roles(query, item, position, click, session, shown)
    table = read(stores.expand(log), roles, format=format)
    compared = clicks.compare(clicks.Log.of(table))
    print(
        "model     log-likelihood per session  perplexity  behind  standard error  p-value of fit"
    )
    for fit in compared:
        line = f"{fit.model:8}  {fit.log_likelihood:26.4f}  {fit.perplexity:10.4f}"
        print(f"{line}  {fit.behind:6.4f}  {fit.error:14.4f}  {fit.fits:14.2g}")
    print(f"These may be right: {', '.join(choose(compared))}")


@app.command()
def value(
    log: Files,
    score: Annotated[str, typer.Option(help="Column of the new ranker's score.")],
    propensities: Annotated[
        pathlib.Path, typer.Option(help="File of propensities that `correct` wrote.")
    ],
    query: Query = "query",
    item: Item = "item",
    position: Position = "position",
    click: Click = "click",
    session: Session = "session",
    shown: Shown = "shown",
    format: Format = None,
) -> None:
    """Estimate the clicks per session that a new ranker would earn, from the log of another.

    The new ranker orders the items of each session by its score. Clicks on items that repeat share
    their impressions if the log has queries and items. Intervals leave out groups of queries.
    """
    estimated = clicks.Propensities.load(propensities)
    roles = _roles(query, item, position, click, session, shown) | {"score": score}
    optional = ["query", "item", "shown"]
    table = read(stores.expand(log), roles, optional=optional, format=format)
    # without a name, each session is a query, and each row an item of its own
    rows = {"query": table["session"], "item": np.arange(len(table))}
    click_log = clicks.Log.of(dataclasses.replace(table, roles={**rows, **table.roles}))
    values = clicks.reordered(click_log, estimated.nearest(click_log.positions), table["score"])
    print("ranker      clicks per session  95 % interval  effective impressions")
    for name, x in values.items():
        print(f"{name:10}  {x.value:18.4f}  {x.low:.4f} to {x.high:.4f}  {x.effective:.0f}")
    by_model = values["difference"].by_model
    if len(by_model) > 1:
        each = ", ".join(f"{name} {x:.4f}" for name, x in by_model.items())
        print(f"The interval joins the models of users that may be right: difference by {each}")


@app.command()
def interleaved(
    log: Annotated[
        list[str],
        typer.Argument(
            help="The log of `serve --interleave`, a table with teams and clicks, or the log of an "
            "A/B test of OpenSearch: answers with a session, or events of UBI."
        ),
    ],
    clicked: Annotated[
        list[str] | None,
        typer.Option(
            "--clicks", help="Table of sessions and clicked items, for that log; may be repeated."
        ),
    ] = None,
    session: Session = "session",
    item: Item = "item",
    team: Annotated[str, typer.Option(help="Column of the team of each item, 0 or 1.")] = "team",
    credit: Annotated[
        str | None,
        typer.Option(help="Column of the credit of each item, of `optimised`, instead of teams."),
    ] = None,
    click: Click = "click",
    query: Annotated[
        str | None,
        typer.Option(
            help="Column of the query, or name in the log, whose sessions are not independent; if "
            "unset, sessions of the log that were shown the same items are of one query."
        ),
    ] = None,
    format: Format = None,
) -> None:
    """Compare two rankers by the clicks on lists that were mixed by interleaving.

    Sessions of teams are compared by the sign test, those of credits by the test of their mean, and
    both by the sums of queries if sessions repeat these.
    """
    roles = {"session": session, "click": click}
    roles |= {} if query is None else {"query": query}
    paths = stores.expand(log)
    if clicked:
        tables_of = stores.expand(clicked)
        with log_warnings():
            joined = {**roles, "item": item}
            credited = tables.joined_credits(paths, tables_of, joined, format=format)
    else:
        roles |= {"team": team} if credit is None else {"credit": credit}
        credited = tables.session_credits(paths, roles, format=format)
    credits = credited.values.round(9)  # what is 0 but for rounding decides nothing
    p = (
        clicks.sign_test(credits, 0.0 * credits, credited.queries)
        if credited.are_teams
        else clicks.mean_test(credits, credited.queries)
    )
    wins = [int((sign * credits > 0.0).sum()) for sign in (1, -1)]
    first, second = (f"by {x}: {count}" for x, count in zip(credited.names, wins, strict=True))
    print(f"sessions won {first}, {second}, by none: {len(credits) - sum(wins)}")
    of_queries = "sessions as independent: name --query if queries repeat"
    if credited.queries is not None:
        of_queries = f"sessions of {len(np.unique(credited.queries))} queries"
    print(f"p-value: {p:.4g} ({of_queries})")


def _roles(*names: str | None) -> dict[str, str]:
    """The columns of the roles of a log, without that of impressions if its name is empty."""
    roles = zip(("query", "item", "position", "click", "session", "shown"), names, strict=True)
    return {role: name for role, name in roles if name or (role != "shown" and name is not None)}


def main() -> None:
    """Runs the command line; a wrong file or column ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
