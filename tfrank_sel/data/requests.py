"""Lists to rank: named features of any type, without labels."""

import contextlib
import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import arrays, arrow_types, formats
from tfrank_sel.data.formats import rows, tables
from tfrank_sel.data.lists import ItemList, group_rows, strict
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.table import check, of_frame
from tfrank_sel.errors import question, refusal
from tfrank_sel.features import Feature, FeatureTypes

# A training table has this column, too; no feature has such a name.
_QUERY = "\0query"
_NOT_ARROW = (TypeError, ValueError, OverflowError)  # Arrow's errors are among them


def item_list(
    items: Any,
    features: FeatureTypes,
    *,
    query: Mapping[str, Any] | None = None,
    doc_ids: Sequence[str] | None = None,
    doc_id: str = "doc_id",
) -> ItemList:
    """Makes a list of named values.

    Values are converted as in a training table: see `tfrank_sel.data.frames`. None, NaN and an
    absent name are missing values.

    Args:
        items: Features of the items: a dict for each item; a dict of columns; or a pandas or polars
            DataFrame or Arrow table. It may contain features of the query, equal in all items.
        features: Type of each feature.
        query: Features of the query.
        doc_ids: Identifiers of the items. By default the column `doc_id` of `items` if there is
            one, else the positions of the items, from 0.
        doc_id: Name of the item identifier.

    Returns:
        The list; its labels are 0.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If there is no item, a name is unknown, no feature is given, a value has the
            wrong type, or a required value is missing: the message names the item, counted from 0.
        ValueError: If `doc_ids` are not one for each item.

    Example:
        >>> from tfrank_sel.features import Category, Number
        >>> types = {"price": Number(), "brand": Category(), "country": Category(of="query")}
        >>> made = item_list([{"price": 2, "brand": "acme"}, {"price": 3.5}], types,
        ...                  query={"country": "de"})
        >>> made.features.tolist(), made.texts.tolist(), made.doc_ids
        ([[2.0], [3.5]], [['acme', 'de'], ['', 'de']], ('0', '1'))
    """
    columns, size = _columns(items)
    if not size:
        raise rejection("request", "expected at least one item", "none")
    query = query or {}
    of_query = {name: x for name, x in features.items() if x.of == "query"}
    _check_names(columns, [*features, doc_id], "the items")
    _check_names(query, list(of_query), "the query")
    if twice := set(columns) & set(query):
        raise InputError("request", f"expected each feature once. Received twice: {sorted(twice)}")
    if not set(features) & {*columns, *query}:
        expected = f"expected features: {', '.join(features)}"
        raise rejection("request", expected, "none")
    table = {name: _array(name, columns[name], features.get(name)) for name in columns}
    table |= {name: _array(name, [query[name]] * size, features[name]) for name in query}
    for name in features:
        table.setdefault(name, arrow_types.arrow().nulls(size))
    if doc_ids is not None and doc_id in features:
        raise refusal(f"`doc_ids` must be None: the identifier {doc_id!r} is a feature", doc_ids)
    if doc_ids is None and doc_id not in table:
        doc_ids = [str(position) for position in range(size)]
    if doc_ids is not None:
        if len(doc_ids) != size:
            raise refusal(f"`doc_ids` must be one for each of {size} items", len(doc_ids))
        table[doc_id] = arrays.array(list(doc_ids))
    return _list(table, size, features, doc_id)


def read(path: StrPath) -> Any:
    """Reads the items of one list from a file of a table: Parquet, Arrow, CSV, TSV or JSON lines.

    Args:
        path: The file.

    Returns:
        The items, as `item_list` takes them.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If the file cannot be read, or is not a table.
    """
    path = os.fspath(path)
    table = formats.table([path], {}, others=True)
    for name, reason in table.left_out.items():
        raise rejection(path, f"expected one column {name!r}", reason)
    return table.columns


