"""Scores of all items for some users: products of vectors, or sums of links between items.

A user's scores do not depend on which other users are scored with him: sums have a fixed order.
"""

import abc
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from tfrank_sel.data import Sequences
from tfrank_sel.models.als import retrieval

Array: TypeAlias = NDArray[Any]
Matrix: TypeAlias = Any  # SciPy's sparse matrices have no types

_SPARE = 16  # items of the next best products, which the order of a sum may change


class Scores(abc.ABC):
    """Scores of all items for some users."""

    @abc.abstractmethod
    def at(self, users: Array, items: Array) -> Array:
        """Returns the scores of pairs of a user and an item, by index, float32."""

    @abc.abstractmethod
    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns the items of the highest scores of each user, and these scores.

        Equal scores keep the order of the items.

        Args:
            k: Number of items.
            out: CSR matrix `[users, items]` of what is left out.

        Returns:
            Indices of items, int32 `[users, k]`, -1 if no item is left, and scores, float32.
        """


class Values(Scores):
    """Values of items or of users, or sums of both, which choose no candidates.

    Args:
        items: Values of the items, `[items]`; 0 if None.
        users: Values of the users, `[users]`; 0 if None.
    """

    def __init__(self, items: Array | None = None, users: Array | None = None) -> None:
        self.items, self.users = items, users

    def at(self, users: Array, items: Array) -> Array:
        """Returns the values of pairs."""
        both = (self.items, items), (self.users, users)
        return np.asarray(sum(values[rows] for values, rows in both if values is not None))

    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns no items."""
        shape = out.shape[0], k
        return np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)


class Products(Scores):
    """Inner products of the vectors of users and of items.

    Args:
        users: Vectors of the users, float32 `[users, size]`.
        items: Vectors of all items, float32 `[items, size]`.
    """

    def __init__(self, users: Array, items: Array) -> None:
        self.users, self.items = users, items

    def at(self, users: Array, items: Array) -> Array:
        """Returns the scores of pairs."""
        return _products(self.users, self.items, users.astype(np.int64), items.astype(np.int64))

    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns the best items; none of a user whose vector is 0."""
        # a matrix product rounds as its shape says, so that what it finds is scored again
        ids, _ = retrieval.best(self.users, self.items, k + _SPARE, out)
        ids[~self.users.any(axis=1)] = -1
        rows = np.repeat(np.arange(len(ids)), ids.shape[1])
        scores = self.at(rows, np.maximum(ids, 0).ravel()).reshape(ids.shape)
        scores[ids < 0] = -np.inf
        order = np.lexsort((ids, -scores), axis=1)[:, :k]
        return np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)


class Sums(Scores):
    """Scores that most pairs do not have.

    Args:
        matrix: CSR matrix `[users, items]` of scores above 0.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix: Matrix = sp.csr_matrix(matrix, dtype=np.float32)

    def at(self, users: Array, items: Array) -> Array:
        """Returns the scores of pairs, 0 without one, NaN if an index is -1."""
        rows, scores = self.matrix, np.zeros(self.matrix.shape[1], np.float32)
        return _look_up(rows.indptr, rows.indices, rows.data, users, items, scores)

    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns the best items of those with a score."""
        ids = np.full((self.matrix.shape[0], k), -1, np.int32)
        scores = np.full(ids.shape, -np.inf, np.float32)
        self.matrix.sort_indices()  # since equal scores keep the order
        rows, others = self.matrix, out.indptr.astype(np.int64)
        marked = np.zeros(rows.shape[1], np.bool_)
        _select(rows.indptr, rows.indices, rows.data, others, out.indices, marked, ids, scores)
        return ids, scores


class Lookup(Scores):
    """Scores of categories of users or of items, which choose no candidates.

    Args:
        sums: Scores of a user, or of his category, and of an item, or of its category.
        users: Category of each user, -1 if it has none; the user if None.
        items: Category of each item.
    """

    def __init__(self, sums: Sums, users: Array | None = None, items: Array | None = None) -> None:
        self.sums, self.users, self.items = sums, users, items

    def at(self, users: Array, items: Array) -> Array:
        """Returns the scores of pairs, NaN without a category."""
        rows = users if self.users is None else self.users[users]
        return self.sums.at(rows, items if self.items is None else self.items[items])

    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns no items."""
        return Values().best(k, out)


def weigh(histories: Sequences, decay: float = 1.0, most: int | None = None) -> Matrix:
    """Returns the weight of each item in each history, a CSR matrix `[users, items]`.

    The last item has weight 1, and each item before a smaller one by the factor `decay`; the
    weights of an item that a user took several times are added.

    Args:
        histories: The items that each user took.
        decay: The factor.
        most: Number of last items that have a weight; all if None.
    """
    age = histories.offsets[histories.users + 1] - 1 - np.arange(len(histories.users))
    kept = slice(None) if most is None else age < most
    pairs = histories.users[kept], histories.items[kept] - 1
    weights = (decay ** age[kept]).astype(np.float32)
    return sp.csr_matrix((weights, pairs), (len(histories.user_ids), len(histories.item_ids)))


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _products(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    products = np.empty(len(rows), np.float32)
    for pair in range(len(rows)):
        u, v = left[rows[pair]], right[columns[pair]]
        total = np.float32(0.0)
        for i in range(len(u)):
            total += u[i] * v[i]
        products[pair] = total
    return products


@njit(nogil=True, cache=True)
def _look_up(
    indptr: Array, indices: Array, values: Array, rows: Array, columns: Array, scores: Array
) -> Array:
    """The values at some rows and columns, 0 where there is none; `scores` are 0 and stay so."""
    looked_up = np.full(len(rows), np.nan, np.float32)
    start = 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and rows[end] == rows[start]:
            continue
        row = rows[start]
        if row >= 0:
            for at in range(indptr[row], indptr[row + 1]):
                scores[indices[at]] = values[at]
            for pair in range(start, end):
                if columns[pair] >= 0:
                    looked_up[pair] = scores[columns[pair]]
            for at in range(indptr[row], indptr[row + 1]):
                scores[indices[at]] = 0.0
        start = end
    return looked_up


@njit(nogil=True, cache=True)
def _select(
    indptr: Array,
    indices: Array,
    values: Array,
    out_indptr: Array,
    out_indices: Array,
    marked: Array,
    ids: Array,
    best: Array,
) -> None:
    """Selects the best items of each row that are not out, by insertion."""
    k = ids.shape[1]
    for row in range(len(ids)):
        for at in range(out_indptr[row], out_indptr[row + 1]):
            marked[out_indices[at]] = True
        for at in range(indptr[row], indptr[row + 1]):
            item, score = indices[at], values[at]
            if marked[item] or not score > best[row, k - 1]:
                continue
            rank = k - 1
            while rank > 0 and score > best[row, rank - 1]:
                best[row, rank] = best[row, rank - 1]
                ids[row, rank] = ids[row, rank - 1]
                rank -= 1
            best[row, rank] = score
            ids[row, rank] = item
        for at in range(out_indptr[row], out_indptr[row + 1]):
            marked[out_indices[at]] = False
