"""Proposed feature types for the columns of a table."""

from typing import Any

from tfrank_sel.data.formats import values
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
        ({'price': 'number', 'is_new': 'bool'}, {'page': 'it has one value in the first 2 rows'})
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


def _type(field: Any, found: Any) -> Feature | str:
    """The type of a column, or the reason why there is none."""
    types = values.arrow().types
    if is_index(field.name):
        return "it is the index of a pandas frame"
    if found.null_count == len(found):
        return "it has no value"
    is_encoded = types.is_dictionary(field.type)
    kind = field.type.value_type if is_encoded else field.type
    if values.is_list(kind):
        return _of_lists(kind.value_type, values.plain(found))
    if types.is_nested(kind) or values.is_binary(kind) or values.is_span(kind):
        return f"it is of type {kind}"
    distinct, known = len(found.unique().drop_null()), len(found) - found.null_count
    if distinct == 1 and known == len(found):
        return f"it has one value in the first {len(found)} rows"
    if types.is_boolean(kind):
        return Bool()
    if types.is_temporal(kind):
        return Timestamp(parts=True)
    if values.is_number(kind) and not is_encoded:
        return Number()
    if is_encoded and types.is_integer(kind):
        return Category(dtype="int64")
    if distinct > _MOST_DISTINCT * known:
        return f"its texts almost all differ: {distinct} in {known} rows"
    return Category()


def _of_lists(kind: Any, found: Any) -> Feature | str:
    if values.is_text(kind):
        return Set()
    if not values.is_number(kind):
        return f"it is of lists of type {kind}"
    sizes = values.arrow().compute.list_value_length(found).unique().drop_null().to_pylist()
    if len(sizes) > 1:
        return f"its lists have {min(sizes)} to {max(sizes)} numbers"
    return Vector(size=sizes[0]) if sizes[0] else "it has no value"
