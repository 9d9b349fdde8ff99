"""Lists of items: the rows of a table, one list after the other."""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tfrank_sel import lazy
from tfrank_sel.arguments import Checked
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.schema import Schema
from tfrank_sel.data.table import Table, concatenate
from tfrank_sel.errors import refusal

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = lazy.Module("tensorflow")

Piece = TypeVar("Piece")
BLOCK = 2**16  # items of a padded batch


@dataclasses.dataclass(frozen=True, eq=False)
class ItemList(Checked):
    """One list: a query and its items, in the order of the source.

    Args:
        query_id: Identifier of the query.
        labels: Relevance of each item, `[list_size]`, float32, finite and not negative.
        features: Numbers of each item, `[list_size, num_features]`, float32; NaN for a missing
            number, if its type allows that.
        doc_ids: Identifier of each item.
        texts: Texts of each item, `[list_size, num_texts]`, of `str`; empty if missing.
        weights: Weight of each item, `[list_size]`, float32; None for 1.

    Raises:
        ValueError: If the parts disagree on the number of items.
    """

    query_id: str
    labels: np.ndarray
    features: np.ndarray
    doc_ids: tuple[str, ...]
    texts: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        parts = {name: x for name, x in vars(self).items() if name != "query_id" and x is not None}
        sizes = {name: len(x) for name, x in parts.items()}
        if self.features.ndim != 2 or len(set(sizes.values())) > 1:
            raise refusal(
                "the parts of a list must describe the same items, and `features` have two axes",
                f"{sizes}, features of shape {self.features.shape}",
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """Lists of items, one after the other, without padding.

    Args:
        table: The items, list by list, with the roles `label` and `weight` if they are known, both
            float32, and `item`, empty for items without an identifier.
        sizes: Number of items of each list, `[lists]`.
        queries: Identifier of the query of each list, `[lists]`; none if they are not known.
        context: Other values of each query, by name, `[lists]`.
    """

    table: Table
    sizes: np.ndarray
    queries: Sequence[str] = ()
    context: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sizes: np.ndarray,
        features: np.ndarray,
        texts: np.ndarray | None = None,
        queries: Sequence[str] = (),
        place: tuple[str, np.ndarray] | None = None,
        **roles: np.ndarray | None,
    ) -> "Lists":
        """Makes lists of arrays.

        Args:
            sizes: As in `Lists`.
            features: Numbers, float32 `[items, num_features]`.
            texts: Texts, `[items, num_texts]`.
            queries: As in `Lists`.
            place: As in `Table`; the items are counted from 0 by default.
            **roles: Values of the items by role; None for those that are not known.
        """
        known = {role: values for role, values in roles.items() if values is not None}
        numbers = np.arange(len(features)) if place is None else place[1]
        table = Table(("" if place is None else place[0], numbers), known, features, texts)
        return cls(table, sizes, queries)

    @classmethod
    def group(cls, parts: Sequence[Table], schema: Schema | None = None) -> "Lists":
        """Groups rows by query, in the order of the first rows.

        Args:
            parts: Tables with the role `query`.
            schema: Types of the features: those of the query have its value in the first row.
        """
        table = concatenate(parts)
        sizes, order = groups(table["query"].tolist())
        return cls.of_rows(table if _is_sorted(order) else table.take(order), sizes, schema)

    @classmethod
    def of_rows(cls, table: Table, sizes: np.ndarray, schema: Schema | None = None) -> "Lists":
        """Makes lists of rows that are in order, as `group_rows`."""
        starts = np.cumsum(sizes) - sizes
        context = {name: values[starts].tolist() for name, values in table.context.items()}
        queries = table.roles.get("query")
        if schema is not None:
            table = _of_first(table, np.repeat(starts, sizes), schema)
        return cls(table, sizes, () if queries is None else queries[starts].tolist(), context)

    @property
    def features(self) -> np.ndarray:
        """Numbers of the items, float32 `[items, num_features]`."""
        features: np.ndarray = self.table.features
        return features

    @property
    def texts(self) -> np.ndarray | None:
        """Texts of the items, `[items, num_texts]`; None without any."""
        texts: np.ndarray | None = self.table.texts
        return texts

    @property
    def labels(self) -> np.ndarray:
        """Relevance of the items, float32 `[items]`."""
        return self.table["label"]

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the items, float32 `[items]`; None for 1."""
        return self.table.roles.get("weight")

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[ItemList]:
        labels, weights, items = self.labels, self.weights, self.table["item"]
        features, texts = self.features, self.texts
        for query, (start, end) in zip(self.queries, self._ends, strict=True):
            one = object.__new__(ItemList)  # its parts agree; checks would take half of the time
            vars(one).update(
                query_id=query,
                labels=labels[start:end],
                features=features[start:end],
                doc_ids=identifiers(query, items[start:end]),
                texts=None if texts is None else texts[start:end],
                weights=None if weights is None else weights[start:end],
            )
            yield one

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """The first row of each list, and the number of all, `[lists + 1]`."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def _ends(self) -> Iterator[tuple[int, int]]:
        """The first row of each list, and that after the last."""
        return itertools.pairwise(self.offsets.tolist())

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Yields the query and the rows of each list."""
        for query, (start, end) in zip(self.queries, self._ends, strict=True):
            yield query, self.table.take(slice(start, end))

    def pieces(self, items: int) -> "Iterator[Lists]":
        """Yields consecutive lists, as many as have so many items or more."""
        start, offsets = 0, self.offsets.tolist()
        while start < len(self):
            end = bisect.bisect_left(offsets, offsets[start] + items, start + 1)
            lists = slice(start, min(end, len(self)))
            rows = slice(offsets[start], offsets[lists.stop])
            context = {name: values[lists] for name, values in self.context.items()}
            yield Lists(self.table.take(rows), self.sizes[lists], self.queries[lists], context)
            start = lists.stop

    def take(self, lists: np.ndarray) -> "Lists":
        """Returns some of the lists.

        Args:
            lists: Their indices, or whether to take each list, `[lists]`.
        """
        chosen = np.arange(len(self))[lists]
        sizes = self.sizes[chosen]
        rows = np.arange(sizes.sum()) + np.repeat(
            self.offsets[chosen] - np.cumsum(sizes) + sizes, sizes
        )
        queries = [self.queries[i] for i in chosen] if self.queries else ()
        context = {name: [x[i] for i in chosen] for name, x in self.context.items()}
        return Lists(self.table.take(rows), sizes, queries, context)

    def split(self, share: float | None, seed: int) -> tuple["Lists", "Lists | None"]:
        """Divides the lists at random into those to learn from and those held out.

        Args:
            share: Share of the lists to hold out, at least one list and never all; None to hold out
                none, as of a single list.
            seed: Seed of the choice.
        """
        count = len(self)
        if share is None or count == 1:
            return self, None
        held_out = min(max(1, round(share * count)), count - 1)
        chosen = np.random.default_rng(seed).permutation(count)[:held_out]
        is_held_out = np.isin(np.arange(count), chosen)
        return self.take(~is_held_out), self.take(is_held_out)

    def batches(self) -> "Iterator[tuple[np.ndarray, dict[str, tf.Tensor], np.ndarray]]":
        """Yields batches of lists of about the same size.

        Yields:
            The indices of the items, `[items]`; the inputs of a model, of which `mask` is True for
            an item; and the same mask as an array.
        """
        by_size = np.argsort(self.sizes, kind="stable")
        sizes, starts = self.sizes[by_size], self.offsets[by_size]
        begin = 0
        while begin < len(sizes):
            end = begin + 1
            while end < len(sizes) and (end - begin + 1) * sizes[end] <= BLOCK:
                end += 1
            # of one item, formulas that compare items would warn
            places = np.arange(max(sizes[end - 1], 2))
            mask = places < sizes[begin:end, np.newaxis]
            rows = (starts[begin:end, np.newaxis] + places)[mask]
            inputs = {"features": pad(self.features[rows], mask, 0.0)}
            if self.texts is not None:
                inputs["texts"] = pad(self.texts[rows], mask, "")
            tensors = {name: tf.constant(x) for name, x in inputs.items()}
            yield rows, {**tensors, "mask": tf.constant(mask)}, mask
            begin = end

    def dataset(self) -> "tf.data.Dataset":
        """Returns `batches` of inputs, labels and, if there are any, weights, to train on."""
        roles = [self.table[x] for x in ("label", "weight") if x in self.table.roles]

        def elements() -> Iterator[tuple[Any, ...]]:
            for rows, inputs, mask in self.batches():
                yield inputs, *(pad(x[rows], mask, 0.0) for x in roles)

        kinds = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype), next(elements())
        )
        return tf.data.Dataset.from_generator(elements, output_signature=kinds)


def _is_sorted(order: np.ndarray) -> bool:
    return bool(np.all(order[1:] > order[:-1]))


def _of_first(table: Table, first: np.ndarray, schema: Schema) -> Table:
    """The rows, with features of the query that are those of the first row of each list."""
    shared = dict[str, Any]()
    for name, of_query in zip(("features", "texts"), schema.of_query, strict=True):
        matrix = getattr(table, name)
        if matrix is not None and of_query.size and len(matrix):
            shared[name] = matrix.copy()
            shared[name][:, of_query] = matrix[np.ix_(first, of_query)]
    return dataclasses.replace(table, **shared) if shared else table


def pad(values: np.ndarray, mask: np.ndarray, fill: Any) -> np.ndarray:
    """Returns values of items as `[batch_size, list_size, ...]`, with `fill` at padding."""
    filled = np.full([*mask.shape, *values.shape[1:]], fill, values.dtype)
    filled[mask] = values
    return filled


def identifiers(query: str, doc_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the identifiers of items; `QUERY:position` if missing."""
    return tuple(x or f"{query}:{i}" for i, x in enumerate(doc_ids, start=1))


