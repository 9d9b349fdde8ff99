"""Items of users in order of time, from tables; their splits, and windows for training."""

import dataclasses
import functools
import os
from typing import Any, Self

import numpy as np

from tfrank_sel.data import arrays, formats
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.rejections import rejection
from tfrank_sel.errors import refusal

Pair = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Sequences:
    """The items that each user took, in order of time.

    Items are numbered from 1, because 0 is padding; `item_ids[n - 1]` is the id of item `n`. The
    parts of a split have all users and items of the whole, so that row `u` is the same user in all
    of them, and a number the same item.

    Args:
        user_ids: Ids of the users, texts, `[num_users]`.
        item_ids: Ids of the items, texts, `[num_items]`.
        users: Index of the user of each interaction, in ascending order, `[interactions]`.
        items: Number of the item of each interaction, in order of time within a user.
        times: Time of each interaction.

    Example:
        >>> import pathlib, tempfile
        >>> rows = "user,item,time\\na,x,3\\na,y,1\\nb,x,1\\na,007,2\\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "log.csv")
        ...     _ = path.write_text(rows)
        ...     sequences = Sequences.read(path)
        >>> sequences.item_ids.tolist()
        ['x', 'y', '007']
        >>> sequences.histories(3).tolist()
        [[2, 3, 1], [0, 0, 1]]
    """

    user_ids: np.ndarray
    item_ids: np.ndarray
    users: np.ndarray
    items: np.ndarray
    times: np.ndarray

    @classmethod
    def read(
        cls,
        paths: Any,
        *,
        user: str = "user",
        item: str = "item",
        time: str = "time",
        format: str | None = None,
    ) -> Self:
        """Reads a table with a row for each interaction.

        Args:
            paths: One or more files, such as CSV or Parquet, all of one format; or a table in
                memory: a pandas or polars frame, an Arrow table, a mapping of names to columns, or
                a list of dicts.
            user: Column of the users' ids. All ids are exact texts: `007` is not `7`.
            item: Column of the items' ids.
            time: Column of the times: numbers, or dates and times, also as texts in ISO 8601, which
                become seconds since 1970-01-01 UTC, float64; numbers stay as they are. Rows are
                sorted by the times before that; equal ones of a user keep the order of the table.
            format: As in `data.read`.

        Raises:
            ImportError: If pyarrow is not installed.
            InputError: If a file is no table, cannot be read, lacks a column or has no rows; or at
                a row without an id or time. The message names file, row, column and value.
            TypeError: If the source is no table.
        """
        table = formats.table(paths, {"user": user, "item": item, "time": time}, format=format)
        if not len(table):
            source = os.fspath(paths) if isinstance(paths, str | os.PathLike) else "table"
            raise rejection(source, "expected interactions", "no rows")
        user_ids, users = arrays.encode(table["user"])
        item_ids, items = arrays.encode(table["item"])
        # The sort is stable: equal times keep the order of the table.
        order = np.lexsort((table["time"], users))
        items = (items[order] + 1).astype(np.int32)
        return cls(user_ids, item_ids, users[order], items, _seconds(table["time"][order]))

    def leave_one_out(self) -> tuple[Self, Self]:
        """Splits off the last item of each user who has several.

        The split of the first part holds out the items before, for validation. The last items of
        some users are earlier than training items of others: prefer `split`, which does not leak
        the future.

        Returns:
            All items but those held out, and these.
        """
        ends = self.offsets[self.users + 1]
        is_last = np.arange(len(self.users)) == ends - 1
        is_last &= ends - self.offsets[self.users] > 1
        return self._of(~is_last), self._of(is_last)

    def split(self, time: Any) -> tuple[Self, Self]:
        """Splits at a time.

        Args:
            time: The first time of the second part: a number, such as
                `np.quantile(sequences.times, 0.9)`, or a date or time, also as a text in ISO 8601
                or of eight digits, such as `20240229`.

        Returns:
            The interactions before it, and the others.

        Raises:
            InputError: If it is no time.
        """
        first = _seconds(formats.table({"time": [time]}, {"time": "time"}, place="split")["time"])
        times = self.times.astype(np.float64)
        if isinstance(time, str) and np.array_equal(arrays.written_days(times), times):
            first = arrays.written_days(first.astype(np.float64))  # unless times are such days, too
            if np.isinf(first).any():
                raise rejection("split", "expected a day of the calendar", repr(time))
        is_later = self.times >= first
        return self._of(~is_later), self._of(is_later)

    def windows(self, max_length: int) -> Pair:
        """Returns inputs and targets to train a model of the next item.

        Each item but a user's first is the target of one position, whose input is the item before.
        A longer sequence is cut into several windows, from its end.

        Args:
            max_length: Number of positions; positive.

        Returns:
            Numbers of items, int32 `[windows, max_length]`, padded at the front: inputs with 0, and
            targets with -1, which losses and metrics leave out.
        """
        _check(max_length)
        targets = np.flatnonzero(np.arange(len(self.users)) > self.offsets[self.users])
        users = self.users[targets]
        window, column = np.divmod(self.offsets[users + 1] - 1 - targets, max_length)
        is_first = (np.diff(users, prepend=-1) != 0) | (np.diff(window, prepend=-1) != 0)
        places = np.cumsum(is_first) - 1, max_length - 1 - column
        shape = (int(is_first.sum()), max_length)
        found = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        for array, rows in zip(found, (targets - 1, targets), strict=True):
            array[places] = self.items[rows]
        return found

    def histories(self, max_length: int | None = None) -> np.ndarray:
        """Returns the last items of each user, int32 `[num_users, max_length]`.

        Args:
            max_length: Maximum number of items, positive; that of the longest sequence if `None`.

        Returns:
            Numbers of items, padded with 0 at the front.
        """
        if max_length is None:
            max_length = max(1, int(np.diff(self.offsets).max()))
        _check(max_length)
        from_end = self.offsets[self.users + 1] - np.arange(len(self.users))
        kept = from_end <= max_length
        histories = np.zeros((len(self.user_ids), max_length), np.int32)
        histories[self.users[kept], max_length - from_end[kept]] = self.items[kept]
        return histories

    def take(self, users: np.ndarray) -> Self:
        """Returns the sequences of some users, by index, in this order; that of -1 is empty."""
        starts, ends = self.offsets[users], self.offsets[users + 1]
        sizes = np.where(users < 0, 0, ends - starts)
        rows = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        taken = dataclasses.replace(self, user_ids=self.user_ids[users])._of(rows)
        return dataclasses.replace(taken, users=np.repeat(np.arange(len(users)), sizes))

    def of_users(self, user_ids: np.ndarray) -> Self:
        """Returns the sequences of some users, by id, in this order; that of others is empty."""
        return dataclasses.replace(self.take(find(user_ids, self.user_ids)), user_ids=user_ids)

    def of_items(self, item_ids: np.ndarray) -> Self:
        """Returns the interactions with some items, which are numbered in this order."""
        numbers = find(self.item_ids, item_ids)[self.items - 1] + 1
        renumbered = dataclasses.replace(self, item_ids=item_ids, items=numbers.astype(np.int32))
        return renumbered._of(numbers > 0)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """The first interaction of each user, and the number of all, `[num_users + 1]`."""
        return np.searchsorted(self.users, np.arange(len(self.user_ids) + 1))

    def _of(self, kept: np.ndarray) -> Self:
        rows = {x: getattr(self, x)[kept] for x in ("users", "items", "times")}
        return dataclasses.replace(self, **rows)


def find(ids: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Returns the index of each id among different others, -1 if it is not there."""
    if ids is among:
        return np.arange(len(ids))
    values, others = (
        arrow().array(x, arrow().string() if x.dtype == object else None) for x in (ids, among)
    )
    return np.asarray(arrow().compute.index_in(values, value_set=others).fill_null(-1), np.int64)


def _seconds(times: np.ndarray) -> np.ndarray:
    """Times as seconds since 1970, float64; numbers as they are."""
    if times.dtype.kind != "M":
        return times
    whole = times.astype("M8[s]")
    return whole.astype(np.int64) + (times - whole) / np.timedelta64(1, "s")


def _check(max_length: int) -> None:
    if max_length < 1:
        raise refusal("`max_length` must be positive", max_length=max_length)
