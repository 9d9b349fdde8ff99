"""Click logs in files of tables."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrank_sel.clicks import ubi
from tfrank_sel.clicks.correction import labels
from tfrank_sel.clicks.log import Floats, Log, read
from tfrank_sel.clicks.propensities import Propensities
from tfrank_sel.data import InputError, Rejected, formats
from tfrank_sel.data.arrays import encode
from tfrank_sel.data.table import identifier, tell_partners
from tfrank_sel.errors import received


def unbiased_table(
    table: Any,
    roles: Mapping[str, str],
    log: Log,
    propensities: Propensities,
    label: str,
    correction: str = "pooled",
    least: float = 0.0,
) -> Any:
    """Returns a table with one row per query and item, whose label has no position bias.

    Args:
        table: The Arrow table of the log.
        roles: Names of its columns. Those of `position`, `click`, `shown` and `session` are left
            out; others have their values in the first row of each query and item, in the order of
            these.
        log: The log.
        propensities: Propensities of its positions.
        label: Name of the column of labels.
        correction: As in `labels`.
        least: As in `labels`.
    """
    estimates = labels(log, propensities, correction, least=least)
    kept = {roles["query"], roles["item"]}
    dropped = {roles[x] for x in ("position", "click", "shown", "session") if x in roles} - kept
    names = [x for x in table.column_names if x not in dropped]
    first = np.unique(log.items, return_index=True)[1]
    order = np.argsort(first)
    rows = table.select(names).take(first[order])
    return rows.append_column(label, pa.array(estimates["label"][order]))


class Credits(NamedTuple):
    """The credits that the clicks of sessions give the first of two rankers.

    Args:
        values: Sum of each session, `[sessions]`; negative for the second ranker.
        are_teams: Whether items are of teams: a click has the credit 1 or -1.
        queries: Query of each session, `[sessions]`, texts; None if not asked for.
        names: Names of the rankers.
    """

    values: Floats
    are_teams: bool
    queries: NDArray[Any] | None
    names: Sequence[str] = ("0", "1")


def session_credits(
    paths: Sequence[str], roles: Mapping[str, str], *, format: str | None
) -> Credits:
    """Sums the credits of the clicked items of each session.

    Args:
        paths: Files of tables with a row for each item that was shown; or of events of UBI on an
            A/B test of OpenSearch.
        roles: Names of their columns `session`, `click`, `team` or `credit`, and perhaps `query`;
            in events, `click` is the name of the action.
        format: As in `formats.table`.

    Raises:
        InputError: As `read`, and as `ubi.ab_test_events`.
    """
    if set(formats.names(paths, format)) & {"event_attributes", "_source"}:
        return _of_events(paths, roles, format)
    table = read(paths, roles, format=format)
    are_teams = "team" in roles
    values = 1.0 - 2.0 * table["team"] if are_teams else table["credit"]
    sessions = encode(table["session"], sort=True)[1]
    first = np.unique(sessions, return_index=True)[1]
    sums = np.asarray(np.bincount(sessions, table["clicks"] * values), np.float64)
    queries = table.roles.get("query")
    return Credits(sums, are_teams, None if queries is None else queries[first])


def _of_events(paths: Sequence[str], roles: Mapping[str, str], format: str | None) -> Credits:
    won: dict[str, set[tuple[str, str]]] = {}
    queries: dict[str, str | None] = {}
    query = roles.get("query")
    for session, item, configuration, text in ubi.ab_test_events(
        paths, roles["click"], query, format
    ):
        won.setdefault(session, set()).add((item, configuration))
        queries.setdefault(session, text)
    names = _two(paths[0], {x for clicked in won.values() for _, x in clicked})
    teams = dict(zip(names, (1.0, -1.0), strict=True))
    sums = np.array([sum(teams[x] for _, x in clicked) for clicked in won.values()])
    return Credits(sums, True, np.array(list(queries.values()), object) if query else None, names)


def _two(path: str, configurations: Iterable[str]) -> Sequence[str]:
    """The search configurations of an A/B test, in the order of their names."""
    names = sorted(configurations)
    if len(names) != 2:
        expected = "expected items of two search configurations"
        raise InputError(path, received(expected, ", ".join(names) or "none"))
    return names


def joined_credits(
    logs: Sequence[str], clicked: Sequence[str], roles: Mapping[str, str], *, format: str | None
) -> Credits:
    """Sums the credits of the clicked items of each session, by the lists that it was shown.

    Args:
        logs: Logs of `tfrank-sel-serving serve --interleave`; or of the answers of the A/B tests of
            OpenSearch's search-relevance plugin, each with a `session`.
        clicked: Files of tables with a row for each click or, if they have the column `click`, also
            for other items; it may be absent from all of them if it has that name.
        roles: Names of their columns `session`, `item` and `click`; and perhaps of the `query` of a
            line of the logs, which is otherwise told by the items.
        format: Format of the tables, as in `formats.table`.

    Raises:
        InputError: If a file is no such file, or has no click.
        ValueError: If less than half of the clicks are on items of the logs.

    Warns:
        UserWarning: If some clicks are not on items of the logs.
    """
    named = {role: roles[role] for role in ("session", "item", "click")}
    table = read(clicked, named, optional=("click",), format=format)
    is_click = table.roles.get("clicks", np.ones(len(table))) > 0.0
    each = [*zip(table["session"][is_click], table["item"][is_click], strict=True)]
    clicks = set(each)
    won: dict[str, set[tuple[str, float]]] = {}  # clicked items; a session may have several lines
    queries: dict[str, str] = {}
    kind = ""
    # The keys are search configurations.
    teams: dict[str, float] = {}
    torn: list[Rejected] = []  # by servers that were stopped, or wrote one log at once
    lines = 0
    for where, row in formats.dicts(logs, (), "jsonl", torn):
        lines += 1
        try:
            kind = kind or next((x for x in ("hits", "credits") if x in row), "teams")
            session = identifier(where, "session", row["session"])
            if kind == "hits":
                # The plugin writes hits so: ABTestSearchTransportAction.mapHit,
                # search-relevance#511.
                items = [identifier(where, "_id", x["_id"]) for x in row["hits"]]
                name = "_search_configuration_id"
                of = [identifier(where, name, x[name]) for x in row["hits"]]
                values = [teams.setdefault(x, 1.0 - 2.0 * len(teams)) for x in of]
            else:
                values = [{0: 1.0, 1: -1.0}[x] if kind == "teams" else float(x) for x in row[kind]]
                items = [identifier(where, "items", x) for x in row["items"]]
            # without its name, lists of the same items are of one query
            query = "\0".join(sorted(items))
            if "query" in roles:
                query = identifier(where, roles["query"], row[roles["query"]])
            queries.setdefault(session, query)
            shown = won.setdefault(session, set())
            pairs = zip(items, values, strict=True)
            shown.update(pair for pair in pairs if (session, pair[0]) in clicks)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            expected = "expected the log of `serve --interleave` or of an A/B test of OpenSearch"
            raise InputError(where, received(expected, repr(error))) from None
    if len(torn) > lines:
        raise torn[0].error()
    if torn:
        of_all = f"{len(torn)} of {len(torn) + lines} lines of the logs"
        warnings.warn(f"{of_all} are torn, and left out; first: {torn[0].error()}", stacklevel=2)
    if not each:
        raise InputError(clicked[0], received("expected a click", "none"))
    listed = {(session, item) for session, pairs in won.items() for item, _ in pairs}
    is_listed = np.array([pair in listed for pair in each])
    of_logs = f"the items of the sessions of {logs[0]}"
    told = [f"{item} of {session}" for session, item in each]
    tell_partners(f"clicks of {clicked[0]}", is_listed, of_logs, told)
    sums = np.array([sum(credit for _, credit in x) for x in won.values()])
    names = np.array([queries[x] for x in won], object)
    is_told = "query" in roles or len(set(queries.values())) > 1
    of_sessions = names if is_told else None
    if kind != "hits":
        return Credits(sums, kind == "teams", of_sessions)
    first, second = _two(logs[0], teams)
    return Credits(teams[first] * sums, True, of_sessions, (first, second))
