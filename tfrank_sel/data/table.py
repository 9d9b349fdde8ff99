"""Tables: rows whose columns have roles, from files, frames, mappings and dicts alike.

A role has one type and one rule wherever it comes from. Those who identify are texts of one
spelling: 12.0 is `12`, and `007` stays. Numbers are float64. Times keep their unit, so that rows
can be sorted by them.
"""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.data import arrays
from tfrank_sel.data.arrow_types import accepts, arrow, is_binary, is_number, is_text
from tfrank_sel.data.rejections import InputError, Rejected, rejection
from tfrank_sel.errors import received, refusal
from tfrank_sel.features import Category, Feature, Number, Timestamp

TEXT = "UTF-8 text, or a number without rounding"
_SHOWN = 60  # maximum characters of a value in a message
# texts that are names, not the numbers that they can be read as: 007, 1e5
_NAME = r"^\s*[+-]?0[0-9]|^\s*[0-9]+[eE][0-9]+\s*$"


class Role(NamedTuple):
    """What the values of a column must be.

    Args:
        rule: The rule, in words.
        accepts: Returns whether numbers are so, `[rows]`.
        column: What the column must be, in words.
        feature: The same as a feature.
        convert: Converts an Arrow column.
    """

    rule: str
    accepts: Callable[[np.ndarray], np.ndarray]
    column: str
    feature: Feature
    convert: Callable[[Any], np.ndarray]


def _number(
    rule: str, accepts: Callable[[np.ndarray], np.ndarray] = np.isfinite, *, words: bool = True
) -> Role:
    convert = functools.partial(arrays.doubles, words=words)
    return Role(rule, accepts, "of type number", Number(), convert)


_ID = Role(TEXT, lambda x: x != "", "of type text", Category(), arrays.strings)
_AT_LEAST_0 = _number("a finite number that is not negative", lambda x: x >= 0.0)
_COUNT = _number("a finite number above 0", lambda x: x > 0.0)
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("query", "user", "item", "session", "judge", "slice", "group"), _ID),
    **dict.fromkeys(("label", "weight", "gain", "clicks"), _AT_LEAST_0),
    **dict.fromkeys(("list_weight", "shown"), _COUNT),
    **dict.fromkeys(("score", "credit", "relevance"), _number("a finite number")),
    "rating": _number("a number of 0 or more", lambda x: x >= 0.0, words=False),
    "propensity": _number("a number above 0, at most 1", lambda x: (x > 0.0) & (x <= 1.0)),
    "position": _number(
        "a whole number from 1", lambda x: (x >= 1.0) & (x % 1.0 == 0.0) & (x < arrays.EXACT)
    ),
    "click": _number("from 0 to 1", lambda x: (x >= 0.0) & (x <= 1.0)),
    "team": _number("0 or 1", lambda x: (x == 0.0) | (x == 1.0)),
    "time": Role(
        "a finite number or a time in ISO 8601",
        np.isfinite,
        "a time",
        Timestamp(),
        arrays.moments,
    ),
}