def _columns(items: Any) -> tuple[dict[str, Any], int]:
    """Returns the values of the items by name, and the number of items."""
    if isinstance(items, Mapping):
        for name, column in items.items():
            if isinstance(column, str | bytes) or not isinstance(column, Iterable):
                expected = f"expected in {name!r} a value for each item"
                raise rejection("request", expected, repr(column))
        columns: dict[str, Any] = {name: list(column) for name, column in items.items()}
    elif isinstance(items, Sequence):
        for position, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise rejection(
                    f"request, item {position}", "expected a dict of features", repr(item)
                )
        names = dict.fromkeys(name for item in items for name in item)
        return {name: [item.get(name) for item in items] for name in names}, len(items)
    else:
        try:
            table = of_frame(items)
        except (AttributeError, *_NOT_ARROW) as error:
            expected = "expected a dict for each item, a dict of columns, or a frame"
            raise rejection("request", expected, type(items).__name__) from error
        check("request", table.schema.names, table.schema.names)
        columns = {name: table[name] for name in table.schema.names}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise rejection("request", "expected columns of one length", sizes)
    return columns, next(iter(sizes.values()), 0)


def _check_names(names: Iterable[str], accepted: Sequence[str], where: str) -> None:
    for name in names:
        if name not in accepted:
            expected = f"expected in {where} only {', '.join(accepted) or 'nothing'}."
            expected += question(str(name), accepted)
            raise rejection("request", expected, repr(name))


def _array(name: str, column: Any, feature: Feature | None) -> Any:
    """Returns a column as an Arrow array; `feature` is None for the items' identifiers."""
    pa = arrow_types.arrow()
    array = column
    if not isinstance(column, pa.ChunkedArray):
        try:
            array = pa.array(column, from_pandas=True)
        except _NOT_ARROW:
            for position, value in enumerate(column):
                _check_type(name, _alone(value), feature, position, value)
            # A column of several types is converted value by value.
            array = arrays.array(column)
        if pa.types.is_temporal(array.type):
            _check_times(name, column, array)
    first = pa.compute.index(array.is_valid(), True).as_py()
    if first >= 0:
        _check_type(name, array, feature, first, column[first])
    if feature is not None and feature.of == "query":
        different = {repr(0.0 if value == 0.0 else value) for value in array.to_pylist()}
        if len(different) > 1:
            expected = f"{name!r} is a feature of the query, and must be equal in all items"
            raise rejection("request", expected, *sorted(different)[:3])
    return array


def _alone(value: Any) -> Any:
    """Returns a value as an Arrow array; None if it cannot be one."""
    with contextlib.suppress(*_NOT_ARROW):
        return arrow_types.arrow().array([value], from_pandas=True)
    # Integers beyond 64 bits have no Arrow type.
    return arrays.array([value]) if isinstance(value, int) else None


def _check_type(name: str, array: Any, feature: Feature | None, position: int, value: Any) -> None:
    if array is None or (feature is not None and not arrow_types.accepts(array.type, feature)):
        expected = f"{name!r} must be of type {feature.type if feature else 'text'}"
        raise rejection(f"request, item {position}", expected, repr(value))


def _check_times(name: str, column: Sequence[Any], array: Any) -> None:
    """Raises an error for values that Arrow converts silently: integers, times cut to dates."""
    present = np.flatnonzero(array.is_valid()).tolist()
    kinds = [isinstance(column[i], datetime.datetime) or type(column[i]) for i in present]
    for position, kind in zip(present, kinds, strict=True):
        if kind != kinds[0]:
            expected = f"{name!r} must be times of one type in all items"
            raise rejection(f"request, item {position}", expected, repr(column[position]))


def _list(table: dict[str, Any], size: int, features: FeatureTypes, doc_id: str) -> ItemList:
    """Converts and checks the columns like those of a training table."""
    schema = Schema(features, columns=Columns(_QUERY, None, doc_id, features))
    whole = arrow_types.arrow().table({**table, _QUERY: ["request"] * size})
    items = tables.of_table(("request", np.arange(size)), whole, schema)
    [found] = strict(group_rows(rows.check_rows([items], "item"), schema))
    [item_list] = found
    return item_list