def strict(units: Iterable[Lists | Rejected]) -> Iterator[Lists]:
    """Yields only the lists.

    Raises:
        InputError: At the first rejected unit.
    """
    for unit in units:
        if isinstance(unit, Rejected):
            unit.refuse()
        else:
            yield unit


def adjacent(
    chunks: Iterable[Table | Rejected],
    schema: Schema,
    rest: Iterable[Table | Rejected] = (),
    *,
    is_first: bool = True,
) -> Iterator[Lists | Rejected]:
    """Makes lists from rows whose queries are adjacent, with one list in memory, or some rows.

    Args:
        chunks: The rows of a part of a file.
        schema: Types of the features.
        rest: The rows after it, as in `runs`.
        is_first: Whether this is the first part.
    """
    for run in runs(_pieces(chunks), _pieces(rest), is_first=is_first):
        if isinstance(run, Rejected):
            yield run
        else:
            table = concatenate(run[1])
            sizes = np.diff(_starts(table), append=len(table))
            yield from Lists.of_rows(table, sizes, schema).pieces(1)


def _starts(table: Table) -> np.ndarray:
    """The first row of each run of rows of one query."""
    queries = table["query"]
    return np.flatnonzero(np.concatenate([[len(queries) > 0], queries[1:] != queries[:-1]]))


