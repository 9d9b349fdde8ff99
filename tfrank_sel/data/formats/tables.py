"""Base of table readers: types of columns, and Arrow columns to rows of items."""

import abc
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tfrank_sel.data import arrays
from tfrank_sel.data.arrow_types import (
    accepts,
    arrow,
    is_binary,
    is_list,
    is_number,
    is_span,
    is_text,
    plain_type,
)
from tfrank_sel.data.formats import rows
from tfrank_sel.data.formats.reader import Part, RowReader, evenly_spaced
from tfrank_sel.data.rejections import Rejected, rejection
from tfrank_sel.data.schema import Columns, Schema, is_index
from tfrank_sel.data.table import ROLES, Table, check, check_types, parse_numbers, readable
from tfrank_sel.features import (
    REFUSE,
    Bool,
    Category,
    Feature,
    Number,
    Set,
    Timestamp,
    Vector,
    spans,
)

Row = tuple[str, int, dict[str, Any]]  # file, number of the row, and values by name
# Number of rows that are read at once.
ROWS = 8192
PARTS = 4  # of a file or folder, in a sample
TEXT_SUFFIXES = ("", ".gz", ".bz2", ".zst")  # of text that pyarrow decompresses
_MOST_DISTINCT = 0.9  # of the values of a category
_QUERIES = 20  # with several rows: in fewer, a column of items may be constant by chance
_WHO = "user|visitor|session|customer|client|account|device|item|product|doc"
_IDENTIFIER = re.compile(
    rf"(?:^|[\W_])(?i:u|uu|gu|{_WHO})?(?i:id)$|[a-z]I[dD]$|^(?i:user|visitor|session|customer)$"
)
_TIME = re.compile(r"(?:^|[\W_])(?:ts|at|date|day|(?:date)?time|(?:time)?stamp)$", re.IGNORECASE)
# Days are written like 2024-02-29 or 2024/02/29.
_DAYS = r"^(?:19|20)[0-9]{2}[-/.][0-9]{2}[-/.][0-9]{2}"
_SECONDS = (1e9, 3e9)  # since 1970: 2001 to 2065
# Days that are written as numbers, such as 20240229, are within these bounds.
_WRITTEN_DAYS = (19_000_101, 21_001_231)


