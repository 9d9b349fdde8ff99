"""Click logs: which item was shown at which position, and how often it was clicked."""

import copy
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.data import InputError, Rejected, formats
from tfrank_sel.data.arrays import encode, exact
from tfrank_sel.data.table import Table, is_id, of_frame, readable
from tfrank_sel.errors import received, refusal
from tfrank_sel.metrics.significance import splitmix64

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_UNITS = 1000
FEW = 20  # queries, of which errors cannot be estimated
_SINGLE = 10  # positions that are never pooled
# Clicks that a pool of positions needs.
_CLICKS = 20
_SPAN = 0.05  # of a pool, relative to its first position


@dataclasses.dataclass(frozen=True, eq=False)
class ItemPositionCounts:
    """Pairs of an item and a pool of positions.

    Args:
        item: Item of each cell, `[cells]`.
        pool: Pool of positions of each cell, `[cells]`.
        of_row: Cell of each row of the log, `[rows]`.
        num_pools: Number of pools.
    """

    item: Integers
    pool: Integers
    of_row: Integers
    num_pools: int

    def sums(self, values: Floats) -> Floats:
        """Sums values of rows, `[rows]`, for each cell."""
        return np.asarray(np.bincount(self.of_row, values, len(self.item)), np.float64)


class Log:
    """A click log, of one row per impression or of counts.

    Args:
        query: Query of each row, `[rows]`, texts or numbers; of several types, all are texts. Pages
            without a query, of browsing, must have a name, too: an empty text is refused.
        item: Item of each row, `[rows]`. The same item under another query is another item.
        position: Position at which the item was shown, `[rows]`, whole numbers from 1.
        click: Whether the item was clicked, `[rows]`, 0 or 1; with `shown`, the number of clicks.
        shown: Number of impressions of each row, `[rows]`; 1 if None.
        session: Session of each row, `[rows]`, which models of sessions and `reordered` need.
        group: Device or page layout of each row, `[rows]`: `estimate` warns if positions have
            other effects in some groups.

    Attributes:
        num_queries, num_items: Number of queries, and of pairs of a query and an item.
        queries, items: Index of the query and of the pair of each row, `[rows]`.
        positions: The positions that occur, increasing, `[positions]`.
        columns: Index in `positions` of each row, `[rows]`.
        group_of_row: Index of the group of each row, `[rows]`.
        clicks, shown: Numbers of clicks and impressions of each row, `[rows]`.

    Raises:
        ImportError: If pyarrow is not installed.
        ValueError: If an argument is missing, has another length, or has a value out of range.

    Example:
        >>> log = Log(query=["q", "q"], item=["a", "b"], position=[1, 2], click=[1, 0])
        >>> log.positions.tolist(), log.num_items
        ([1, 2], 2)
    """

    def __init__(
        self,
        query: ArrayLike,
        item: ArrayLike,
        position: ArrayLike,
        click: ArrayLike,
        *,
        shown: ArrayLike | None = None,
        session: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> None:
        by_role: dict[str, Any] = {"query": query, "item": item, "position": position}
        by_role |= {"click": click, "shown": shown, "session": session, "group": group}
        columns = {name: values for name, values in by_role.items() if values is not None}
        rows = np.shape(query)
        for name, values in columns.items():
            if (shape := np.shape(values)) != rows or len(shape) != 1:
                raise refusal(
                    f"`{name}` must be a vector with a value for each row",
                    f"shape {shape}, where `query` has {rows}",
                )
        self._read(columns, {name: name for name in columns})

    @classmethod
    def of(
        cls,
        table: Any,
        *,
        query: str = "query",
        item: str = "item",
        position: str = "position",
        click: str = "click",
        shown: str | None = "shown",
        session: str | None = None,
        group: str | None = None,
    ) -> "Log":
        """Reads the columns of a table.

        Args:
            table: A frame, an Arrow table, a dict, or paths: see `data.formats.table`. Or a table
                of `read`, whose columns have roles.
            query: Name of the column of the query.
            item: That of the item.
            position: That of the position.
            click: That of the click.
            shown: That of the number of impressions; without a column `shown`, or if None, each row
                is one.
            session: That of the session, if there is one.
            group: That of the group, if there is one.

        Raises:
            ImportError: If pyarrow is not installed.
            ValueError: If a column is missing, and as in `Log`.
        """
        log = cls.__new__(cls)
        if isinstance(table, Table):
            if lacking := {"query", "item", "position", "clicks"} - table.roles.keys():
                expected = "`table` must have the roles query, item, position and clicks"
                raise refusal(expected, f"no {min(lacking)}")
            log._take(table, {})
        else:
            roles = {"query": query, "item": item, "position": position, "click": click}
            more = {"shown": shown, "session": session, "group": group}
            log._read(table, roles | {x: name for x, name in more.items() if name is not None})
        return log

    def _read(self, source: Any, roles: Mapping[str, str]) -> None:
        if formats.paths_of(source) is not None:
            self._take(read(source, roles), {})
            return
        with readable("log"):
            frame = of_frame(source, names={*roles.values()})
        _check(roles)
        names = frame.schema.names
        ids = {x: name for x, name in roles.items() if is_id(x) and names.count(name) == 1}
        each = {role: exact(frame[name]) for role, name in ids.items()}
        numbers = {role: values for role, values in each.items() if values is not None}
        self._take(read(frame, {x: roles[x] for x in roles if x not in numbers}), numbers)

    def _take(self, table: Table, of_numbers: Mapping[str, NDArray[Any]]) -> None:
        """Takes the rows of a table, and identifiers that stay numbers, as in memory."""

        def ids(role: str) -> tuple[NDArray[Any], Integers]:
            return encode(of_numbers[role] if role in of_numbers else table[role], sort=True)

        self.clicks = table["clicks"]
        shown = table.roles.get("shown", 1.0)
        places, self.columns = encode(table["position"], sort=True)
        self.positions: Integers = places.astype(np.int64)
        if len(self.positions) == 1:
            raise refusal(
                "`position` must have at least two different values",
                f"{self.positions[0]} in each row",
            )
        self.query_ids, self.queries = ids("query")
        self._sessions: Integers | None = None
        if "session" in {*table.roles, *of_numbers}:
            self.session_ids, self._sessions = ids("session")
        has_groups = "group" in {*table.roles, *of_numbers}
        self.group_of_row = ids("group")[1] if has_groups else np.zeros(len(table), np.int64)
        item_ids, pairs = ids("item")
        pairs += self.queries * len(item_ids)
        pairs, self.items = _distinct(pairs)
        self.item_ids = item_ids[pairs % len(item_ids)]
        self.query_of_item: Integers = pairs // len(item_ids)
        self.shown = np.full(len(table), shown)

    def part(self, rows: Integers) -> "Log":
        """Returns the log of some of the rows, with the items and positions of this one."""
        log = copy.copy(self)
        log.pools = self.pools
        for name in ("cells", "units", "session_of_row", "sessions"):
            log.__dict__.pop(name, None)
        for name in ("queries", "items", "columns", "shown", "clicks", "group_of_row"):
            setattr(log, name, getattr(self, name)[rows])
        if self._sessions is not None:
            sessions = self._sessions[rows]
            is_there = np.bincount(sessions, minlength=len(self.session_ids)) > 0
            log._sessions = (np.cumsum(is_there) - 1)[sessions]
            log.session_ids = self.session_ids[is_there]
        return log

    def select(self, rows: Integers) -> "Log":
        """Returns the log of some of the rows, as if no other row had been read."""
        log = self.part(rows)
        del log.pools
        places, log.columns = _distinct(log.columns)
        queries, log.queries = _distinct(log.queries)
        items, log.items = _distinct(log.items)
        log.positions, log.query_ids = self.positions[places], self.query_ids[queries]
        log.item_ids = self.item_ids[items]
        log.query_of_item = np.searchsorted(queries, self.query_of_item[items])
        return log

    def at_positions(self, columns: Integers) -> "Log":
        """Returns the log with rows at other places of `positions`, `[rows]`."""
        log = self.part(np.arange(len(columns)))
        log.columns = columns
        return log

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    @property
    def num_items(self) -> int:
        """Number of pairs of a query and an item."""
        return len(self.item_ids)

    @functools.cached_property
    def pools(self) -> Integers:
        """Index of the pool of each position, `[positions]`: of positions with equal propensity.

        The first ten positions are pools of their own. A pool of later ones has at least 20 clicks,
        if there are as many, and spans at least a twentieth of its first position.
        """
        clicks = np.bincount(self.columns, self.clicks, len(self.positions)).tolist()
        pools, first, amount = [0], int(self.positions[0]), clicks[0]
        for position, more in zip(self.positions[1:].tolist(), clicks[1:], strict=True):
            is_full = amount >= _CLICKS and position >= first * (1.0 + _SPAN)
            if is_full or position <= _SINGLE:
                pools.append(pools[-1] + 1)
                first, amount = position, 0.0
            else:
                pools.append(pools[-1])
            amount += more
        is_last = np.array(pools) == pools[-1]
        if amount < _CLICKS and first > _SINGLE and pools[-1]:  # the rest is no pool of its own
            return np.where(is_last, pools[-1] - 1, pools)
        return np.array(pools)

    @functools.cached_property
    def cells(self) -> "ItemPositionCounts":
        """The pairs of an item and a pool of positions at which it was shown."""
        size = int(self.pools[-1]) + 1
        keys, of_row = _distinct(self.items * size + self.pools[self.columns])
        return ItemPositionCounts(keys // size, keys % size, of_row, size)

    @property
    def has_sessions(self) -> bool:
        """Whether the session of each row is known."""
        return self._sessions is not None

    @functools.cached_property
    def session_of_row(self) -> Integers:
        """Index of the session of each row, `[rows]`; without sessions, each row is its own.

        Their order follows from their rows: neither their names nor their places are a seed.
        """
        keys = splitmix64((self.items * len(self.positions) + self.columns).astype(np.uint64))
        for counts in (self.clicks, self.shown):
            keys = splitmix64(keys + np.asarray(counts, np.float64).view(np.uint64))
        if self._sessions is None:
            return _ranks(keys)
        sums = np.zeros(len(self.session_ids), np.uint64)
        np.add.at(sums, self._sessions, keys)
        return _ranks(sums)[self._sessions]

    @functools.cached_property
    def sessions(self) -> "Sessions":
        """The places of the sessions; errors as in `Sessions`."""
        return Sessions(self)

    @functools.cached_property
    def units(self) -> Integers:
        """What is resampled for intervals: the group of each row, `[rows]`.

        Groups are sessions or, if the log has none, queries; of more than 1,000, several make one.
        """
        is_single = self._sessions is None
        units = _distinct(self.queries)[1] if is_single else self.session_of_row
        return units % _UNITS

    @property
    def num_units(self) -> int:
        """Number of groups of `units`."""
        return int(self.units.max()) + 1

    def independent_units(self) -> Integers:
        """The query of each row, `[rows]`, or its session if there are fewer queries than `FEW`."""
        queries, units = _distinct(self.queries)
        return units if len(queries) >= FEW else _distinct(self.session_of_row)[1]

    def check_sessions(self) -> None:
        """Raises a ValueError without sessions, with counts, or with two items at one position."""
        if self._sessions is None:
            raise ValueError("`session` is required for models of sessions: ubm, cascade, dcm, dbn")
        _refuse("shown", self.shown, self.shown != 1.0, "1 in a log with sessions")
        places = self.session_of_row * len(self.positions) + self.columns
        if len(np.unique(places)) < len(places):
            _, first = np.unique(places, return_index=True)
            row = np.setdiff1d(np.arange(len(places)), first)[0]
            raise refusal(
                "`position` must be unique within each `session`",
                session=self.session_ids[self._sessions[row]],
                position=self.positions[self.columns[row]],
            )


class Sessions:
    """The places of all sessions, of which the first is in front, those of all second places next.

    Sessions are sorted by length, the longest first, so that a session has the same index at each
    of its places. Places between its first and its last at which nothing was shown have no row.

    Args:
        log: A log with sessions.

    Attributes:
        rows: Row of the log at each place, `[places]`; -1 where nothing was shown.
        present: Whether there is one, `[places]`.
        items: Item at each place, `[places]`; 0 where nothing was shown.
        clicked: Whether it was clicked, `[places]`.
        column: Index in `log.positions` of each place, `[places]`.
        session: Index of the session of each place, `[places]`.
        of_row: Place of each row of the log, `[rows]`.
        counts: Number of sessions with a place in each column, `[positions]`.

    Raises:
        ValueError: If the log has no sessions or has counts, or a session has two items at one
            position.
    """

    def __init__(self, log: Log) -> None:
        log.check_sessions()
        size, session = len(log.positions), log.session_of_row
        lengths = np.zeros(int(session.max()) + 1, np.int64)
        np.maximum.at(lengths, session, log.columns + 1)
        order = np.argsort(-lengths, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self.counts: Integers = np.cumsum(np.bincount(lengths, minlength=size + 1)[::-1])[-2::-1]
        self.starts: Integers = np.concatenate([[0], np.cumsum(self.counts)])
        self.of_row: Integers = self.starts[log.columns] + rank[session]
        self.rows: Integers = np.full(self.starts[-1], -1)
        self.rows[self.of_row] = np.arange(len(session))
        self.present: NDArray[np.bool_] = self.rows >= 0
        self.items: Integers = np.where(self.present, log.items[self.rows], 0)
        self.clicked: NDArray[np.bool_] = self.present & (log.clicks[self.rows] > 0.0)
        self.column: Integers = np.repeat(np.arange(size), self.counts)
        self.session: Integers = np.arange(len(self.rows)) - self.starts[self.column]

    def __len__(self) -> int:
        return int(self.counts[0])

    def steps(self) -> Iterator[tuple[slice, slice]]:
        """The places of sessions that go on, and the next place of each, from the first place."""
        for start, following, count in zip(
            self.starts, self.starts[1:], self.counts[1:].tolist(), strict=False
        ):
            yield slice(start, start + count), slice(following, following + count)

    def last_click(self) -> Integers:
        """Column of the last click of each session, `[sessions]`; -1 without a click."""
        last = np.full(len(self), -1)
        np.maximum.at(last, self.session[self.clicked], self.column[self.clicked])
        return last

    def clicks_above(self) -> Integers:
        """Column of the last click above each place, from 1, `[places]`; 0 without one."""
        above = np.zeros(len(self.rows), np.int64)
        for here, below in self.steps():
            above[below] = np.where(self.clicked[here], self.column[here] + 1, above[here])
        return above

    def means(self, values: Floats, weights: Floats) -> Floats:
        """Mean of the values of the places at each position that have a row, `[positions]`."""
        shown = self.present * weights
        size = len(self.counts)
        sums = np.bincount(self.column, values * shown, size)
        return np.asarray(sums / np.maximum(np.bincount(self.column, shown, size), 1e-9))


def read(
    source: Any,
    roles: Mapping[str, str],
    *,
    optional: Collection[str] = ("shown",),
    others: bool = False,
    format: str | None = None,
    rejected: list[Rejected] | None = None,
) -> Table:
    """Reads the rows of a click log; arguments and errors are otherwise those of `formats.table`.

    Args:
        source: The table.
        roles: Name of the column of each role. A click may be the text true or false.
        optional: Roles whose columns may be absent if they have the names of the roles.
        others: As in `formats.table`.
        format: As in `formats.table`.
        rejected: As in `formats.table`.

    Returns:
        The table, whose role `click` is `clicks`: at most one a row in a log of positions without
        `shown`, which may be optional.

    Raises:
        InputError: If there is no row or, in a log of positions, a row has more clicks than
            impressions; and as `formats.table`.
        ValueError: If two roles other than the query and the session have one column.
    """
    _check(roles)
    are_counts = "shown" in roles or "position" not in roles
    asked = {"clicks" if are_counts and x == "click" else x: name for x, name in roles.items()}
    unnamed = {role for role, name in roles.items() if role == name}
    table = formats.table(
        source,
        asked,
        optional=[x for x, name in asked.items() if name in unnamed.intersection(optional)],
        others=others,
        format=format,
        rejected=rejected,
        place="log",
    )
    if "clicks" in table.roles and "position" in roles:
        beyond = table["clicks"] > table.roles.get("shown", 1.0)
        most = "`shown`" if "shown" in table.roles else "1"
        for row in np.flatnonzero(beyond).tolist():
            reason = received(f"`click` must be from 0 to {most}", table["clicks"][row])
            fault = table.reject(row, reason)
            if rejected is None:
                raise fault.error()
            rejected.append(fault)
        table = table.take(~beyond) if beyond.any() else table
    if not len(table):
        path = (formats.paths_of(source) or ["log"])[0]
        raise InputError(path, received("expected at least one row", "none"))
    named = {"clicks" if role == "click" else role: x for role, x in table.roles.items()}
    return dataclasses.replace(table, roles=named)


def _check(roles: Mapping[str, str]) -> None:
    taken = dict[str, str]()
    for role, name in roles.items():
        other = taken.setdefault(name, role)
        if other != role and {other, role} != {"query", "session"}:
            raise refusal(f"{other} and {role} must be different columns", repr(name))


def codes_of(queries: ArrayLike) -> Integers:
    """Returns a number for each query, from 0 in ascending order of the queries, `[rows]`.

    Raises:
        ValueError: If a query is missing or no text.
    """
    with readable("`query`"):
        frame = of_frame({"query": queries})
    numbers = exact(frame["query"])
    if numbers is not None:
        return encode(numbers, sort=True)[1]
    texts = formats.table(frame, {"query": "query"}, place="`query`")["query"]
    return encode(texts, sort=True)[1]


def _distinct(keys: Integers) -> tuple[Integers, Integers]:
    """Distinct numbers, and the index of each row; Arrow's hashes of as many take more memory."""
    distinct, codes = np.unique(keys, return_inverse=True)
    return distinct, codes.ravel()


def _ranks(keys: NDArray[np.uint64]) -> Integers:
    """The place of each key in ascending order."""
    ranks = np.empty(len(keys), np.int64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys))
    return ranks


def numbers(name: str, values: ArrayLike) -> Floats:
    """Returns finite numbers, or raises a ValueError that names the argument."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise refusal(f"`{name}` must be numbers", repr(np.asarray(values)[0])) from None
    _refuse(name, array, ~np.isfinite(array), "finite")
    return array


def check_choice(name: str, value: str, names: Collection[str]) -> None:
    """Raises a ValueError that names the argument, unless the value is one of some names."""
    if value not in names:
        raise refusal(f"`{name}` must be one of {', '.join(names)}", repr(value))


def check_least(least: float) -> None:
    """Raises a ValueError unless the least propensity that divides clicks is from 0 to 1."""
    if not 0.0 <= least <= 1.0:
        raise refusal("`least` must be from 0 to 1", least)


def probabilities(name: str, values: ArrayLike) -> Floats:
    """Returns numbers above 0 and at most 1, or raises a ValueError that names the argument."""
    array = numbers(name, values)
    _refuse(name, array, (array <= 0.0) | (array > 1.0), "above 0 and at most 1")
    return array


def _refuse(name: str, values: Floats, wrong: NDArray[np.bool_], rule: str) -> None:
    if wrong.any():
        raise refusal(f"`{name}` must be {rule}", values[wrong].ravel()[0])
