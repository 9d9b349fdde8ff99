"""Frames with typed columns as the numbers and texts of a model."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrank_sel.data import frames
from tfrank_sel.data.formats import proposals, tables
from tfrank_sel.data.formats.arrays import array, arrow
from tfrank_sel.data.formats.columns import Columns
from tfrank_sel.data.lists import InputError
from tfrank_sel.estimator.lists import Groups, Matrices
from tfrank_sel.features import Feature

# a column that a frame lacks, where readers want the identifiers of queries and items
NO_QUERY, NO_ITEM = "\0query", "\0item"


def types_of(frame: Any) -> dict[str, Feature]:
    """Returns a type for each column of a frame, and warns of columns that can have none.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.

    Raises:
        ValueError: If no column can have a type.
    """
    table = frames.arrow_table(frame, array)
    found, left_out = proposals.propose(table.schema, table, Columns(NO_QUERY, None, NO_ITEM))
    if left_out:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        warnings.warn(
            f"columns are left out. Give `features` a type to keep them. {reasons}", stacklevel=4
        )
    if not found:
        raise ValueError(f"`X` must have a column of features. Received: {table.schema.names}")
    return found


def matrices(frame: Any, features: Mapping[str, Feature], groups: Groups) -> Matrices:
    """Returns the features of a frame, list by list.

    What belongs to the query is that of the first row of its list.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.
        features: Type of each feature.
        groups: The lists that the rows belong to.

    Raises:
        InputError: If a column is missing, cannot be of its type, or a value is not.
    """
    pa = arrow()
    columns = Columns(NO_QUERY, None, NO_ITEM, features)
    with tables.readable("X"):
        table = frames.arrow_table(frame, array)
        nothing = pa.repeat(pa.scalar("", pa.string()), table.num_rows)
        table = table.append_column(NO_QUERY, nothing).append_column(NO_ITEM, nothing)
        layout = tables.layout({"X": table.schema}, columns)
        rows = tables.of_table(("X", np.arange(table.num_rows)), table, columns, layout)
    for row, reason in sorted(rows.faults.items()):
        raise InputError(f"X, row {row}", reason)
    sizes, order = groups
    first = np.repeat(order[np.cumsum(sizes) - sizes], sizes)

    def of_lists(values: np.ndarray, of_query: np.ndarray) -> np.ndarray:
        taken = values[order]
        taken[:, of_query] = values[:, of_query][first]
        return taken

    numbers, texts = layout.of_query
    of_texts = None if rows.texts is None else of_lists(rows.texts, texts)
    return Matrices(of_lists(rows.features, numbers), of_texts)
