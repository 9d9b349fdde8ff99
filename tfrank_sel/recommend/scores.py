"""Scores of all items for some users: products of vectors, or sums of links between items.

A user's scores do not depend on which other users are scored with him, nor on whether NumPy or
TensorFlow computes them: sums are in float64, and rounded at the end.
"""

import abc
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from tfrank_sel.models.als import retrieval

Array: TypeAlias = NDArray[Any]
Matrix: TypeAlias = Any  # SciPy's sparse matrices have no types

SPARE = 16  # items of the next best products, which the order of a sum may change


class Scores(abc.ABC):
    """Scores of all items for some users."""

    @abc.abstractmethod
    def at(self, users: Array, items: Array) -> Array:
        """Returns the scores of pairs of a user and an item, by index, float32."""

    def best(self, k: int, out: Matrix) -> tuple[Array, Array]:
        """Returns the items of the highest scores of each user, and these scores.

        Equal scores keep the order of the items. Scores that choose no candidates have none.

        Args:
            k: Number of items.
            out: CSR matrix `[users, items]` of what is left out.

        Returns:
            Indices of items, int32 `[users, k]`, -1 if no item is left, and scores, float32.
        """
        shape = out.shape[0], k
        return np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)


class Values(Scores):
    """Values of items, or of users or sums of both, which choose no candidates.

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
        """Returns the items of the highest values."""
        if self.items is None or self.users is not None:
            return super().best(k, out)
        ones = np.ones((out.shape[0], 1), np.float32)
        return Products(ones, self.items[:, np.newaxis]).best(k, out)


class Products(Scores):
    """Inner products of the vectors of users and of items.

    Args:
        users: Vectors of the users, `[users, size]`.
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
        users = self.users.astype(np.float32, copy=False)
        ids, _ = retrieval.best(users, self.items, k + SPARE, out)
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


@functools.singledispatch
def weigh(histories: Any, decay: float = 1.0, most: int | None = None) -> Matrix:
    """Returns the weight of each item in each history, a CSR matrix `[users, items]`, float64.

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
    shape = len(histories.user_ids), len(histories.item_ids)
    return sp.csr_matrix((np.float64(decay) ** age[kept], pairs), shape)


@functools.singledispatch
def multiply(weights: Matrix, table: Any) -> Any:
    """Returns the sums of the rows of a table, of which each item of a history has one.

    Args:
        weights: What `weigh` returns.
        table: A CSR matrix `[items, columns]`, or an array, `[items]` or `[items, columns]`.

    Returns:
        `Sums` of a matrix; of an array, one of float64, `[users]` or `[users, columns]`.
    """
    weights = sp.csr_matrix(weights)
    items = np.unique(weights.indices)  # of others, float64 would be a copy for nothing
    sums = weights[:, items] @ table[items].astype(np.float64)
    return Sums(sums) if sp.issparse(table) else sums


@functools.singledispatch
def join(histories: Any, ids: Array, columns: Mapping[str, Array]) -> dict[str, Any]:
    """Returns columns of a table of users for those of the histories.

    A user who has no row has NaN in a column of numbers, and -1 in one of integers.

    Args:
        histories: The items that each user took.
        ids: Ids of the users of the table, in ascending order.
        columns: Columns of the table, by name.
    """
    # a table of all users is not hashed for each block of them
    rows = np.searchsorted(ids, histories.user_ids)
    is_there = rows < len(ids)
    is_there[is_there] = ids[rows[is_there]] == histories.user_ids[is_there]
    rows[~is_there] = -1
    return {name: at_or_missing(rows, values) for name, values in columns.items()}


class System(NamedTuple):
    """Linear systems whose solutions are the vectors of users.

    A user who took `n` items, of vectors `y`, has the solution of

    ```
    (diag(d) + curvature * sum y y') x = slope * sum y - scale(n) * pull
    d = scale(n) * eigenvalues + ridge(n)
    ```

    Attributes:
        items: Vectors of all items, float32 `[items, size]`.
        eigenvalues: What all items add to the diagonal, `[size]`.
        pull: What all items add to the right side, `[size]`.
        curvature: The factor of the matrix of the user's items.
        slope: The factor of their sum.
        terms: Function of numbers of items, float64 `[users]`, to scales and ridges of this shape.
    """

    items: Array
    eigenvalues: Array
    pull: Array
    curvature: float
    slope: float
    terms: Callable[[Array], tuple[Array, Array]]


@functools.singledispatch
def solve(histories: Any, system: System) -> Array:
    """Returns the vector of each user, float64 `[users, size]`.

    Args:
        histories: The items that each user took; one that he took several times counts once.
        system: The system.
    """
    matrix, (items, eigenvalues, pull, curvature, slope, terms) = weigh(histories), system
    vectors = np.empty((matrix.shape[0], items.shape[1]))
    sides = zip(*terms(np.diff(matrix.indptr).astype(np.float64)), strict=True)
    for row, (scale, ridge) in enumerate(sides):
        own = items[matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]].astype(np.float64)
        root = 1.0 / np.sqrt(scale * eigenvalues + ridge)
        right = (slope * own.sum(axis=0) - scale * pull) * root
        own *= np.sqrt(curvature) * root
        if len(own) < len(root):  # Woodbury's identity has an unknown for each item
            system_of_items = np.eye(len(own)) + own @ own.T
            right -= own.T @ np.linalg.solve(system_of_items, own @ right)
        else:
            right = np.linalg.solve(np.eye(len(root)) + own.T @ own, right)
        vectors[row] = right * root
    return vectors


def at_or_missing(rows: Array, values: Array) -> Array:
    """Returns the values of rows; NaN for a row of -1, or -1 if they are integers."""
    return extend(values)[rows]


def extend(values: Array) -> Array:
    """Returns values, and at the end what stands for a missing one."""
    missing = -1 if values.dtype.kind in "iu" else np.nan
    return np.append(values, np.array(missing, values.dtype))


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _products(left: Array, right: Array, rows: Array, columns: Array) -> Array:
    products = np.empty(len(rows), np.float32)
    for pair in range(len(rows)):
        u, v = left[rows[pair]], right[columns[pair]]
        total = np.float64(0.0)
        for i in range(len(u)):
            total += np.float64(u[i]) * np.float64(v[i])
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
            if marked[item] or not score > max(best[row, k - 1], 0.0):
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
