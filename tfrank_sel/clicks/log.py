"""Click logs: which item was shown at which position, and how often it was clicked."""

import copy
import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.refusals import refusal

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_UNITS = 1000
_SINGLE = 10  # positions that are never pooled
_CLICKS = 20  # of a pool
_SPAN = 0.05  # of a pool, relative to its first position


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
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
        query: Query of each row, `[rows]`, numbers or texts.
        item: Item of each row, `[rows]`. The same item under another query is another item.
        position: Position at which the item was shown, `[rows]`, whole numbers from 1.
        click: Whether the item was clicked, `[rows]`, 0 or 1; with `shown`, the number of clicks.
        shown: Number of impressions of each row, `[rows]`; 1 if None.
        session: Session of each row, `[rows]`, which models of sessions and `reordered` need.

    Attributes:
        num_queries, num_items: Number of queries, and of pairs of a query and an item.
        queries, items: Index of the query and of the pair of each row, `[rows]`.
        positions: The positions that occur, increasing, `[positions]`.
        columns: Index in `positions` of each row, `[rows]`.
        clicks, shown: Numbers of clicks and impressions of each row, `[rows]`.

    Raises:
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
    ) -> None:
        given = {"query": query, "item": item, "position": position, "click": click}
        arrays = {name: np.asarray(value) for name, value in given.items()}
        rows = arrays["query"].shape
        arrays["shown"] = np.ones(rows) if shown is None else np.asarray(shown)
        if session is not None:
            arrays["session"] = np.asarray(session)
        for name, array in arrays.items():
            if array.ndim != 1 or array.shape != rows or not len(array):
                raise refusal(
                    f"`{name}` must be a vector with a value for each row",
                    f"shape {array.shape}, where `query` has {rows}",
                )
        places = numbers("position", arrays["position"])
        wrong = (places < 1.0) | (places % 1.0 != 0.0) | (places >= 2.0**53)
        _refuse("position", places, wrong, "whole numbers from 1")
        self.shown = numbers("shown", arrays["shown"])
        _refuse("shown", self.shown, self.shown <= 0.0, "above 0")
        self.clicks = numbers("click", arrays["click"])
        beyond = (self.clicks < 0.0) | (self.clicks > self.shown)
        most = "1" if shown is None else "`shown`"
        _refuse("click", self.clicks, beyond, f"from 0 to {most}")
        self.query_ids, queries = np.unique(arrays["query"], return_inverse=True)
        item_ids, codes = np.unique(arrays["item"], return_inverse=True)
        pairs, items = np.unique(queries * len(item_ids) + codes, return_inverse=True)
        self.queries, self.items = queries.ravel(), items.ravel()
        self.item_ids = item_ids[pairs % len(item_ids)]  # of each pair
        self.query_of_item: Integers = pairs // len(item_ids)
        self.positions, columns = np.unique(places.astype(np.int64), return_inverse=True)
        self.columns: Integers = columns.ravel()
        if len(self.positions) == 1:
            raise refusal(
                "`position` must have at least two different values",
                f"{self.positions[0]} in each row",
            )
        self._sessions = arrays.get("session")

    @classmethod
    def of(cls, table: Any, **columns: str) -> "Log":
        """Reads the columns of a table: a pandas or polars frame, an Arrow table or a dict.

        Args:
            table: The table.
            **columns: Name of the column of each argument of `Log`. Query, item, position and click
                are the columns of these names by default.

        Raises:
            ValueError: If a column is missing, and as in `Log`.
        """
        names = {name: name for name in ("query", "item", "position", "click")} | columns
        try:
            return cls(**{name: np.asarray(table[column]) for name, column in names.items()})
        except KeyError as error:
            raise ValueError(f"the log has no column {error}. Expected: {names}") from None

    def part(self, rows: Integers) -> "Log":
        """Returns the log of some of the rows, with the items and positions of this one."""
        log = copy.copy(self)
        log.pools = self.pools
        for name in ("cells", "session_of_row", "units"):
            log.__dict__.pop(name, None)
        for name in ("queries", "items", "columns", "shown", "clicks", "_sessions"):
            if (values := getattr(self, name)) is not None:
                setattr(log, name, values[rows])
        return log

    def moved(self, columns: Integers) -> "Log":
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
        for place, more in zip(self.positions[1:].tolist(), clicks[1:], strict=True):
            is_full = amount >= _CLICKS and place >= first * (1.0 + _SPAN)
            if is_full or place <= _SINGLE:
                pools.append(pools[-1] + 1)
                first, amount = place, 0.0
            else:
                pools.append(pools[-1])
            amount += more
        is_last = np.array(pools) == pools[-1]
        if amount < _CLICKS and first > _SINGLE and pools[-1]:  # the rest is no pool of its own
            return np.where(is_last, pools[-1] - 1, pools)
        return np.array(pools)

    @functools.cached_property
    def cells(self) -> "Cells":
        """The pairs of an item and a pool of positions at which it was shown."""
        size = int(self.pools[-1]) + 1
        keys, of_row = np.unique(self.items * size + self.pools[self.columns], return_inverse=True)
        return Cells(keys // size, keys % size, of_row.ravel(), size)

    @property
    def has_sessions(self) -> bool:
        """Whether the session of each row is known."""
        return self._sessions is not None

    @functools.cached_property
    def session_of_row(self) -> Integers:
        """Index of the session of each row, `[rows]`; without sessions, each row is its own."""
        if self._sessions is None:
            return np.arange(len(self.items))
        return np.asarray(np.unique(self._sessions, return_inverse=True)[1], np.int64).ravel()

    @functools.cached_property
    def units(self) -> Integers:
        """What is resampled for intervals: the group of each row, `[rows]`.

        Groups are sessions or, if the log has none, queries; of more than 1,000, several make one.
        """
        values = self.queries if self._sessions is None else self._sessions
        _, units = np.unique(values, return_inverse=True)
        return np.asarray(units.ravel() % _UNITS, np.int64)

    @property
    def num_units(self) -> int:
        """Number of groups of `units`."""
        return int(self.units.max()) + 1

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
                session=str(self._sessions[row]),
                position=self.positions[self.columns[row]],
            )


def numbers(name: str, values: ArrayLike) -> Floats:
    """Returns finite numbers, or raises a ValueError that names the argument."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise refusal(f"`{name}` must be numbers", repr(np.asarray(values)[0])) from None
    _refuse(name, array, ~np.isfinite(array), "finite")
    return array


def probabilities(name: str, values: ArrayLike) -> Floats:
    """Returns numbers above 0 and at most 1, or raises a ValueError that names the argument."""
    array = numbers(name, values)
    _refuse(name, array, (array <= 0.0) | (array > 1.0), "above 0 and at most 1")
    return array


def _refuse(name: str, values: Floats, wrong: NDArray[np.bool_], rule: str) -> None:
    if wrong.any():
        raise refusal(f"`{name}` must be {rule}", values[wrong].ravel()[0])
