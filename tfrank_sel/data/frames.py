"""Lists from tables in memory: pandas, polars and Arrow frames, and arrays by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import rows, tables
from tfrank_sel.data.formats.columns import Columns
from tfrank_sel.data.formats.values import arrow
from tfrank_sel.data.lists import ItemList, strict
from tfrank_sel.features import Feature


def lists(
    frame: Any,
    *,
    query: str = Columns.query,
    label: str = Columns.label,
    doc_id: str = Columns.doc_id,
    features: Sequence[str] | Mapping[str, Feature] = (),
    weight: str | None = None,
    list_weight: str | None = None,
    propensity: str | None = None,
) -> Iterator[ItemList]:
    """Groups the rows of a table by query: one row is one item.

    The columns become what they become in a Parquet file: see `tfrank_sel.data.read`.

    Args:
        frame: A pandas or polars DataFrame, an Arrow table, or a mapping of names to arrays of one
            length.
        query: Column of the query's identifier, which every row has. The rows of a query need not
            stand together.
        label: Column of the relevance, finite and not negative.
        doc_id: Column of the item's identifier; if there is none, `ID:position`, counted from 1.
        features: As in `Columns`; by default all integers and floats but the columns named here,
            in the order of the table.
        weight: As in `Columns`.
        list_weight: As in `Columns`.
        propensity: As in `Columns`.

    Yields:
        The lists, by the first row of each query, their items in the order of the rows.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If a column is missing, cannot be of its type, or a value is not: the message
            names column and row, counted from 0.
        ValueError: If a column has two roles.

    Example:
        >>> frame = {"q": ["a", "b", "a"], "y": [1, 0, 2], "x": [0.5, 1.5, 2.5]}
        >>> for found in lists(frame, query="q", label="y"):
        ...     print(found.query_id, found.labels.tolist(), found.features.tolist())
        a [1.0, 2.0] [[0.5], [2.5]]
        b [0.0] [[1.5]]
        >>> from tfrank_sel.features import Category, Number
        >>> frame["brand"] = ["acme", None, "bolt"]
        >>> types = {"x": Number(), "brand": Category()}
        >>> for found in lists(frame, query="q", label="y", features=types):
        ...     print(found.query_id, found.texts.tolist())
        a [['acme'], ['bolt']]
        b [['']]
    """
    columns = Columns(
        query,
        label,
        doc_id,
        features,
        weight=weight,
        list_weight=list_weight,
        propensity=propensity,
    )
    with tables.readable("frame"):
        table = arrow_table(frame)
        layout = tables.layout("frame", table.schema, columns)
        place = ("frame", np.arange(table.num_rows))
        found = tables.of_table(place, table, columns, layout)
    yield from strict(rows.grouped(rows.checked([found]), layout))


def arrow_table(frame: Any) -> Any:
    """Returns a frame, as `lists` takes it, as an Arrow table.

    Raises:
        ImportError: If pyarrow is not installed.
    """
    pa = arrow()
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, Mapping):
        return pa.table(dict(frame))
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    return pa.Table.from_pandas(frame, preserve_index=False)
