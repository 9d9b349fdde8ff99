"""Rows of items by the types of their features: what is invalid, and what they weigh."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfrank_sel.data.arrays import INVALID, mask_of
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.schema import Schema
from tfrank_sel.data.table import ROLES, TEXT, Table, format_value, is_invalid
from tfrank_sel.errors import received
from tfrank_sel.features import Feature, Vector, means_missing, spans

_INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python reads no more digits
_INTEGER_RULE = "an integer above -2**63 and below 2**63"
_ABOVE = "above -3e38, which stands for a missing value in requests; leave it empty"
_WANTED = {"number": "a finite number", "bool": "true or false", "timestamp": "a point in time"}


def check_rows(chunks: Iterable[Table | Rejected], unit: str = "row") -> Iterator[Table | Rejected]:
    """Yields the valid rows, and the faults of the others.

    Args:
        chunks: The rows.
        unit: Name of a row in messages.
    """
    for table in chunks:
        if isinstance(table, Rejected):
            yield table
            continue
        file, numbers = table.place
        nameless = np.flatnonzero(table["query"] == "").tolist()
        reason = received("a row must have a query identifier", "nothing")
        bad = {**table.faults, **dict.fromkeys(nameless, reason)}
        for row, reason in sorted(bad.items()):
            yield Rejected(file, unit, int(numbers[row]), reason)
        yield table.take(np.delete(np.arange(len(numbers)), list(bad))) if bad else table


def table_of(
    origin: tuple[str, np.ndarray],
    schema: Schema,
    measures: Mapping[str, np.ndarray],
    matrices: tuple[np.ndarray, np.ndarray | None],
    ids: Mapping[str, np.ndarray],
    context: Mapping[str, np.ndarray],
    value_of: Callable[[str, int], Any],
) -> Table:
    """Returns rows of items, with their faults.

    Args:
        origin: As in `Table`.
        schema: As in `faults`.
        measures: As in `faults`.
        matrices: Numbers and texts, as in `faults`.
        ids: Values of the roles `query` and `item`.
        context: As in `Table`.
        value_of: As in `faults`.
    """
    roles, product = {**ids, "label": measures["label"]}, weights(measures)
    if product is not None:
        roles["weight"] = product
    named = {schema.columns.query: ids["query"], schema.columns.doc_id: ids["item"]}
    bad = faults(schema, measures, *matrices, value_of, named)
    return Table(origin, roles, *matrices, context, bad)


def weights(measures: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the weights of items: `weight * list_weight`, divided by `propensity` for positives.

    Args:
        measures: Values of the weight columns, by their role in `Columns`, `[rows]`.

    Returns:
        `[rows]`, float32; None if there is no weight.

    Example:
        >>> weights({"label": np.array([1.0, 0.0]), "propensity": np.array([0.5, 0.5])}).tolist()
        [2.0, 1.0]
    """
    if measures.keys() == {"label"}:
        return None
    labels = measures["label"]
    one = np.float32(1.0)
    # Rows that divide by zero or overflow are reported as faults.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        product = measures.get("weight", one) * measures.get("list_weight", one)
        product = product / np.where(labels > 0.0, measures.get("propensity", 1.0), 1.0)
    return np.broadcast_to(product, labels.shape).astype(np.float32)


def faults(
    schema: Schema,
    measures: Mapping[str, np.ndarray],
    features: np.ndarray,
    texts: np.ndarray | None,
    value_of: Callable[[str, int], Any],
    ids: Mapping[str, np.ndarray] | None = None,
) -> dict[int, str]:
    """Returns the first broken rule of each invalid row, by the index of the row.

    Args:
        schema: Types of the features, and names of the parts.
        measures: As in `weights`; NaN and infinity are invalid.
        features: Numbers of the rows; infinity for an invalid value.
        texts: Texts of the rows.
        value_of: Returns the original value of a column in a row.
        ids: Identifiers, by their column.
    """
    reasons: dict[int, str] = {}

    def add(name: str, rule: str, is_bad: np.ndarray) -> None:
        for row in np.flatnonzero(is_bad).tolist():
            if row not in reasons:
                reasons[row] = received(
                    f"{name!r} must be {rule}", format_value(value_of(name, row))
                )

    for role, name in schema.columns.measures.items():
        rule, accepts, *_ = ROLES[role]
        add(name, rule, ~(np.isfinite(measures[role]) & accepts(measures[role])))
    if (product := weights(measures)) is not None:
        add(name, "such that the weight of the item is finite", ~np.isfinite(product))
    if not np.isfinite(features).all() or means_missing(features).any():
        for name, feature, is_text, columns in spans(schema.features):
            if not is_text:
                block, rule = features[:, columns], _accepted_values(feature)
                add(name, rule, _is_bad(block, feature))
                if feature.may_be_missing:
                    add(name, f"{rule} {_ABOVE}", means_missing(block).any(axis=1))
    blocks = dict(ids or {})
    if texts is not None:
        for name, _, is_text, columns in spans(schema.features):
            if is_text:
                blocks[name] = texts[:, columns]
    for name, block in blocks.items():
        is_integer = getattr(schema.features.get(name), "dtype", "string") == "int64"
        if not is_integer and INVALID not in "".join(block.ravel().tolist()):
            continue
        rule, is_bad = (_INTEGER_RULE, _is_no_integer) if is_integer else (TEXT, is_invalid)
        found_bad = mask_of(block, is_bad).reshape(len(block), block.size // max(len(block), 1))
        add(name, rule, np.any(found_bad, axis=1))
    return reasons


def _is_bad(block: np.ndarray, feature: Feature) -> np.ndarray:
    """Mask of the rows with an invalid or incomplete value."""
    is_missing = np.isnan(block)
    is_bad: np.ndarray = np.isinf(block).any(axis=1) | is_missing.any(axis=1)
    return is_bad & ~is_missing.all(axis=1) if feature.may_be_missing else is_bad


def _is_no_integer(text: str) -> bool:
    return bool(text) and (not _INTEGER.fullmatch(text) or abs(int(text)) >= 2**63)


def _accepted_values(feature: Feature) -> str:
    if isinstance(feature, Vector):
        return f"{feature.size} finite numbers"
    return _WANTED[feature.type]
