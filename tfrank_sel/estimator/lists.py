"""Rows of arrays and frames of an estimator as lists."""

import dataclasses
import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from tfrank_sel.data.arrays import array, strings
from tfrank_sel.data.formats import tables
from tfrank_sel.data.lists import Lists, groups
from tfrank_sel.data.rejections import InputError
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.table import Table, check, format_value, is_invalid, of_frame, readable
from tfrank_sel.errors import refusal
from tfrank_sel.features import Feature, FeatureTypes


def groups_of(rows: int, qid: Any, group: Any) -> tuple[np.ndarray, np.ndarray]:
    """Groups rows by query.

    Args:
        rows: Number of rows.
        qid: Identifier of the query of each row, `[rows]`; None if there is none.
        group: Number of rows of each list, if its rows are adjacent; None if there is none. Without
            both, all rows are one list.

    Returns:
        The number of rows of each list, by the first row of each list; and the indices of the rows,
        list by list.

    Raises:
        ValueError: If both are given, an identifier is missing, or the sizes are not positive
            integers whose sum is `rows`.
    """
    if qid is not None and group is not None:
        raise refusal("pass `qid` or `group`", "both")
    if qid is not None:
        names = column_or_1d(np.asarray(qid))
        if len(names) != rows:
            raise ValueError(f"`qid` must have a value for each of {rows} rows. Got {len(names)}")
        with readable("qid", "identifiers"):
            texts = strings(array(names)).tolist()
        if bad := [x for x in {*texts} if not x or is_invalid(x)]:
            received_value = format_value(bad[0]) if bad[0] else "a missing value"
            raise refusal("`qid` must name the query of each row", received_value)
        return groups(texts)
    sizes = np.array([rows]) if group is None else column_or_1d(np.asarray(group))
    if sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != rows:
        raise refusal(
            f"`group` must hold positive integers whose sum is the number of rows, {rows}",
            f"{len(sizes)} values of type {sizes.dtype}, with the sum {sizes.sum()}",
        )
    return sizes.astype(np.int64), np.arange(rows)


def labels_of(y: Any, rows: int) -> np.ndarray:
    """Returns the labels of rows as float32.

    Raises:
        ValueError: If they are not one finite number a row, or one is negative.
    """
    labels: np.ndarray = column_or_1d(
        check_array(y, ensure_2d=False, dtype=np.float32, input_name="y"), warn=True
    )
    check_consistent_length(np.empty(rows), labels)
    if (labels < 0.0).any():
        raise refusal(
            "`y` must not be negative",
            f"{labels.min():g}. Subtract the smallest value, or map -1 and 1 to 0 and 1.",
        )
    return labels


def weights_of(sample_weight: Any, sizes: np.ndarray, order: np.ndarray) -> np.ndarray | None:
    """Returns the weights of items, list by list, as float32; None for none.

    Args:
        sample_weight: A weight for each row or, if there are as many as lists, for each list, by
            its first row.
        sizes: As `groups_of` returns them.
        order: As `groups_of` returns them.

    Raises:
        ValueError: If their number is neither, one is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return None
    weights: np.ndarray = column_or_1d(
        check_array(sample_weight, ensure_2d=False, dtype=np.float32, input_name="sample_weight")
    )
    if len(weights) not in (len(order), len(sizes)):
        raise refusal(
            f"`sample_weight` must have a value for each of {len(order)} rows, or for each of "
            f"{len(sizes)} lists",
            f"{len(weights)} values",
        )
    if (weights < 0.0).any() or not weights.any():
        raise refusal(
            "`sample_weight` must not be negative, and one weight must not be zero",
            f"values from {weights.min():g} to {weights.max():g}",
        )
    return weights[order] if len(weights) == len(order) else np.repeat(weights, sizes)


def check_comparable(lists: Lists) -> None:
    """Raises a `ValueError` if no list has two different labels."""
    starts = lists.offsets[:-1]
    lowest, highest = (at.reduceat(lists.labels, starts) for at in (np.minimum, np.maximum))
    if (lowest == highest).all():
        raise refusal(
            "a list must have two different labels",
            f"{len(lists.labels)} samples in {len(starts)} lists, each with one label",
        )


# a frame has no columns of these names
ONLY_FEATURES = Columns("\0query", None, "\0item")


def types_of(frame: Any) -> dict[str, Feature]:
    """Returns a type for each column of a frame, and warns of columns that can have none.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.

    Raises:
        ValueError: If no column can have a type.
    """
    with readable("X"):
        table = of_frame(frame)
    check("X", table.schema.names, table.schema.names)
    types, left_out = tables.propose(table.schema, table, ONLY_FEATURES)
    if left_out:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        warnings.warn(
            f"columns are left out. Give `features` a type to keep them. {reasons}", stacklevel=3
        )
    if not types:
        raise refusal("`X` must have a column of features", table.schema.names)
    return types


def rows_of(frame: Any, features: FeatureTypes) -> tuple[Table, Schema]:
    """Returns the rows of a frame, and the schema of their features.

    Args:
        frame: As in `tfrank_sel.data.frames.lists`.
        features: Type of each feature.

    Raises:
        InputError: If a column is missing, cannot be of its type, or a value is not.
    """
    schema = Schema(features, columns=dataclasses.replace(ONLY_FEATURES, features=features))
    with readable("X"):
        table = of_frame(frame)
        check("X", table.schema.names, list(features))
        rows = tables.of_table(("X", np.arange(table.num_rows)), table, schema)
    for row, reason in sorted(rows.faults.items()):
        raise InputError(f"X, row {row}", reason)
    return rows, schema