def is_id(role: str) -> bool:
    """Whether a role identifies, so that its values are texts."""
    return ROLES[role] is _ID


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rows whose columns have roles.

    Args:
        place: The file of the rows, or of each of them, and their numbers, `[rows]`, for messages.
        roles: Values of each role, `[rows]`: texts, float64, or for times as `arrays.moments`.
        features: Numbers of the features, float32 `[rows, num_features]`, NaN if missing; None if
            they are not known.
        texts: Texts of the features, `[rows, num_texts]`, empty if missing; None without any.
        context: Other values of the query, by name, `[rows]`.
        faults: Reason why a row is invalid, by its index.
        columns: All columns that were kept, as an Arrow table; those that identify are texts. Those
            of text formats have all values as texts as they stand.
        kinds: The Arrow type that fits a sample of the values best, by column.
        left_out: Other columns, with the reasons.
    """

    place: tuple[Any, np.ndarray]
    roles: Mapping[str, np.ndarray]
    features: Any = None
    texts: Any = None
    context: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    faults: Mapping[int, str] = dataclasses.field(default_factory=dict)
    columns: Any = None
    kinds: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.place[1])

    def __getitem__(self, role: str) -> np.ndarray:
        return self.roles[role]

    def take(self, rows: np.ndarray | slice) -> "Table":
        """Returns some of the rows, by index, without their faults."""
        files, numbers = self.place
        features, texts, columns = self.features, self.texts, self.columns
        if columns is not None:
            columns = columns.take(arrow().array(np.arange(len(self))[rows]))
        return Table(
            (files if isinstance(files, str) else files[rows], numbers[rows]),
            {role: values[rows] for role, values in self.roles.items()},
            None if features is None else features[rows],
            None if texts is None else texts[rows],
            {name: values[rows] for name, values in self.context.items()},
            {},
            columns,
            self.kinds,
            self.left_out,
        )

    def reject(self, row: int, reason: str, unit: str = "row") -> Rejected:
        """Returns a row, by its index, as a rejected one."""
        files, numbers = self.place
        file = files if isinstance(files, str) else files[row]
        return Rejected(file, unit, int(numbers[row]), reason)

    def restore_types(self) -> Any:
        """Returns `columns` with texts as values of their `kinds`, if these have the same texts.

        A number may have another text, 1.5 for `1.50`. But texts stay if one of them names
        something else, or is beyond 64 bits: `007`, `1e5`.
        """
        names = self.columns.column_names
        columns = {name: _restore_type(self.columns[name], self.kinds[name]) for name in names}
        return arrow().table(columns)


def read(
    chunks: Iterable[tuple[str, np.ndarray, Any] | Rejected],
    roles: Mapping[str, str],
    kinds: Mapping[str, Any],
    rejected: list[Rejected] | None = None,
    optional: Collection[str] = (),
) -> Iterator[Table]:
    """Yields the valid rows of Arrow tables.

    Args:
        chunks: The file of some rows, their numbers and an Arrow table; and malformed rows.
        roles: Name of the column of each role.
        kinds: Types of the columns that are kept.
        rejected: List to append malformed rows to, and those without a valid value of each role. By
            default, the first one is an error.
        optional: Roles that all rows may lack.

    Raises:
        InputError: At a column that cannot have its role, or at a bad row.
    """
    pa = arrow()
    asked, named = roles, set[str]()
    wanted = {roles[role]: (x.column, x.feature) for role, x in ROLES.items() if role in roles}
    for chunk in chunks:
        if isinstance(chunk, Rejected):
            reject([chunk], rejected)
            continue
        path, places, table = chunk
        check_types(path, table.schema, wanted)
        if optional and not table.num_rows:
            continue
        roles = {x: y for x, y in asked.items() if x not in optional or _has_values(table, y)}
        if named and (lacking := named ^ {*roles}):
            name = asked[min(lacking)]
            reason = f"expected a column {name!r} in all rows, or in none"
            raise Rejected(path, "row", int(places[0]), reason).error()
        named |= {*roles}
        with readable(path):
            values = {role: ROLES[role].convert(table[name]) for role, name in roles.items()}
        bad = _faults(table, values, roles)
        faults = [Rejected(path, "row", int(places[i]), x) for i, x in sorted(bad.items())]
        reject(faults, rejected)
        if bad:
            kept = np.delete(np.arange(table.num_rows), list(bad))
            with readable(path):
                table = table.take(pa.array(kept))
            values, places = {role: x[kept] for role, x in values.items()}, places[kept]
        texts = {
            name: pa.array(values[role], pa.string()) for role, name in roles.items() if is_id(role)
        }
        kept_names = [x for x in kinds if x in table.schema.names]
        columns = {x: texts.get(x, _plain(table[x], kinds[x])) for x in kept_names}
        yield Table((path, places), values, columns=pa.table(columns))


def alike(
    parts: Sequence[Table], roles: Mapping[str, str], rejected: list[Rejected] | None = None
) -> list[Table]:
    """Returns tables as they are; if some have times, numbers in others are times, too.

    Args:
        parts: The tables.
        roles: As in `read`.
        rejected: As in `read`, for numbers that are no times.

    Raises:
        InputError: At a bad row.
    """
    kinds = {part["time"].dtype.kind == "M" for part in parts if "time" in part.roles}
    if len(kinds) < 2:
        return [*parts]
    found = []
    expected = f"{roles['time']!r} must be seconds since 1970 or a day, beside times in ISO 8601"
    for part in parts:
        if (values := part["time"]).dtype.kind != "M":
            times = arrays.instants(values)
            bad = np.flatnonzero(np.isnat(times)).tolist()
            reasons = [received(expected, format_value(values[row].item())) for row in bad]
            reject([part.reject(*x) for x in zip(bad, reasons, strict=True)], rejected)
            part = dataclasses.replace(part, roles={**part.roles, "time": times})
            part = part.take(np.delete(np.arange(len(part)), bad))
        found.append(part)
    return found


def concatenate(parts: Sequence[Table]) -> Table:
    """Returns the rows of tables with the same roles as one table, without its `columns`."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]

    def whole(values: Iterable[Any]) -> Any:
        each = list(values)
        return None if each[0] is None else arrays.concatenate(each)

    files: Any = first.place[0]
    if any(part.place[0] is not files for part in parts):
        files = whole(np.broadcast_to(np.array(x.place[0], object), len(x)) for x in parts)
    return Table(
        (files, whole(part.place[1] for part in parts)),
        {
            role: whole(part[role] for part in parts)
            for role in (x for x in ROLES if x in first.roles)
        },
        whole(part.features for part in parts),
        whole(part.texts for part in parts),
        {name: whole(part.context[name] for part in parts) for name in first.context},
    )


