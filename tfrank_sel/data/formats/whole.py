"""All rows of tables: identifiers as texts, numbers as float64, and the other columns."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import arrays, rows, tables
from tfrank_sel.data.formats.reader import Part
from tfrank_sel.data.formats.tables import TableReader
from tfrank_sel.data.lists import Rejected
from tfrank_sel.data.schema import Columns
from tfrank_sel.refusals import received

Rule = tuple[str, Callable[[np.ndarray], np.ndarray]]  # what is wanted, and whether numbers are so
_ANY: Rule = ("a finite number", np.isfinite)
_TIME: Rule = ("a finite number or a time in ISO 8601", np.isfinite)
# texts that are names, not the numbers that they can be read as: 007, 1e5
_NAME = r"^[+-]?0[0-9]|^[0-9]+[eE][0-9]+$"
_DAY = r"^(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])$"  # 20240229


@dataclasses.dataclass(frozen=True)
class Table:
    """All rows of some files.

    Args:
        ids: The texts of each role that identifies, `[rows]`, strings, as in lists.
        numbers: The numbers and times of each other role, `[rows]`, float64.
        columns: The columns that all files have, as an Arrow table; those that identify are texts.
            In text formats, all values are texts as they stand.
        kinds: The Arrow type that fits a sample of the values best, by column.
        left_out: Other columns, with the reasons.
    """

    ids: dict[str, np.ndarray]
    numbers: dict[str, np.ndarray]
    columns: Any
    kinds: Mapping[str, Any]
    left_out: Mapping[str, str]

    def typed(self) -> Any:
        """Returns `columns` with texts as values of their `kinds`, if these have the same texts.

        A number may have another text, 1.5 for `1.50`. But texts stay if one of them names
        something else, or is beyond 64 bits: `007`, `1e5`.
        """
        names = self.columns.column_names
        columns = {name: _typed(self.columns[name], self.kinds[name]) for name in names}
        return arrays.arrow().table(columns)


def read(
    reader: TableReader,
    paths: Sequence[str],
    ids: Mapping[str, str],
    numbers: Mapping[str, str],
    rules: Mapping[str, Rule],
    *,
    times: Mapping[str, str],
    others: bool,
    rejected: list[Rejected] | None,
) -> Table:
    """Reads tables; arguments and errors are those of `tfrank_sel.data.formats.table`."""
    pa = arrays.arrow()
    rules = {**dict.fromkeys(times, _TIME), **rules}
    roles = list(dict.fromkeys([*ids.values(), *numbers.values(), *times.values()]))
    sample, left_out = reader.sampled(paths, roles) if others else (pa.table({}), {})
    kinds = {x.name: x.type for x in sample.schema}
    # all may be identifiers, which keep each digit
    exact = {*kinds, *roles} - {Columns.query, Columns.doc_id}
    reader = type(reader)(Columns(label=None, context=tuple(exact)))
    chunks = (x for path in paths for x in reader.read(Part(path), roles, list(kinds)))
    values = {role: [np.empty(0, object)] for role in ids}
    values |= {role: [np.empty(0)] for role in (*numbers, *times)}
    kept = []
    for path, table, by_role in _valid(chunks, ids, numbers, times, rules, rejected):
        for role, array in by_role.items():
            values[role].append(array)
        texts = {name: pa.array(by_role[role], pa.string()) for role, name in ids.items()}
        there = [x for x in kinds if x in table.schema.names]
        columns = {x: texts.get(x, _plain(table[x], kinds[x])) for x in there}
        kept.append((path, pa.table(columns)))
    with tables.readable(paths[0], "columns of one type in all files"):
        columns, lacking = tables.whole(kept)
    return Table(
        {role: np.concatenate(values[role]) for role in ids},
        {role: np.concatenate(values[role]) for role in (*numbers, *times)},
        columns.unify_dictionaries(),
        kinds | dict.fromkeys(ids.values(), pa.string()),
        {**left_out, **lacking},
    )


def _plain(column: Any, kind: Any) -> Any:
    """A column of a type that Arrow's functions take; the bytes of a text file as texts."""
    types = arrays.arrow().types
    is_of_text = arrays.is_binary(column.type) and not arrays.is_binary(kind)
    if is_of_text or types.is_run_end_encoded(column.type) or "view" in str(column.type):
        return arrays.plain(column)
    return column