class TableReader(RowReader):
    """Reader of files with named columns, by pyarrow.

    Attributes:
        is_open: Whether later rows may have columns that the first rows lack.

    Raises:
        ImportError: If pyarrow is not installed.
    """

    is_open: ClassVar[bool] = False

    def __init__(self, columns: Columns) -> None:
        arrow()
        super().__init__(columns)

    @abc.abstractmethod
    def schema(self, path: str) -> Any:
        """Returns the Arrow schema of a file: names and types of its columns."""

    def names(self, path: str) -> Sequence[str]:
        """Returns the names of the columns of a file."""
        names: Sequence[str] = self.schema(path).names
        return names

    @abc.abstractmethod
    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        """Yields some rows at a time.

        Args:
            part: The part to read.
            names: The columns to read.

        Yields:
            The numbers of rows in the file, counted from 1, and an Arrow table or batch of them;
            and malformed rows.
        """

    def pieces(self, part: Part) -> Iterator[tuple[Part, Mapping[str, str | None]]]:
        """Yields the files of a part, and the columns with one value for a whole file."""
        yield part, {}

    def sample(self, path: str) -> Any:
        """Returns some thousands of rows as an Arrow table, with the best-fitting types.

        Raises:
            InputError: If the file cannot be read.
        """
        pa = arrow()
        schema = self.schema(path)
        names = [name for name in schema.names if schema.names.count(name) == 1]
        chunks = []
        for part in evenly_spaced(self.parts(path), PARTS):
            tables = (x[2] for x in self.read(part, (), names) if not isinstance(x, Rejected))
            if (first := next((x for x in tables if x.num_rows), None)) is not None:
                common = [name for name in names if name in first.schema.names]
                chunks.append(pa.table({name: first[name] for name in common}))
        return common_columns(list(enumerate(chunks)))[0] if chunks else schema.empty_table()

    def propose(self, paths: Sequence[str]) -> tuple[dict[str, Feature], dict[str, str]]:
        sample, left_out = self.sample_files(paths, self.columns.required_names)
        features, others = propose(sample.schema, sample, self.columns)
        return features, {**others, **left_out}

    def sample_files(
        self, paths: Sequence[str], required: Sequence[str]
    ) -> tuple[Any, dict[str, str]]:
        """Returns a sample of files.

        Args:
            paths: The files.
            required: The columns that each of them must have.

        Returns:
            An Arrow table of the columns that all files have, with the best-fitting types; and the
            other columns, with the reasons.

        Raises:
            InputError: If a file cannot be read, or lacks a required column.
        """
        samples, left_out = dict[str, Any](), dict[str, str]()
        for path in evenly_spaced(sorted(paths)):
            with readable(path):
                sample = self.sample(path)
                names = list(self.names(path))
            check(path, names, required)
            counts = {x: count for x in names if (count := names.count(x)) > 1}
            left_out |= {x: f"{count} columns have this name" for x, count in counts.items()}
            lacking = {*names} - {*counts, *sample.schema.names}
            left_out |= dict.fromkeys(lacking, f"a file of {path} has no such column")
            once = [i for i, x in enumerate(sample.schema.names) if x not in counts]
            samples[path] = sample.select(once)
        filled = [(path, table) for path, table in samples.items() if table.num_rows]
        sample, of_some = common_columns(filled or list(samples.items()))
        return sample, {**of_some, **left_out}

    def infer(self, paths: Sequence[str]) -> Schema:
        schemas = {}
        for path in evenly_spaced(sorted(paths)):
            with readable(path):
                schemas[path] = self.schema(path)
        return infer(schemas, self.columns)

    def rows(self, part: Part, schema: Schema) -> Iterator[Table | Rejected]:
        needed = [*self.columns.required_names, *schema.features]
        chunks = self.read(part, needed, [self.columns.doc_id])
        return rows.check_rows(
            x if isinstance(x, Rejected) else of_table(x[:2], x[2], schema) for x in chunks
        )

    def dicts(self, part: Part, names: Sequence[str]) -> Iterator[Row | Rejected]:
        """Reads rows as dicts of values of any types, some rows at a time.

        Args:
            part: The part to read.
            names: The columns to read, of those that are there; records may have others, too.

        Raises:
            InputError: If the file cannot be read.
        """
        for chunk in self.read(part, (), names):
            if isinstance(chunk, Rejected):
                yield chunk
                continue
            path, numbers, table = chunk
            with readable(path):
                columns = {name: _of_python(table[name]) for name in table.schema.names}
                each = arrow().table(columns).to_pylist()
            yield from ((path, number, x) for number, x in zip(numbers.tolist(), each, strict=True))

    def read(
        self, part: Part, needed: Sequence[str], optional: Sequence[str] = ()
    ) -> Iterator[tuple[str, np.ndarray, Any] | Rejected]:
        """Reads columns, some rows at a time.

        Args:
            part: The part to read.
            needed: The columns that must be there.
            optional: Columns that are read if they are there.

        Yields:
            The file of some rows, their numbers and an Arrow table or batch; and malformed rows.

        Raises:
            InputError: If the file cannot be read, or lacks a column.
        """
        pa = arrow()
        for piece, constants in self.pieces(part):
            with readable(piece.path):
                present = self.names(piece.path)
                columns = [*present, *constants]
                check(piece.path, columns, [*needed, *(x for x in optional if x in columns)])
                names = dict.fromkeys([*needed, *optional])
                from_path = [x for x in names if x in constants]
                may_be = names if self.is_open else present
                own_names = [x for x in names if x in may_be and x not in constants]
                for chunk in self.tables(piece, own_names):
                    if isinstance(chunk, Rejected):
                        yield chunk
                        continue
                    numbers, table = chunk
                    for name in from_path:
                        value = pa.scalar(constants[name], pa.string())
                        table = table.append_column(name, pa.repeat(value, table.num_rows))
                    yield piece.path, numbers, table