def empty(roles: Iterable[str]) -> Table:
    """Returns a table of no row."""
    nothing = arrow().nulls(0)
    return Table(("", np.empty(0, np.int64)), {x: ROLES[x].convert(nothing) for x in roles})


def _has_values(table: Any, name: str) -> bool:
    return name in table.schema.names and table[name].null_count < table.num_rows


def _plain(column: Any, kind: Any) -> Any:
    """A column of a type that Arrow's functions take; the bytes of a text file as texts."""
    types = arrow().types
    is_of_text = is_binary(column.type) and not is_binary(kind)
    if is_of_text or types.is_run_end_encoded(column.type) or "view" in str(column.type):
        return arrays.plain(column)
    return column


def reject(faults: Sequence[Rejected], rejected: list[Rejected] | None) -> None:
    """Appends faults to a list; without one, the first is an error: see `Rejected.refuse`."""
    if rejected is not None:
        rejected.extend(faults)
        return
    for fault in faults:
        fault.refuse()


def _faults(
    table: Any, values: Mapping[str, np.ndarray], roles: Mapping[str, str]
) -> dict[int, str]:
    """The first broken rule of each invalid row."""
    faults: dict[int, str] = {}
    for role, of_rows in values.items():
        rule, accepts, *_ = ROLES[role]
        if of_rows.dtype == object:
            is_bad = arrays.mask_of(of_rows, lambda x: not x or is_invalid(x))
        else:
            with np.errstate(invalid="ignore"):
                is_bad = ~(np.isfinite(of_rows) & accepts(of_rows))
        for row in np.flatnonzero(is_bad).tolist():
            value = format_value(table[roles[role]][row].as_py())
            faults.setdefault(row, received(f"{roles[role]!r} must be {rule}", value))
    return faults


def is_invalid(text: str) -> bool:
    """Whether a text is that of an invalid value: see `arrays`."""
    return text.startswith(arrays.INVALID)


def format_value(value: Any) -> str:
    """Returns a value as messages show it."""
    if isinstance(value, bytes) and not is_invalid(text := arrays.decode(value)):
        value = text
    text = "nothing" if value is None else repr(value).replace(repr(arrays.INVALID)[1:-1], "")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def identifier(where: str, name: str, value: Any) -> str:
    """Returns one value as the text of an identifier, as in columns.

    Raises:
        InputError: If it is missing or no text.
    """
    text = arrays.text(value)
    if not text or is_invalid(text):
        raise rejection(where, f"{name!r} must be {TEXT}", format_value(value))
    return text


def of_frame(
    source: Any,
    column: Callable[[Any], Any] = arrays.array,
    names: Collection[str] | None = None,
) -> Any:
    """Converts a table in memory to an Arrow table.

    Args:
        source: A pandas or polars frame, an Arrow table, a mapping of names to columns, or a
            sequence of dicts.
        column: Converts a column without a type to an Arrow array.
        names: The columns to convert, of those that are there; all if None. Other names become
            texts, and several columns may have one.

    Raises:
        ImportError: If pyarrow is not installed.
        TypeError: If it is none of these.
        ValueError: If these columns differ in length.
    """
    pa = arrow()
    if hasattr(source, "to_arrow"):
        source = source.to_arrow()
    if isinstance(source, pa.Table | pa.RecordBatch):
        present = source.schema.names
        kept = [i for i, name in enumerate(present) if names is None or name in names]
        return source if len(kept) == len(present) else source.select(kept)
    if hasattr(source, "columns") and not isinstance(source, Mapping):
        present = [str(name) for name in source.columns]
        kept = [i for i, name in enumerate(present) if names is None or name in names]
        frame = source if len(kept) == len(present) else source.iloc[:, kept]
        pairs = [(present[i], frame.iloc[:, n]) for n, i in enumerate(kept)]
        if len(dict(pairs)) == len(pairs):
            with contextlib.suppress(pa.ArrowInvalid, TypeError, OverflowError, UnicodeError):
                table = pa.Table.from_pandas(frame, preserve_index=False)
                for i, kind in enumerate(table.schema.types):
                    if pa.types.is_date32(kind):  # there may be times among them
                        table = table.set_column(i, pairs[i][0], column(pairs[i][1]))
                return table
    elif isinstance(source, Mapping):
        pairs = [(str(x), y) for x, y in source.items() if names is None or str(x) in names]
    elif isinstance(source, Sequence) and all(isinstance(x, Mapping) for x in source):
        each = dict.fromkeys(x for row in source for x in row if names is None or str(x) in names)
        pairs = [(str(name), [row.get(name) for row in source]) for name in each]
    else:
        expected = "expected a frame, an Arrow table, a mapping of columns or a list of dicts"
        raise TypeError(received(expected, type(source).__name__))
    columns, pair_names = [column(x) for _, x in pairs], [name for name, _ in pairs]
    if len({*map(len, columns)}) > 1:
        raise refusal(
            "columns must be of one length", dict(zip(pair_names, map(len, columns), strict=True))
        )
    return pa.table(columns, pair_names)


