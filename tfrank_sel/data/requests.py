"""Lists to rank, as a user holds them: named features of any type, without labels."""

import datetime
import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfrank_sel.data import formats, frames
from tfrank_sel.data.formats import rows, tables, values
from tfrank_sel.data.lists import InputError, ItemList, Rejected, strict
from tfrank_sel.features import Feature

_JSON = (".json", ".jsonl")
SUFFIXES = (*_JSON, *formats.FORMATS["parquet"].suffixes, *formats.FORMATS["csv"].suffixes)
# A table to train on has these columns, too; no feature is called so.
_QUERY, _LABEL = "\0query", "\0label"


def item_list(
    items: Any,
    features: Mapping[str, Feature],
    *,
    query: Mapping[str, Any] | None = None,
    doc_ids: Sequence[str] | None = None,
    doc_id: str = "doc_id",
) -> ItemList:
    """Makes a list of named values.

    A value becomes what it becomes in a table that trains a model: see `tfrank_sel.data.frames`.
    None, NaN, and a name that is left out, are missing values.

    Args:
        items: Features of the items: a dict for each item; a dict of columns; or a pandas or polars
            DataFrame or Arrow table. A feature of the query may stand here, too, the same for all.
        features: Type of each feature.
        query: Features of the query.
        doc_ids: Identifiers of the items. By default those named `doc_id` among `items`, or else
            the positions of the items, from 0.
        doc_id: Name of an item's identifier.

    Returns:
        The list; its labels are 0.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If there is no item, a name is unknown, no feature is named, a value is not of
            the type of its feature, or one is missing that must not be: the message names the item,
            counted from 0.
        ValueError: If `doc_ids` are not one for each item.

    Example:
        >>> from tfrank_sel.features import Category, Number
        >>> types = {"price": Number(), "brand": Category(), "country": Category(of="query")}
        >>> found = item_list([{"price": 2, "brand": "acme"}, {"price": 3.5}], types,
        ...                   query={"country": "de"})
        >>> found.features.tolist(), found.texts.tolist(), found.doc_ids
        ([[2.0], [3.5]], [['acme', 'de'], ['', 'de']], ('0', '1'))
    """
    columns, size = _columns(items)
    if not size:
        raise InputError("request", "expected at least one item. Received: none")
    query = query or {}
    of_query = {name: x for name, x in features.items() if x.of == "query"}
    _check_names(columns, [*features, doc_id], "the items")
    _check_names(query, list(of_query), "the query")
    if twice := set(columns) & set(query):
        raise InputError("request", f"expected each feature once. Received twice: {sorted(twice)}")
    if not set(features) & {*columns, *query}:
        raise InputError("request", f"expected features: {', '.join(features)}. Received: none")
    table = {name: _array(name, columns[name], features.get(name)) for name in columns}
    table |= {name: _array(name, [query[name]] * size, features[name]) for name in query}
    for name in features:
        table.setdefault(name, values.arrow().nulls(size))
    if doc_ids is None and doc_id not in columns:
        doc_ids = [str(position) for position in range(size)]
    if doc_ids is not None:
        if len(doc_ids) != size:
            wanted = f"`doc_ids` must be one for each of {size} items"
            raise ValueError(f"{wanted}. Received: {len(doc_ids)}")
        table[doc_id] = values.arrow().array([str(x) for x in doc_ids])
    return _list(table, size, features, doc_id)


def read(path: str | os.PathLike[str]) -> Any:
    """Reads the items of one list from a file: Parquet, CSV, or JSON with an object for each item.

    Args:
        path: The file, whose name ends with one of `SUFFIXES`; `.json` and `.jsonl` hold an array
            of objects, or an object on each line.

    Returns:
        The items, as `item_list` takes them.

    Raises:
        ImportError: If pyarrow is not installed, and the file is not JSON.
        InputError: If the file cannot be read, or has another format.
    """
    path = os.fspath(path)
    if path.endswith(_JSON):
        return _objects(path)
    reader = formats.reader([path])
    if not isinstance(reader, formats.TableReader):
        wanted = f"expected a file that ends with one of {', '.join(SUFFIXES)}"
        raise InputError(path, f"{wanted}. Received: {reader.name}")
    with tables.readable(path):
        batches = []
        for found in reader.tables(formats.Part(path), reader.schema(path).names):
            if isinstance(found, Rejected):
                raise found.error()
            batches.append(found[1])
        return values.arrow().Table.from_batches(batches) if batches else []


