"""Click logs: which item was shown at which position, and how often it was clicked."""

import copy
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_UNITS = 1000


class Log:
    """A click log, of one row per impression or of counts.

    Args:
        query: Query of each row, `[rows]`, numbers or texts.
        item: Item of each row, `[rows]`. The same item under another query is another item.
        position: Position at which the item was shown, `[rows]`, whole numbers from 1.
        click: Whether the item was clicked, `[rows]`, 0 or 1; with `shown`, the number of clicks.
        shown: Number of impressions of each row, `[rows]`; 1 if None.
        session: Session of each row, `[rows]`, which click models other than PBM need.

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
                raise ValueError(
                    f"`{name}` must be a vector with a value for each row. "
                    f"Received: shape {array.shape}, where `query` has {rows}"
                )
        places = numbers("position", arrays["position"])
        _refuse("position", places, (places < 1.0) | (places % 1.0 != 0.0), "whole numbers from 1")
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
            raise ValueError(
                "`position` must have at least two different values. "
                f"Received: {self.positions[0]} in each row"
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
        found = copy.copy(self)
        for name in ("counts", "sessions", "units"):
            found.__dict__.pop(name, None)
        for name in ("queries", "items", "columns", "shown", "clicks", "_sessions"):
            if (values := getattr(self, name)) is not None:
                setattr(found, name, values[rows])
        return found

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.query_ids)

    @property
    def num_items(self) -> int:
        """Number of pairs of a query and an item."""
        return len(self.item_ids)

    @functools.cached_property
    def counts(self) -> tuple[Floats, Floats]:
        """Clicks and impressions of each item at each position, `[items, positions]` each."""
        shape = self.num_items, len(self.positions)
        cells = self.items * shape[1] + self.columns

        def summed(values: Floats) -> Floats:
            sums = np.bincount(cells, values, shape[0] * shape[1])
            return np.asarray(sums, np.float64).reshape(shape)

        return summed(self.clicks), summed(self.shown)

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

    @functools.cached_property
    def sessions(self) -> Integers:
        """Rows of each session by position, `[sessions, positions]`; -1 where no item was shown.

        Raises:
            ValueError: If the log has no sessions or has counts, or a session has two items at one
                position.
        """
        if self._sessions is None:
            raise ValueError("`session` is required for click models other than pbm")
        _refuse("shown", self.shown, self.shown != 1.0, "1 in a log with sessions")
        _, session = np.unique(self._sessions, return_inverse=True)
        rows = np.full((session.max() + 1, len(self.positions)), -1)
        rows[session, self.columns] = np.arange(len(session))
        if np.count_nonzero(rows >= 0) < len(session):
            raise ValueError("`position` must be unique within each `session`")
        return rows


def numbers(name: str, values: ArrayLike) -> Floats:
    """Returns finite numbers, or raises a ValueError that names the argument."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must be numbers. Received: {np.asarray(values)[0]!r}") from None
    _refuse(name, array, ~np.isfinite(array), "finite")
    return array


def probabilities(name: str, values: ArrayLike) -> Floats:
    """Returns numbers above 0 and at most 1, or raises a ValueError that names the argument."""
    array = numbers(name, values)
    _refuse(name, array, (array <= 0.0) | (array > 1.0), "above 0 and at most 1")
    return array


def _refuse(name: str, values: Floats, wrong: NDArray[np.bool_], rule: str) -> None:
    if wrong.any():
        raise ValueError(f"`{name}` must be {rule}. Received: {values[wrong].ravel()[0]}")
