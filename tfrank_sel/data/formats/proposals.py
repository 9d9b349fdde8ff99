"""Proposed feature types for the columns of a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrank_sel.data.formats import arrays, values
from tfrank_sel.data.formats.columns import Columns, is_index
from tfrank_sel.features import Bool, Category, Feature, Number, Set, Timestamp, Vector

_MOST_DISTINCT = 0.9  # of the texts of a category


def propose(
    schema: Any, sample: Any, columns: Columns
) -> tuple[dict[str, Feature], dict[str, str]]:
    """Proposes a type for each column without a role.

    Integers, floats and decimals become `Number`, Booleans `Bool`, dates and times `Timestamp`,
    texts that repeat `Category`, lists of numbers of one size `Vector`, and lists of texts `Set`.

    Args:
        schema: The Arrow schema of the table.
        sample: An Arrow table of its first rows: see `TableReader.sample`.
        columns: The roles. The features in it are ignored.

    Returns:
        The types by name, in the order of the table, and the omitted columns with the reasons.

    Example:
        >>> import pyarrow
        >>> table = pyarrow.table({"price": [1.0, 2.5], "is_new": [True, False], "page": [1, 1]})
        >>> features, left_out = propose(table.schema, table, Columns())
        >>> {name: feature.type for name, feature in features.items()}, left_out
        ({'price': 'number', 'is_new': 'bool'}, {'page': 'it has one value in 2 sampled rows'})
    """
    features: dict[str, Feature] = {}
    left_out: dict[str, str] = {}
    for field in schema:
        if field.name in columns.others:
            continue
        found = _type(field, sample[field.name])
        if isinstance(found, str):
            left_out[field.name] = found
        else:
            features[field.name] = found
    return features, left_out


def whole(samples: Mapping[Any, Any]) -> tuple[Any, dict[str, str]]:
    """Joins samples of files to one table.

    Args:
        samples: An Arrow table of each file, by its name.

    Returns:
        The table of the columns that all files have, in the order of the first file; and the other
        columns, with the reasons.
    """
    pa = arrays.arrow()
    found, left_out = dict[str, Any](), dict[str, str]()
    for name in dict.fromkeys(name for table in samples.values() for name in table.schema.names):
        lacking = [path for path, table in samples.items() if name not in table.schema.names]
        if lacking:
            left_out[name] = f"{lacking[0]} has no such column"
        else:
            found[name] = _joined([table[name] for table in samples.values()])
    return pa.table(found), left_out


def _joined(columns: list[Any]) -> Any:
    """Joins columns of several types to one, of texts if there is no other."""
    pa = arrays.arrow()
    known = [x for x in columns if len(x) and not pa.types.is_null(x.type)] or columns
    if all(x.type == (kind := known[0].type) for x in known):
        chunks = [y for x in columns for y in getattr(x, "chunks", [x])]
        same = [x if x.type == kind else pa.nulls(len(x), kind) for x in chunks]
        return pa.chunked_array(same, kind)
    tables = [pa.table({"x": arrays.plain(x)}) for x in columns]
    try:
        return pa.concat_tables(tables, promote_options="permissive")["x"]
    except pa.ArrowException:
        return pa.array(np.concatenate([values.strings(x) for x in columns]))


def _type(field: Any, found: Any) -> Feature | str:
    """The type of a column, or the reason why there is none."""
    types = arrays.arrow().types
    if is_index(field.name):
        return "it is the index of a pandas frame"
    if found.null_count == len(found):
        return "it has no value"
    is_encoded = types.is_dictionary(field.type)
    kind = field.type.value_type if is_encoded else field.type
    if arrays.is_binary(kind):
        return f"it is of type {kind}"
    found = arrays.plain(found)
    kind = found.type
    if arrays.is_list(kind):
        return _of_lists(kind.value_type, found)
    if types.is_nested(kind) or arrays.is_span(kind):
        return f"it is of type {kind}"
    distinct, known = len(found.unique().drop_null()), len(found) - found.null_count
    if distinct == 1 and known == len(found):
        return f"it has one value in {len(found)} sampled rows"
    if types.is_boolean(kind):
        return Bool()
    if types.is_temporal(kind):
        return Timestamp(parts=True)
    if arrays.is_number(kind) and not is_encoded:
        return Number()
    if is_encoded and types.is_integer(kind):
        return Category(dtype="int64")
    if distinct > _MOST_DISTINCT * known:
        return f"its texts almost all differ: {distinct} in {known} rows"
    return Category()


def _of_lists(kind: Any, found: Any) -> Feature | str:
    if arrays.is_text(kind):
        return Set()
    if not arrays.is_number(kind):
        return f"it is of lists of type {kind}"
    sizes = arrays.arrow().compute.list_value_length(found).unique().drop_null().to_pylist()
    if len(sizes) > 1:
        return f"its lists have {min(sizes)} to {max(sizes)} numbers"
    return Vector(size=sizes[0]) if sizes[0] else "it has no value"