def _objects(path: str) -> Any:
    try:
        text = Path(path).read_text()
        if text.lstrip().startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(path, f"expected JSON objects. Received: {error}") from error


def _columns(items: Any) -> tuple[dict[str, Any], int]:
    """Returns the values of the items by name, and the number of items."""
    if isinstance(items, Mapping):
        for name, column in items.items():
            if isinstance(column, str | bytes) or not isinstance(column, Iterable):
                wanted = f"expected in {name!r} a value for each item"
                raise InputError("request", f"{wanted}. Received: {column!r}")
        found: dict[str, Any] = {name: list(column) for name, column in items.items()}
    elif isinstance(items, Sequence):
        for position, item in enumerate(items):
            if not isinstance(item, Mapping):
                wanted = "expected a dict of features"
                raise InputError(f"request, item {position}", f"{wanted}. Received: {item!r}")
        names = dict.fromkeys(name for item in items for name in item)
        return {name: [item.get(name) for item in items] for name in names}, len(items)
    else:
        table = frames.arrow_table(items)
        found = dict(zip(table.column_names, table.columns, strict=True))
    sizes = {name: len(column) for name, column in found.items()}
    if len(set(sizes.values())) > 1:
        raise InputError("request", f"expected columns of one length. Received: {sizes}")
    return found, next(iter(sizes.values()), 0)


def _check_names(names: Iterable[str], known: Sequence[str], where: str) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            wanted = f"expected in {where} only {', '.join(known) or 'nothing'}.{hint}"
            raise InputError("request", f"{wanted} Received: {name!r}")


def _array(name: str, column: Any, feature: Feature | None) -> Any:
    """Returns a column as an Arrow array; `feature` is None for the items' identifiers."""
    pa = values.arrow()
    wrong = (pa.ArrowException, TypeError, ValueError, OverflowError)
    wanted = f"{name!r} must be of type {feature.type if feature else 'text'}"
    try:
        array = _converted(column)
    except wrong:
        for position, value in enumerate(column):
            try:
                _converted(column[: position + 1])
            except wrong as error:
                reason = f"{wanted}, and the values of all items alike. Received: {value!r}"
                raise InputError(f"request, item {position}", reason) from error
        raise
    if feature is not None and not values.accepts(array.type, feature):
        shown = array.to_pylist()
        place = next(i for i, value in enumerate(shown) if value is not None)
        raise InputError(f"request, item {place}", f"{wanted}. Received: {shown[place]!r}")
    if feature is not None and feature.of == "query":
        different = {repr(value) for value in array.to_pylist()}
        if len(different) > 1:
            wanted = f"{name!r} is of the query, and must be the same for all items"
            raise InputError("request", f"{wanted}. Received: {', '.join(sorted(different)[:3])}")
    return array


def _converted(column: Any) -> Any:
    pa = values.arrow()
    if isinstance(column, pa.ChunkedArray):
        return column
    array = pa.array(column, from_pandas=True)
    if pa.types.is_temporal(array.type):
        # Arrow also takes for a time whatever follows one: integers, and cuts a time to a date.
        present = zip(column, array.is_valid().to_pylist(), strict=True)
        kinds = {isinstance(x, datetime.datetime) or type(x) for x, is_there in present if is_there}
        if len(kinds) > 1:
            raise TypeError("times must be of one type")
    return array


def _list(
    table: dict[str, Any], size: int, features: Mapping[str, Feature], doc_id: str
) -> ItemList:
    """Converts and checks the columns as those of a table that trains a model."""
    columns = formats.Columns(_QUERY, _LABEL, doc_id, features)
    layout = formats.Layout(features)
    whole = values.arrow().table(
        {**table, _QUERY: ["request"] * size, _LABEL: np.zeros(size, np.float32)}
    )
    found = tables.of_table(("request", np.arange(size)), whole, columns, layout)
    [one] = strict(rows.grouped(rows.checked([found], "item"), layout))
    return one
