"""Tables of click logs in files, by pyarrow."""

import json
import pathlib
from collections.abc import Mapping
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


def team_clicks(
    log: str | pathlib.Path, clicked: str | pathlib.Path, roles: Mapping[str, str]
) -> list[Any]:
    """Counts the clicked items of each team in each session, `[sessions]` for both teams.

    Args:
        log: The log of `tfrank-sel-serving serve --interleave`.
        clicked: File of a table with a row for each click or, if it has a column `click`, also for
            other items.
        roles: Names of its columns `session`, `item` and `click`.

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
    won: dict[str, set[tuple[str, int]]] = {}  # clicked items; a session may have several lines
    with open(log, errors="replace") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                session, pairs = row["session"], zip(row["items"], row["teams"], strict=True)
                shown = won.setdefault(session, set())
                shown.update(pair for pair in pairs if (session, pair[0]) in clicks)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{log}: line {number}: expected the log of `serve --interleave`: {error!r}"
                ) from None
    if not any(won.values()):
        raise ValueError(f"{clicked}: no click is on an item of a session of {log}")
    return [np.array([sum(t == team for _, t in x) for x in won.values()]) for team in (0, 1)]


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
