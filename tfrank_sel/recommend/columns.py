"""Columns of items and of users, joined by id, as features of a pair."""

import warnings
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from tfrank_sel.arguments import Natural, Rate
from tfrank_sel.data import Sequences, arrays, arrow_types, formats
from tfrank_sel.data.rejections import rejection
from tfrank_sel.data.sequences import find
from tfrank_sel.recommend.candidates import Source
from tfrank_sel.recommend.scores import (
    Array,
    Lookup,
    Matrix,
    Scores,
    Sums,
    Values,
    at_or_missing,
    join,
    multiply,
    weigh,
)
from tfrank_sel.serialization import register

_NUMBER, _CATEGORY, _COUNTS = (
    "number ",
    "category ",
    "counts ",
)  # begin the names of what is learned


class _Columns(Source):
    """A retriever without candidates, whose scores are columns of a table."""

    @classmethod
    def read(cls, source: Any, role: str, name: str, format: str | None = None) -> Self:
        """Reads the columns of a table that are numbers, truth values or texts.

        Warns of other columns.

        Args:
            source: A table, as in `data.formats.table`.
            role: Whose rows they are, `user` or `item`.
            name: Name of the column of their ids.
            format: As in `data.read`.

        Raises:
            InputError: As `data.formats.table`, or if an id is there twice.
        """
        place = f"`{role}s`"
        table = formats.table(source, {role: name}, others=True, format=format, place=place)
        ids, rows = arrays.encode(table[role], sort=True)
        if len(ids) < len(rows):
            again = ids[np.bincount(rows).argmax()]
            raise rejection(place, f"expected a row for each {role}", f"several of {again!r}")
        columns, left_out = {"ids": ids}, {**table.left_out}
        typed = table.restore_types().drop_columns([name]).take(np.argsort(rows))
        for column in typed.column_names:
            kind = arrow_types.plain_type(typed[column].type)
            if arrow_types.is_number(kind):
                numbers = arrays.doubles(typed[column]).astype(np.float32)
                columns[_NUMBER + column] = np.where(np.isfinite(numbers), numbers, np.nan)
            elif arrow_types.is_text(kind) or arrow_types.arrow().types.is_boolean(kind):
                texts, codes = arrays.encode(arrays.strings(typed[column]))
                columns[_CATEGORY + column] = np.where(texts[codes] == "", -1, codes)
            else:
                left_out[column] = f"{kind} is neither numbers nor texts"
        if left_out:
            reasons = "; ".join(f"{column!r}: {reason}" for column, reason in left_out.items())
            warnings.warn(f"columns of {place} are left out. {reasons}", stacklevel=3)
        return cls().restore(columns)

    def _of_kind(self, kind: str) -> Iterator[tuple[str, Array]]:
        """The names and values of the numbers, or of the categories."""
        for name, values in self.learned.items():
            if name.startswith(kind):
                yield name.removeprefix(kind), values


@register
class ItemColumns(_Columns):
    """The columns of items.

    A number is a feature, and so is its difference from the mean over the history, in which later
    items weigh more. Of a category, features are its share of the history, and the logarithm of how
    often its items were taken.

    Args:
        count: 0, since they choose no candidates.
        decay: Factor of an item's weight for each item after it.
    """

    count: Natural = 0
    decay: Rate = 0.8

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Takes the columns of the items, and counts the interactions with each category."""
        rows = find(taken.item_ids, self.learned["ids"])
        learned = {"ids": taken.item_ids}
        for name, values in self._of_kind(_NUMBER):
            learned[_NUMBER + name] = at_or_missing(rows, values)
        for name, values in self._of_kind(_CATEGORY):
            learned[_CATEGORY + name] = categories = at_or_missing(rows, values)
            counts = np.bincount(
                categories[taken.items - 1] + 1, minlength=values.max(initial=-1) + 2
            )
            learned[_COUNTS + name] = np.log1p(counts[1:])
        return learned

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the columns."""
        recent = weigh(histories, self.decay)
        scores: dict[str, Scores] = {}
        for name, values in self._of_kind(_NUMBER):
            is_there = np.isfinite(values)
            totals = (multiply(recent, x) for x in (np.where(is_there, values, 0.0), is_there))
            with np.errstate(invalid="ignore"):
                means = next(totals) / next(totals)
            scores[f"number: {name}"] = Values(values)
            scores[f"difference: {name}"] = Values(values, -means)
        for name, categories in self._of_kind(_CATEGORY):
            counts = self.learned[_COUNTS + name]
            with np.errstate(divide="ignore"):
                scale = 1.0 / multiply(recent, categories >= 0)
            recent_shares = recent.multiply(scale[:, np.newaxis])
            shares = multiply(recent_shares, _marks(categories, len(counts)))
            scores[f"share: {name}"] = Lookup(shares, items=categories)
            scores[f"count: {name}"] = Values(at_or_missing(categories, counts))
        return scores


@register
class UserColumns(_Columns):
    """The columns of users.

    A number is a feature. Of a category, it is the logarithm of how often its users took the item.

    Args:
        count: 0, since they choose no candidates.
    """

    count: Natural = 0

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Counts the interactions of the users of each category with each item."""
        rows, learned = find(taken.user_ids, self.learned["ids"]), {**self.learned}
        for name, values in self._of_kind(_CATEGORY):
            users = at_or_missing(rows, values)
            counts: Matrix = _marks(users, values.max(initial=-1) + 1).T @ weigh(taken)
            learned[_COUNTS + name] = counts.tocsr().log1p()
        return learned

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the columns."""
        numbers, categories = (dict(self._of_kind(kind)) for kind in (_NUMBER, _CATEGORY))
        joined = join(histories, self.learned["ids"], numbers | categories)
        scores: dict[str, Scores] = {f"number: {x}": Values(users=joined[x]) for x in numbers}
        for name in categories:
            counts = Sums(self.learned[_COUNTS + name])
            scores[f"count: {name}"] = Lookup(counts, users=joined[name])
        return scores


def _marks(categories: Array, count: int) -> Matrix:
    """1 at the category of each row, CSR `[rows, categories]`."""
    rows = np.flatnonzero(categories >= 0)
    pairs = np.ones(len(rows), np.float32), (rows, categories[rows])
    return sp.csr_matrix(pairs, (len(categories), count))