def _pieces(chunks: Iterable[Table | Rejected]) -> Iterator[tuple[Any, Table] | Rejected]:
    """The rows of the first query and of the last one, and whole lists between as one piece."""
    for table in chunks:
        if isinstance(table, Rejected):
            yield table
            continue
        starts = _starts(table)
        for row in starts[:1].tolist():
            end = int(starts[1]) if len(starts) > 1 else len(table)
            yield table["query"][row], table.take(slice(row, end))
        if len(starts) > 2:
            yield object(), table.take(slice(int(starts[1]), int(starts[-1])))
        for row in starts[1:][-1:].tolist():
            yield table["query"][row], table.take(slice(row, None))


def group_rows(chunks: Iterable[Table | Rejected], schema: Schema) -> Iterator[Lists | Rejected]:
    """Makes lists from rows in any order, all in memory, in the order of their first rows."""
    tables = list[Table]()
    for table in chunks:
        if isinstance(table, Rejected):
            yield table
        else:
            tables.append(table)
    if tables:
        yield Lists.group(tables, schema)


def groups(keys: Iterable[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """Groups positions by key, in the order of the first position of each key.

    Args:
        keys: The key of each position.

    Returns:
        The size of each group, and the positions, group by group.

    Example:
        >>> sizes, order = groups(["b", "a", "b"])
        >>> sizes.tolist(), order.tolist()
        ([2, 1], [0, 2, 1])
    """
    seen: dict[Hashable, int] = {}
    codes = np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)
    return np.bincount(codes), np.argsort(codes, kind="stable")


def runs(
    units: Iterable[tuple[Any, Piece] | Rejected],
    rest: Iterable[tuple[Any, Piece] | Rejected] = (),
    *,
    is_first: bool = True,
) -> Iterator[tuple[str, list[Piece]] | Rejected]:
    """Joins adjacent pieces of one query, and assigns each run of pieces to one part of the file.

    A run that contains the first piece of a part belongs to the part before. Thus a part skips its
    first run, and continues to the end of the run that contains the first piece after the part.

    Args:
        units: Queries and pieces of a part, and rejected units.
        rest: Queries and pieces after the part, of which a few are read.
        is_first: Whether this is the first part of the file, which skips nothing.

    Yields:
        A query and its pieces; the rejected units of the part.

    Example:
        >>> items = [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)]
        >>> list(runs(items[:3], items[3:]))
        [('a', [1, 2]), ('b', [3, 4])]
        >>> list(runs(items[3:], is_first=False))
        [('c', [5])]
    """
    query, is_mine = None, is_first
    kept: list[Piece] = []
    for unit in units:
        if isinstance(unit, Rejected):
            yield unit
            continue
        name, piece = unit
        if name != query:
            if kept:
                yield str(query), kept
            is_mine, query, kept = is_first or query is not None, name, []
        if is_mine:
            kept.append(piece)
    if query is None and not is_first:
        return  # the first piece of the rest is also the first of this part
    is_next = True
    for unit in rest:
        if isinstance(unit, Rejected):  # the part that it belongs to yields it
            continue
        name, piece = unit
        if name != query and is_next:
            if kept:
                yield str(query), kept
            is_mine, query, kept = True, name, []
        elif name != query or not is_mine:
            break
        kept.append(piece)
        is_next = False
    if kept:
        yield str(query), kept
