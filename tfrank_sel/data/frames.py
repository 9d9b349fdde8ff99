"""Lists from tables in memory: pandas, polars and Arrow frames, and dicts of arrays."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrank_sel.data.arrays import array, uniform
from tfrank_sel.data.formats import rows, tables
from tfrank_sel.data.lists import ItemList, Lists, group_rows, strict
from tfrank_sel.data.rejections import rejection
from tfrank_sel.data.schema import Columns
from tfrank_sel.data.table import of_frame, readable
from tfrank_sel.features import FeatureTypes

if TYPE_CHECKING:
    import tensorflow as tf


def lists(
    frame: Any,
    *,
    query: str = Columns.query,
    label: str | None = Columns.label,
    doc_id: str = Columns.doc_id,
    features: Sequence[str] | FeatureTypes = (),
    weight: str | None = None,
    list_weight: str | None = None,
    propensity: str | None = None,
) -> Iterator[ItemList]:
    """Groups the rows of a table by query: one row is one item.

    Columns are converted as in Parquet files: see `tfrank_sel.data.read`.

    Args:
        frame: A pandas or polars DataFrame, an Arrow table, or a mapping of names to arrays of
            equal length.
        query: Column of the query identifier, required in every row. The rows of a query need not
            be adjacent.
        label: Column of the relevance, finite and not negative; None if there is none.
        doc_id: Column of the item identifier; without it, `ID:position`, counted from 1.
        features: As in `Columns`; by default all integer and float columns except those named here,
            in the order of the table.
        weight: As in `Columns`.
        list_weight: As in `Columns`.
        propensity: As in `Columns`.

    Yields:
        The lists in the order of their first rows, with items in the order of the rows.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If a column is missing, or a column or value has the wrong type: the message
            names the column and the row, counted from 0.
        ValueError: If a column has two roles.

    Example:
        >>> frame = {"q": ["a", "b", "a"], "y": [1, 0, 2], "x": [0.5, 1.5, 2.5]}
        >>> for item_list in lists(frame, query="q", label="y"):
        ...     print(item_list.query_id, item_list.labels.tolist(), item_list.features.tolist())
        a [1.0, 2.0] [[0.5], [2.5]]
        b [0.0] [[1.5]]
        >>> from tfrank_sel.features import Category, Number
        >>> frame["brand"] = ["acme", None, "bolt"]
        >>> types = {"x": Number(), "brand": Category()}
        >>> for item_list in lists(frame, query="q", label="y", features=types):
        ...     print(item_list.query_id, item_list.texts.tolist())
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
    yield from _lists(frame, columns)


def _lists(frame: Any, columns: Columns) -> Lists:
    with readable("frame"):
        table = of_frame(frame, array if columns.types else uniform)
        schema = tables.infer({"frame": table.schema}, columns)
        origin = ("frame", np.arange(table.num_rows))
        items = tables.of_table(origin, table, schema)
    [found] = strict(group_rows(rows.check_rows([items]), schema))
    return found


def dataset(
    frame: Any,
    *,
    batch_size: int = 32,
    bucket_edges: Sequence[int] | int = 4,
    shuffle: bool = True,
    seed: int | None = None,
    **columns: Any,
) -> "tf.data.Dataset":
    """Converts a table to batches for `fit`, in memory.

    Args:
        frame: As in `lists`.
        batch_size: Number of lists in a batch.
        bucket_edges: As in `tfrank_sel.data.batches`.
        shuffle: Whether to shuffle the lists, in another order in each pass.
        seed: Seed of the shuffling.
        **columns: The columns, such as `query`, `label` and `features`: as in `lists`.

    Returns:
        Batches of inputs, labels and, if a column of weights is given, weights. The inputs are a
        dict of `features` `[batch_size, list_size, num_features]`, `mask`, and, if there are text
        features, `texts` `[batch_size, list_size, num_texts]`, as for `models.Preparation`. At
        padding, labels are NaN and weights are 0.

    Raises:
        ImportError: As `lists`, as all others.
        InputError: If the table has no row, or as `lists`.
        ValueError: If `batch_size` is not positive, or a list is longer than the last edge.

    Example:
        >>> frame = {"q": ["a", "b", "a"], "y": [1, 0, 2], "x": [0.5, 1.5, 2.5]}
        >>> batches = dataset(frame, query="q", label="y", bucket_edges=1, shuffle=False)
        >>> for inputs, labels in batches:
        ...     print(labels.numpy().tolist(), inputs["mask"].numpy().tolist())
        [[1.0, 2.0], [0.0, nan]] [[True, True], [True, False]]
    """
    found = _lists(frame, Columns(**columns))
    if not len(found):
        raise rejection("frame", "expected at least one row", "none")
    from tfrank_sel.data import batching  # imports TensorFlow, which the rest does not need

    return batching.in_memory(
        found,
        batch_size=batch_size,
        bucket_edges=bucket_edges,
        shuffle=shuffle,
        seed=seed,
    )