def infer(schemas: Mapping[str, Any], columns: Columns) -> Schema:
    """Returns the types of the features of tables, and which context columns are numbers.

    Args:
        schemas: The Arrow schema of each table, by its name in errors.
        columns: Names of the parts. By default, the features are the integer and float columns
            without another role; Boolean and decimal columns may be named.

    Raises:
        InputError: If a column is missing, there is no feature, or a column does not fit its type.
    """
    numbers = {place: _numbers(schema) for place, schema in schemas.items()}
    names = dict.fromkeys(x for schema in schemas.values() for x in schema.names)
    numeric = {x for own in numbers.values() for x in own} - set(columns.others)
    free = [x for x in names if x in numeric and not is_index(x)]
    for path, schema in schemas.items():
        check(path, schema.names, [*columns.required_names, *(columns.features or free)])
        fits(path, schema, columns)
        for name in () if columns.types else columns.features:
            kind = schema.field(name).type
            if not accepts(kind, Number()) or is_text(plain_type(kind)):
                expected = f"expected numbers in the column {name!r}"
                raise rejection(path, expected, kind)
    if not (columns.features or free):
        path, schema = next(iter(schemas.items()))
        raise rejection(path, "expected a column of numbers", schema.names)
    return Schema(
        columns.types or dict.fromkeys(columns.features or free, Number(missing=REFUSE)),
        {name: all(name in own for own in numbers.values()) for name in columns.context},
        columns,
    )


def _numbers(schema: Any) -> list[str]:
    types = arrow().types
    kinds = ((x.name, plain_type(x.type)) for x in schema)
    return [x for x, kind in kinds if types.is_integer(kind) or types.is_floating(kind)]


def fits(path: str, schema: Any, columns: Columns) -> None:
    """Raises an `InputError` if a column of a table cannot have its role.

    Args:
        path: Name of the table in errors.
        schema: Its Arrow schema.
        columns: Names of the parts.
    """
    types = columns.types
    named = {"query": columns.query, "item": columns.doc_id, **columns.measures}
    roles = {name: (ROLES[role].column, ROLES[role].feature) for role, name in named.items()}
    check_types(path, schema, roles | {x: (f"of type {y.type}", y) for x, y in types.items()})


def of_table(origin: tuple[str, np.ndarray], table: Any, schema: Schema) -> Table:
    """Returns the rows of an Arrow table or batch, with the faults of invalid rows.

    Args:
        origin: As in `Table`.
        table: The table. Without identifiers of queries or items, they are empty.
        schema: The schema of its rows.
    """
    columns = schema.columns
    fits(origin[0], table.schema, columns)

    def read(name: str, convert: Callable[..., np.ndarray], *options: Any) -> np.ndarray:
        with readable(origin[0], f"a readable column {name!r}"):
            return convert(table[name], *options)

    measures = {"label": np.zeros(table.num_rows, np.float32)}
    measures |= {role: read(name, arrays.floats) for role, name in columns.measures.items()}
    features = np.empty([table.num_rows, len(schema.names)], np.float32)
    texts = np.empty([table.num_rows, len(schema.texts)], np.object_) if schema.texts else None
    for name, feature, are_texts, span in spans(schema.features):
        if are_texts and texts is not None:
            texts[:, span] = read(name, arrays.texts, feature)
        else:
            features[:, span] = read(name, arrays.numbers, feature)
    nothing = np.full(len(features), "", object)
    named = {"query": columns.query, "item": columns.doc_id}
    names = table.schema.names
    ids = {x: read(y, arrays.strings) if y in names else nothing for x, y in named.items()}
    context = {
        name: read(name, arrays.floats if is_number else arrays.strings)
        for name, is_number in schema.context.items()
    }

    def value_of(name: str, row: int) -> Any:
        return table[name][row].as_py()

    return rows.table_of(origin, schema, measures, (features, texts), ids, context, value_of)


