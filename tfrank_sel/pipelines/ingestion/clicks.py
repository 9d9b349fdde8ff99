"""Correction of click logs before they are ingested."""

import collections
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tfrank_sel import roads
from tfrank_sel.commandline import log_warnings
from tfrank_sel.data import InputError, arrays, arrow_types
from tfrank_sel.data.formats import Table
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.table import readable
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.ingestion import ingest_counts
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source

PROPENSITIES = "propensities.json"
SHOWN = "shown.parquet"  # what users saw, with columns named by their roles
FIRST = "first.parquet"  # rows of the training files as they are, to find leaks of clicks in them
_FIRST = 50_000


def correct_log(
    inputs: Inputs, settings: Clicks, folder: Path, tell: Callable[[str], object] = print
) -> tuple[Inputs, Any, dict[str, Any]]:
    """Writes the tables of a log with labels without position bias, one file for each split.

    The propensities are those of the training files, which are written, too. So are the log that
    the test split is part of, and the first rows of the training files.

    Args:
        inputs: The log: one row for each item that was shown, with its click as label.
        settings: Further columns of the log, and the correction.
        folder: Folder to write.
        tell: Shows a line.

    Returns:
        The inputs with the written files, the propensities, and the counts of rejected rows, as
        `ingest_counts.keep_dead_letters`.

    Raises:
        InputError: If a file is no table or lacks a column, or the log does not identify the
            propensities.
    """
    clicks, logs, tables = (
        roads.load("clicks", "the section `clicks`", x) for x in ("", "log", "tables")
    )
    columns = inputs.columns
    named = {"query": columns.query, "item": columns.doc_id, "click": columns.label}
    named |= {"position": settings.position, "session": settings.session, "shown": settings.shown}
    roles = {role: name for role, name in named.items() if name is not None}
    paths = collections.defaultdict(list)
    for source in inputs.sources:
        paths[source.split].append(source.path)
    learned, sources = min(paths, key=lambda split: split not in (None, "train")), []
    folder.mkdir(parents=True)
    allowed, letters = inputs.allow_bad_lines, list[Rejected]()
    kept = letters if allowed else None  # or else the first one is the error
    figures = {
        split: logs.read(
            files, roles, optional=(), others=True, format=inputs.format, rejected=kept
        )
        for split, files in paths.items()
    }
    rejected = ingest_counts.keep_dead_letters(letters, folder / "dead_letters.jsonl", allowed)
    if rejected["count"]:
        tell(f"{rejected['count']} rejected: see {folder.name}/dead_letters.jsonl")
    try:
        log = clicks.Log.of(figures[learned])
        with log_warnings(tell):
            propensities = clicks.estimate(log, settings.method)
        propensities.save(folder / PROPENSITIES)
        with readable(paths[learned][0], "columns that Parquet can hold"):
            parquet.write_table(figures[learned].columns.slice(0, _FIRST), folder / FIRST)
        least = 0.0 if settings.correction == "pooled" else settings.least
        correction = (roles["click"], settings.correction, least)
        numbers = _numbers(inputs)
        for split, table in figures.items():
            log = clicks.Log.of(table)
            path = folder / f"{split or 'log'}.parquet"
            columns = _as_read(table.columns, numbers)
            with readable(paths[split][0], "columns that Parquet can hold"), log_warnings(tell):
                made = tables.unbiased_table(
                    columns, roles, log, propensities.nearest(log.positions), *correction
                )
                parquet.write_table(made, path)
            sources.append(Source(str(path), split))
            if split in (None, "test"):
                _keep(table, folder / SHOWN)
    except InputError:
        raise
    except ValueError as error:
        reason = f"as a log of clicks (clicks.method {settings.method}): {error}"
        raise InputError(paths[learned][0], reason) from error
    allowed -= rejected["count"]
    made_of = dataclasses.replace(inputs, sources=sources, format=None, allow_bad_lines=allowed)
    return made_of, propensities, rejected


def _numbers(inputs: Inputs) -> set[str]:
    """The columns that are read as numbers if they are of text, too."""
    of_query = inputs.schema().context if inputs.columns.context else {}
    named = () if inputs.columns.types else inputs.columns.features
    return {*named, *(name for name, is_number in of_query.items() if is_number)}


def _as_read(table: pa.Table, numbers: set[str]) -> pa.Table:
    """A table whose columns of text are those that are read as text."""
    for index, field in enumerate(table.schema):
        if field.name in numbers and arrow_types.is_text(field.type):
            values = pa.array(arrays.doubles(table[field.name]), from_pandas=True)
            table = table.set_column(index, field.name, values)
    return table


def _keep(table: Table, path: Path) -> None:
    """Writes the log, with queries and items as texts, as records have them."""
    columns = {"session": table["query"], **table.roles}
    columns["click"] = columns.pop("clicks")
    parquet.write_table(pa.table(columns), path)