@contextlib.contextmanager
def readable(path: str, what: str = "a readable table") -> Iterator[None]:
    """Converts errors of files, of texts and of Arrow to an `InputError` of one line."""
    try:
        yield
    except (
        OSError,
        EOFError,
        UnicodeError,
        OverflowError,
        arrow().ArrowException,
    ) as error:
        reason = received(f"expected {what}", error).replace("\n", " ")
        raise InputError(path, reason) from error


def check(path: str, names: Sequence[str], required: Iterable[str]) -> None:
    """Raises an `InputError` if a table lacks a column, or has two of its name."""
    present = set(names)
    for name in required:
        if name not in present:
            raise rejection(path, f"expected a column {name!r}", list(names))
        if len(present) < len(names) and (count := list(names).count(name)) > 1:
            expected = f"expected one column {name!r}; rename the others"
            raise rejection(path, expected, f"{count} columns of this name")


def check_types(path: str, schema: Any, roles: Mapping[str, tuple[str, Feature]]) -> None:
    """Raises an `InputError` if a column cannot hold a feature.

    Args:
        path: Name of the table in errors.
        schema: Its Arrow schema.
        roles: What each column must be, in words and as a feature, by name.
    """
    names = schema.names
    present = [name for name in roles if name in set(names)]
    check(path, names, present)
    for name in present:
        (role, feature), kind = roles[name], schema.field(name).type
        if not accepts(kind, feature):
            expected = f"expected a column {name!r} that can be {role}"
            raise rejection(path, expected, kind)


def tell_partners(
    what: str, has_partner: ArrayLike, others: str, names: Sequence[str] | np.ndarray = ()
) -> None:
    """Warns of those that found no partner in another table; more than half is an error.

    Args:
        what: What they are, such as `clicks`.
        has_partner: Whether each found one.
        others: Where the partners are, such as `the sessions of log.jsonl`.
        names: Their names, of which the first without a partner is told.

    Raises:
        ValueError: If more than half have no partner.
    """
    has = np.asarray(has_partner, bool)
    count, lost = len(has), int(np.sum(~has))
    of = f"{lost} of {count} {what}"
    if lost and len(names):
        of += f", such as {names[int(has.argmin())]!r},"
    if 2 * lost > count:
        raise refusal(f"at least half of the {what} must be among {others}", f"{of} are not")
    if lost:
        warnings.warn(f"{of} are not among {others}, and are left out", stacklevel=3)


def _restore_type(column: Any, kind: Any) -> Any:
    """Texts as values of a type, if these have the same texts: see `Table.restore_types`."""
    pa = arrow()
    if not is_text(column.type):
        return column
    if is_number(kind):
        return parse_numbers(arrays.plain(column))
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


def parse_numbers(texts: Any) -> Any:
    """Returns texts as numbers; as they are if one of them names something else: `007`, `1e5`.

    Whole numbers are integers, up to 64 bits, of which none is rounded; further ones are texts.
    """
    pa = arrow()
    values = arrays.doubles(texts, words=False)
    matches = pa.compute.match_substring_regex
    if np.isinf(values).any() or pa.compute.any(matches(texts, _NAME)).as_py():
        return texts
    is_nothing = np.isnan(values)
    is_present = pa.array(~is_nothing)
    are_whole = pa.compute.all(matches(texts.filter(is_present), r"^\s*[+-]?[0-9]+\s*$")).as_py()
    if not are_whole:
        return pa.array(values, mask=is_nothing)
    words = pa.compute.utf8_trim_whitespace(pa.compute.if_else(is_present, texts, None))
    words = pa.compute.utf8_ltrim(words, "+")
    for kind in (pa.int64(), pa.uint64()):
        try:
            return words.cast(kind)
        except pa.ArrowInvalid:
            continue
    return texts
