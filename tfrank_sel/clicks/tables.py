"""Tables of click logs in files, by pyarrow."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, dataset

from tfrank_sel.clicks.correction import labels
from tfrank_sel.clicks.log import Log
from tfrank_sel.clicks.propensities import Propensities


def read(path: str | pathlib.Path) -> Any:
    """Reads a file, or a folder of Parquet files, as an Arrow table; its suffix tells the format.

    Raises:
        ValueError: If it is no table.
    """
    suffixes = {".arrow": "ipc", ".feather": "ipc", ".jsonl": "json", ".ndjson": "json"}
    suffix = pathlib.Path(pathlib.Path(path).name.removesuffix(".gz")).suffix
    kind: Any = suffixes.get(suffix, suffix[1:])
    if kind == "tsv":
        kind = dataset.CsvFileFormat(csv.ParseOptions(delimiter="\t"))
    try:
        return dataset.dataset(path, format=kind or "parquet", partitioning="hive").to_table()
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"{path}: expected a table. Received: {error}") from None


def columns(path: str | pathlib.Path, table: Any, roles: Mapping[str, str]) -> dict[str, Any]:
    """Returns the columns with a role, which no row may lack.

    Args:
        path: The file, for errors.
        table: The table.
        roles: Name of the column of each role.

    Raises:
        ValueError: If a column is missing, or has no value in a row.
    """
    found = {}
    for role, name in roles.items():
        if name not in table.column_names:
            raise ValueError(
                f"{path}: has no column {name} for {role}. "
                f"Received: {', '.join(table.column_names)}"
            )
        if table[name].null_count:
            raise ValueError(f"{path}: `{name}` must not be null")
        found[role] = table[name].to_numpy()
    return found


def ubi(
    queries: str | pathlib.Path,
    events: str | pathlib.Path,
    *,
    click: str = "click",
    impression: str = "impression",
) -> Any:
    """Reads a log of OpenSearch's User Behavior Insights (UBI) as an Arrow table.

    Columns are `session` (the `query_id`), `query` (the `user_query`), `item` (the `object_id`),
    `position` and `click`. A row is an item with an impression or a click. Without any impressions,
    all items of `query_response_hit_ids` count as shown. Positions from 0 are counted from 1.

    Args:
        queries: File of `ubi_queries`: a table, or JSON lines, which may be those of a search, with
            the document in `_source`.
        events: File of `ubi_events`. Other actions, and events without a known query, are left out.
        click: Name of the action of a click.
        impression: Name of the action of an impression.

    Raises:
        ValueError: If a row lacks a field that is needed, or nothing is a click of a query.

    Reference:
        [UBI 1.3.0](https://github.com/o19s/ubi).
    """
    asked = {str(_field(queries, n, row, "query_id")): row for n, row in _rows(queries)}
    places: dict[tuple[str, str], int] = {}  # of a session and an item
    clicked: dict[tuple[str, str], tuple[int, Any]] = {}
    for number, row in _rows(events):
        action, session = row.get("action_name"), str(row.get("query_id"))
        if action in (click, impression) and session in asked:
            item = str(_field(events, number, row, "event_attributes", "object", "object_id"))
            if action == click:
                clicked.setdefault((session, item), (number, row))
            else:
                places[session, item] = _field(events, number, row, *_ORDINAL)
    if not clicked:
        raise ValueError(f"{events}: no event of a query of {queries} has the action {click}")
    if places:  # what was clicked was shown
        for key in clicked.keys() - places.keys():
            places[key] = _field(events, *clicked[key], *_ORDINAL)
    else:
        for number, (session, row) in enumerate(asked.items(), start=1):
            items = _field(queries, number, row, "query_response_hit_ids")
            places |= {(session, str(item)): place for place, item in enumerate(items, start=1)}
    first = min(1, *places.values())
    rows = [
        (session, asked[session].get("user_query"), item, place + 1 - first, key in clicked)
        for key, place in sorted(places.items(), key=lambda x: (x[0][0], x[1]))
        for session, item in [key]
    ]
    names = ("session", "query", "item", "position", "click")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


_ORDINAL = ("event_attributes", "position", "ordinal")


def _rows(path: str | pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbers from 1, and rows of a table or of JSON lines, whose fields may be of any types."""
    if pathlib.Path(path).suffix not in (".json", ".jsonl", ".ndjson"):
        yield from enumerate(read(path).to_pylist(), start=1)
        return
    with open(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                yield number, row.get("_source", row)
            except (AttributeError, ValueError) as error:
                raise ValueError(f"{path}: row {number} must be a JSON object: {error}") from None


def _field(path: str | pathlib.Path, number: int, row: Any, *keys: str) -> Any:
    """A field of a row that may not be missing or null."""
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    if row is None:
        raise ValueError(f"{path}: row {number} has no {'.'.join(keys)}")
    return row


def session_credits(
    log: str | pathlib.Path, clicked: str | pathlib.Path, roles: Mapping[str, str]
) -> tuple[Any, bool]:
    """Sums the credits of the clicked items of each session for the first ranker.

    Args:
        log: The log of `tfrank-sel-serving serve --interleave`. An item of a team has the credit 1
            or, for the second ranker, -1.
        clicked: File of a table with a row for each click or, if it has a column `click`, also for
            other items.
        roles: Names of its columns `session`, `item` and `click`.

    Returns:
        The sums, `[sessions]`, and whether the log has teams only.

    Raises:
        ValueError: If a file is no such file, or no click is on an item of the log.
    """
    table = read(clicked)
    if roles["click"] not in table.column_names:
        roles = {role: name for role, name in roles.items() if role != "click"}
    found = columns(clicked, table, roles)
    clicks = {
        (str(session), str(item))
        for session, item, click in zip(
            found["session"], found["item"], found.get("click", np.ones(len(table))), strict=True
        )
        if click
    }
    won: dict[str, set[tuple[str, float]]] = {}  # clicked items; a session may have several lines
    kind = ""
    with open(log, errors="replace") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                kind = kind or ("credits" if "credits" in row else "teams")
                credits = [{0: 1.0, 1: -1.0}[x] if kind == "teams" else float(x) for x in row[kind]]
                session, pairs = row["session"], zip(row["items"], credits, strict=True)
                shown = won.setdefault(session, set())
                shown.update(pair for pair in pairs if (session, pair[0]) in clicks)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{log}: line {number}: expected the log of `serve --interleave`: {error!r}"
                ) from None
    if not any(won.values()):
        raise ValueError(f"{clicked}: no click is on an item of a session of {log}")
    sums = np.array([sum(credit for _, credit in x) for x in won.values()])
    return sums, kind == "teams"


def corrected(
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
        table: The table of the log.
        roles: Names of its columns `position` and `click`, and perhaps `session`, which are left
            out; other columns have their values in the first row of each query and item.
        log: The log.
        propensities: Propensities of its positions.
        label: Name of the column of labels.
        correction: As in `labels`.
        least: As in `labels`.
    """
    found = labels(log, propensities, correction, least=least)
    dropped = [roles[x] for x in ("position", "click", "session") if x in roles]
    kept = table.drop_columns(dropped).take(np.unique(log.items, return_index=True)[1])
    return kept.append_column(label, pa.array(found["label"]))
