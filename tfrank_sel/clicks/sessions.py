"""Sessions of a click log, packed by place: what models of users who read from the top need."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.clicks.log import Floats, Integers, Log


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