def propose(
    schema: Any, sample: Any, columns: Columns
) -> tuple[dict[str, Feature], dict[str, str]]:
    """Proposes a type for each column without a role.

    Integers, floats and decimals become `Number`, Booleans `Bool`, dates and times `Timestamp`,
    texts that repeat `Category`, lists of numbers of one size `Vector`, and lists of texts `Set`.
    Integers are a `Category` if their name ends in "id" or is that of a user, or if they are as
    large and far apart as hashes. Integers that may be seconds since 1970, and texts of dates, are
    a `Timestamp` if their name is that of a time. A column that is `constant` in each query is of
    the query.

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
    of_query, first = constant(sample, columns.query)
    for field in schema:
        name = field.name
        if name in columns.others:
            continue
        proposal = _type(field, sample[name].take(first) if name in of_query else sample[name])
        if isinstance(proposal, str):
            left_out[name] = proposal
        elif name in of_query:
            features[name] = dataclasses.replace(proposal, of="query")
        else:
            features[name] = proposal
    return features, left_out


def constant(sample: Any, key: str) -> tuple[set[str], np.ndarray]:
    """Finds the columns that are equal in all rows of each value of a key, and not in all rows.

    Args:
        sample: An Arrow table.
        key: Name of the key, such as the query; the table may lack it.

    Returns:
        The names; and the index of the first row of each value of the key.
    """
    keys = _codes(sample[key]) if key in sample.schema.names else None
    if keys is None:
        return set(), np.array([], int)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    several = np.bincount(group)[group] > 1
    if len(np.unique(group[several])) < _QUERIES:
        return set(), first
    names = set()
    for name in (x for x in sample.schema.names if x != key):
        codes = _codes(sample[name])
        is_equal = codes is not None and bool((codes == codes[first][group]).all())
        if is_equal and np.ptp(codes[several]):
            names.add(name)
    return names, first


def _codes(column: Any) -> Any:
    """A number for each value, the same for equal ones; None for lists and the like."""
    if arrow().types.is_nested(column.type):
        return None
    encoded = arrays.plain(column).dictionary_encode("encode")
    return encoded.indices.to_numpy(zero_copy_only=False)


def common_columns(samples: Sequence[tuple[Any, Any]]) -> tuple[Any, dict[str, str]]:
    """Joins samples of files to one table.

    Args:
        samples: Names of files, and an Arrow table of each.

    Returns:
        The table of the columns that all files have, in the order of the first file; and the other
        columns, with the reasons: those of some files only, and those of lists and other values.
    """
    pa = arrow()
    named = [(path, dict(zip(x.schema.names, x.columns, strict=True))) for path, x in samples]
    columns, left_out = dict[str, Any](), dict[str, str]()
    for name in dict.fromkeys(name for _, of_file in named for name in of_file):
        lacking = [path for path, of_file in named if name not in of_file]
        if lacking:
            left_out[name] = f"{lacking[0]} has no such column"
            continue
        found = [of_file[name] for _, of_file in named]
        with contextlib.suppress(pa.ArrowException):
            if not any(map(_has_nested_texts, found)):
                columns[name] = join_columns(found)
        if name not in columns:
            left_out[name] = "it has lists or objects, and values of other types"
    return pa.table(columns), left_out


def _has_nested_texts(column: Any) -> bool:
    """Whether texts stand for lists or objects, which were among values of other types."""
    pa = arrow()
    if column.type != pa.string():
        return False
    marked = column.filter(pa.compute.starts_with(column, arrays.INVALID))
    return any(x[1:2] in ("[", "{") for x in marked.unique().to_pylist())


def join_columns(columns: list[Any]) -> Any:
    """Joins Arrow columns of several types to one: times of dates and times, or texts of others."""
    pa = arrow()
    typed = [x for x in columns if len(x) and not pa.types.is_null(x.type)] or columns
    kind = typed[0].type
    if all(x.type == kind for x in typed):
        chunks = [y for x in columns for y in getattr(x, "chunks", [x])]
        same = [x if x.type == kind else pa.nulls(len(x), kind) for x in chunks]
        return pa.chunked_array(same, kind)
    columns = [arrays.plain(x) for x in columns]
    try:
        if (time := _time_of([plain_type(x.type) for x in typed])) is not None:
            columns = [x.cast(time) for x in columns]
        tables = [pa.table({"x": x}) for x in columns]
        return pa.concat_tables(tables, promote_options="permissive")["x"]
    except pa.ArrowException:
        return pa.array(np.concatenate([arrays.strings(x) for x in columns]))


def _time_of(kinds: Sequence[Any]) -> Any:
    """The Arrow type for dates and times of several types; None for those of others.

    A time without a zone is UTC.
    """
    types = arrow().types
    times = [x for x in kinds if types.is_timestamp(x)]
    if not times or not all(types.is_date(x) for x in kinds if x not in times):
        return None
    unit = max((x.unit for x in times), key=("s", "ms", "us", "ns").index)
    zones = {x.tz if types.is_timestamp(x) else None for x in kinds}
    return arrow().timestamp(unit, zones.pop() if len(zones) == 1 else "UTC")


def _of_python(column: Any) -> Any:
    """A column whose values Python has, too: times are texts, as in identifiers."""
    types, kind = arrow().types, plain_type(column.type)
    is_known = types.is_nested(kind) or types.is_null(kind) or types.is_boolean(kind)
    if is_known or is_number(kind):
        return column
    texts = arrays.strings(column)
    return arrow().array(texts, mask=texts == "")


def _type(field: Any, column: Any) -> Feature | str:
    """The type of a column, or the reason why there is none."""
    types = arrow().types
    if is_index(field.name):
        return "it is the index of a pandas frame"
    if column.null_count == len(column):
        return "it has no value"
    is_encoded = types.is_dictionary(field.type)
    kind = field.type.value_type if is_encoded else field.type
    if is_binary(kind):
        return f"it is of type {kind}"
    column = arrays.plain(column)
    kind = column.type
    if is_list(kind):
        return _of_lists(kind.value_type, column)
    if types.is_nested(kind) or is_span(kind):
        return f"it is of type {kind}"
    distinct, present = len(column.unique().drop_null()), len(column) - column.null_count
    if distinct == 1 and present == len(column):
        return f"it has one value in {len(column)} sampled rows"
    if types.is_boolean(kind):
        return Bool()
    if types.is_temporal(kind):
        return Timestamp(parts=True)
    if _are_times(column, is_named=bool(_TIME.search(field.name))):
        return Timestamp(parts=True)
    is_long = types.is_integer(kind) and arrow().compute.max(column).as_py() >= 2**63
    is_identifier = types.is_integer(kind) and bool(
        is_encoded or is_long or _IDENTIFIER.search(field.name) or _are_hashes(column)
    )
    if is_number(kind) and not is_identifier:
        return Number()
    if distinct > _MOST_DISTINCT * present:
        values = "identifiers" if is_identifier else "texts"
        return f"its {values} almost all differ: {distinct} in {present} rows"
    return Category(dtype="int64") if is_identifier and not is_long else Category()


def _are_times(column: Any, is_named: bool) -> bool:
    """Whether values are times: texts of dates; or days in digits, and seconds, if so named."""
    pa = arrow()
    if is_text(column.type):
        words = arrays.strip_texts(column)
        if pa.compute.all(pa.compute.match_substring_regex(words, _DAYS)).as_py():
            return not np.isinf(arrays.numbers(column, Timestamp())).any()
        column = parse_numbers(words) if is_named else column
    if not is_named or not pa.types.is_integer(column.type):
        return False
    ends = pa.compute.min_max(column).as_py()
    are_in = [low <= ends["min"] and ends["max"] <= high for low, high in (_WRITTEN_DAYS, _SECONDS)]
    return any(are_in) and not np.isinf(arrays.numbers(column, Timestamp())).any()


def _are_hashes(column: Any) -> bool:
    """Whether integers are as large and far apart as hashes, unlike times in nanoseconds."""
    ends = arrow().compute.min_max(column).as_py()
    return bool(ends["max"] >= arrays.EXACT and 2 * ends["min"] < ends["max"])


def _of_lists(kind: Any, column: Any) -> Feature | str:
    if is_text(kind):
        return Set()
    if not is_number(kind):
        return f"it is of lists of type {kind}"
    sizes = arrow().compute.list_value_length(column).unique().drop_null().to_pylist()
    if len(sizes) > 1:
        return f"its lists have {min(sizes)} to {max(sizes)} numbers"
    return Vector(size=sizes[0]) if sizes[0] else "it has no value"
