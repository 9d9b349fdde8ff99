"""Correction of click logs before they are ingested."""

import collections
import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tfrank_sel import clicks
from tfrank_sel.clicks import tables
from tfrank_sel.data import InputError, stores
from tfrank_sel.data.formats.arrays import strings
from tfrank_sel.pipelines.configuration.data import Clicks
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source

PROPENSITIES = "propensities.json"
SHOWN = "shown.parquet"  # what users saw, with columns named by their roles


def corrected(inputs: Inputs, settings: Clicks, folder: Path) -> tuple[Inputs, clicks.Propensities]:
    """Writes the tables of a log with labels without position bias, one file for each split.

    The propensities are those of the training files, which are written, too, as is the log that the
    test split is part of.

    Args:
        inputs: The log: one row for each item that was shown, with its click as label.
        settings: Further columns of the log, and the correction.
        folder: Folder to write.

    Returns:
        The inputs with the written files, and the propensities.

    Raises:
        InputError: If a file is no table or lacks a column, or the log does not identify the
            propensities.
    """
    columns = inputs.columns
    named = {"query": columns.query, "item": columns.doc_id, "click": columns.label}
    named |= {"position": settings.position, "session": settings.session}
    roles = {role: name for role, name in named.items() if name is not None}
    paths = collections.defaultdict(list)
    for source in inputs.sources:
        paths[source.split].append(source.path)
    learned, sources = min(paths, key=lambda split: split not in (None, "train")), []
    folder.mkdir(parents=True)
    try:
        logs = {split: _read(paths[split], roles) for split in paths}
        propensities = clicks.estimate(logs[learned][1], settings.method)
        propensities.save(folder / PROPENSITIES)
        correction = (roles["click"], settings.correction, settings.least)
        for split, (table, log) in logs.items():
            path = folder / f"{split or 'log'}.parquet"
            parquet.write_table(
                tables.corrected(table, roles, log, propensities, *correction), path
            )
            sources.append(Source(str(path), split))
            if split in (None, "test"):
                _keep(table, roles, folder / SHOWN)
    except ValueError as error:
        raise InputError(paths[learned][0], f"as a log of clicks: {error}") from error
    return dataclasses.replace(inputs, sources=sources, format=None), propensities


def _keep(table: pa.Table, roles: dict[str, str], path: Path) -> None:
    """Writes the log, with queries and items as texts, as records have them."""
    columns = {role: table[name] for role, name in roles.items()}
    columns["session"] = columns.get("session", columns["query"])
    texts = {role: pa.array(strings(columns[role])) for role in ("query", "item", "session")}
    parquet.write_table(pa.table(columns | texts), path)


def _read(paths: list[str], roles: dict[str, str]) -> tuple[pa.Table, clicks.Log]:
    """All rows of some files with the same columns, and their log."""
    found = [tables.read(stores.near(path)) for path in paths]
    columns = [tables.columns(*each, roles) for each in zip(paths, found, strict=True)]
    log = clicks.Log(**{role: np.concatenate([x[role] for x in columns]) for role in roles})
    return pa.concat_tables(found, promote_options="permissive"), log
