"""Ids of users and items, texts or integers, in place of indices."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.models.als import retrieval
from tfrank_sel.models.als.interactions import names_of, split_columns
from tfrank_sel.refusals import refusal

Ids = NDArray[Any]

_LARGEST = np.iinfo(np.int64).max


class Numbering:
    """Ids by number, sorted once for all look-ups.

    Args:
        ids: The ids, each once.
    """

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._order = np.argsort(ids, kind="stable")

    def rows(self, name: str, given: ArrayLike) -> NDArray[np.int64]:
        """Returns the numbers of ids, of any shape.

        Raises:
            ValueError: If an id is of another type, or unknown.
        """
        column = _alike(name, np.asarray(given), self.ids)
        sought = column.astype(self.ids.dtype)  # texts are cut, and then differ
        places = np.searchsorted(self.ids, sought, sorter=self._order)
        rows = self._order[np.minimum(places, len(self.ids) - 1)]
        if unknown := np.unique(column[self.ids[rows] != column]).tolist():
            raise refusal(f"`{name}` must be ids of the fit", unknown[:5])
        return rows

    def with_new(self, name: str, column: Ids) -> "Numbering":
        """Returns a numbering that goes on with the ids that are new, sorted."""
        new = np.setdiff1d(_alike(name, column, self.ids), self.ids)
        return Numbering(np.concatenate([self.ids, new])) if new.size else self


Pair = tuple[Numbering | None, Numbering | None]  # of users and of items; None if they are indices


def numbered(interactions: Any, fitted: Pair | None = None) -> tuple[Any, Pair]:
    """Numbers the users and the items of a frame.

    Args:
        interactions: As in `as_matrix`; those without names of columns are returned unchanged.
        fitted: The numberings of the fit, which new ids follow; None before it.

    Returns:
        The interactions, and the numberings; None without names of columns.

    Raises:
        ValueError: If ids are not all texts or all integers, or not as those of the fit.
    """
    if not _is_frame(interactions, fitted):
        return interactions, (None, None)
    *pairs, gains = split_columns(interactions)
    numberings, indices = [], []
    for name, column, old in zip(("user", "item"), pairs, fitted or (None, None), strict=True):
        if old is None:
            own, places = np.unique(_checked(name, column), return_inverse=True)
            numberings.append(Numbering(own))
        else:
            numberings.append(old.with_new(name, column))
            places = numberings[-1].rows(name, column)
        indices.append(places)
    return (*indices, gains), (numberings[0], numberings[1])


def renumbered(interactions: Any, fitted: Pair) -> Any:
    """Returns interactions of users and items of the fit, with indices in place of ids."""
    if not _is_frame(interactions, fitted):
        return interactions
    users, items, gains = split_columns(interactions)
    return rows("user", users, 0, fitted[0]), rows("item", items, 0, fitted[1]), gains


def rows(name: str, given: ArrayLike, count: int, numbering: Numbering | None) -> NDArray[np.int64]:
    """Returns the indices of users or items, of any shape, given by their ids if they have some.

    Raises:
        ValueError: If an index is out of range, or an id unknown.
    """
    if numbering is None:
        return retrieval.indices(name, given, count)
    return numbering.rows(name, given)


def named(indices: NDArray[Any], numbering: Numbering | None) -> NDArray[Any]:
    """Returns the ids of indices, if there are ids; for -1, the number -1 or the empty text.

    In uint64, -1 is the largest number.
    """
    if numbering is None:
        return indices
    ids = numbering.ids
    none = np.array(-1 if ids.dtype.kind in "iu" else "").astype(ids.dtype)
    return np.where(indices < 0, none, ids[indices])


def _is_frame(interactions: Any, fitted: Pair | None) -> bool:
    is_frame = names_of(interactions) is not None
    if fitted is not None and is_frame != (fitted[0] is not None):
        raise refusal(
            "Interactions must be a frame of ids if, and only if, those of the fit were one",
            type(interactions).__name__,
        )
    return is_frame


def _checked(name: str, column: Ids) -> Ids:
    if column.dtype.kind == "O" and len(kinds := {*map(type, column.flat)}) == 1:
        column = column.astype(kinds.pop())  # of one type, so that no value is changed
    if column.dtype.kind not in "iuU":
        raise refusal(
            f"The ids of `{name}` must be all texts or all integers",
            f"dtype={column.dtype}, such as {column[:1].tolist()}",
        )
    if column.dtype.kind == "U" or (column.dtype == np.uint64 and np.any(column > _LARGEST)):
        return column
    return column.astype(np.int64)


def _alike(name: str, column: Ids, ids: Ids) -> Ids:
    column = _checked(name, column) if column.size else column.astype(ids.dtype)
    if (column.dtype.kind == "U") != (ids.dtype.kind == "U"):
        raise refusal(
            f"The ids of `{name}` must be of the type of the fit, {ids.dtype}", column.dtype
        )
    if ids.dtype.kind != "U" and column.size:  # of int64 and uint64 together NumPy makes floats
        limits = np.iinfo(ids.dtype)
        if int(column.min()) < limits.min or int(column.max()) > limits.max:
            raise refusal(
                f"The ids of `{name}` must be from {limits.min} to {limits.max}, as those of the "
                "fit; texts have no limits",
                f"from {column.min()} to {column.max()}",
            )
        column = column.astype(ids.dtype)
    return column