def _valid(
    chunks: Iterable[tuple[str, np.ndarray, Any] | Rejected],
    ids: Mapping[str, str],
    numbers: Mapping[str, str],
    times: Mapping[str, str],
    rules: Mapping[str, Rule],
    rejected: list[Rejected] | None,
) -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    """The valid rows of tables, and the values of each role."""
    roles = dict.fromkeys(ids.values(), tables.TEXT)
    roles |= dict.fromkeys(numbers.values(), tables.NUMBER)
    roles |= dict.fromkeys(times.values(), tables.TIME)
    for chunk in chunks:
        if isinstance(chunk, Rejected):
            _reject([chunk], rejected)
            continue
        path, places, table = chunk
        tables.check_types(path, table.schema, roles)
        with tables.readable(path):
            by_role = {role: arrays.strings(table[name]) for role, name in ids.items()}
            by_role |= {role: arrays.doubles(table[name]) for role, name in numbers.items()}
            by_role |= {role: arrays.moments(table[name]) for role, name in times.items()}
        bad = _faults(table, by_role, {**ids, **numbers, **times}, rules)
        faults = [Rejected(path, "row", int(places[i]), x) for i, x in sorted(bad.items())]
        _reject(faults, rejected)
        if bad:
            kept = np.delete(np.arange(table.num_rows), list(bad))
            with tables.readable(path):
                table = table.take(arrays.arrow().array(kept))
            by_role = {role: array[kept] for role, array in by_role.items()}
        yield path, table, by_role


def _reject(faults: Sequence[Rejected], rejected: list[Rejected] | None) -> None:
    if faults and rejected is None:
        raise faults[0].error()
    if rejected is not None:
        rejected.extend(faults)


def _faults(
    table: Any,
    by_role: Mapping[str, np.ndarray],
    names: Mapping[str, str],
    rules: Mapping[str, Rule],
) -> dict[int, str]:
    """The first broken rule of each invalid row."""
    faults: dict[int, str] = {}
    for role, values in by_role.items():
        if values.dtype == object:
            rule, is_bad = (
                rows.TEXT,
                arrays.mask_of(values, lambda x: not x or rows.is_invalid(x)),
            )
        else:
            rule, accepts = rules.get(role, _ANY)
            with np.errstate(invalid="ignore"):
                is_bad = ~(np.isfinite(values) & accepts(values))
        for row in np.flatnonzero(is_bad).tolist():
            value = rows.shown(table[names[role]][row].as_py())
            faults.setdefault(row, received(f"{names[role]!r} must be {rule}", value))
    return faults


def _typed(column: Any, kind: Any) -> Any:
    """Texts as values of a type, if these have the same texts: see `Table.typed`."""
    pa = arrays.arrow()
    if not arrays.is_text(column.type):
        return column
    if arrays.is_number(kind):
        return numbered(arrays.plain(column))
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if not is_time and not pa.types.is_boolean(kind):
        return column
    texts = arrays.strings(column, spell=True)
    words = pa.array(texts, mask=texts == "")
    try:
        values = words.cast(pa.timestamp("us") if is_time else pa.bool_())
    except pa.ArrowInvalid:
        return column
    return values if np.array_equal(arrays.strings(values), texts) else column


def numbered(texts: Any) -> Any:
    """Returns texts as numbers; as they are if one of them names something else: `007`, `1e5`."""
    pa = arrays.arrow()
    values = arrays.doubles(texts, words=False)
    matches = pa.compute.match_substring_regex
    are_names = pa.compute.any(matches(texts, _NAME)).as_py()
    if np.isinf(values).any() or are_names or pa.compute.all(matches(texts, _DAY)).as_py():
        return texts
    is_nothing = np.isnan(values)
    if np.any(np.abs(values[~is_nothing]) >= arrays.EXACT):
        try:
            return texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return texts
    if (
        np.all(values[~is_nothing] % 1.0 == 0.0)
        and not pa.compute.any(matches(texts, "[.]")).as_py()
    ):
        return pa.array(np.where(is_nothing, 0.0, values).astype(np.int64), mask=is_nothing)
    return pa.array(values, mask=is_nothing)
