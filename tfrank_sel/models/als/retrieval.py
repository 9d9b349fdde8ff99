"""Retrieval of the best items of a user, metrics of recommendations, and parts of a score."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numba import njit
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from tfrank_sel.distribution import Group, SingleProcess
from tfrank_sel.errors import refusal
from tfrank_sel.models.als.objectives import Float64s, Objective

Array: TypeAlias = NDArray[np.floating]
Ids: TypeAlias = NDArray[np.int32]

_CHUNK_BYTES = 1 << 22  # of scores at a time, to fit the cache


def best(
    users: Array, items: Array, k: int, seen: Any = None, num_threads: int = 1
) -> tuple[Ids, Array]:
    """Returns the `k` items of the highest scores of each user, and the scores.

    Equal scores keep the order of the items. If fewer than `k` items are left, the rest is -1 with
    score -inf.

    Args:
        users: Factors of the users, `[count, num_factors]`.
        items: Factors of all items.
        k: Number of items to return; positive.
        seen: CSR matrix `[count, num_items]` of the items to leave out; none if `None`.
        num_threads: Number of threads.

    Raises:
        ValueError: If `k` is not positive.
    """
    if k < 1:
        raise refusal("`k` must be positive", k=k)
    ids = np.full((len(users), k), -1, np.int32)
    scores = np.full((len(users), k), -np.inf, items.dtype)
    chunk = max(1, _CHUNK_BYTES // (items.itemsize * max(1, len(items))))
    none = np.zeros(len(users) + 1, np.int64), np.zeros(0, np.int32)
    indptr, indices = none if seen is None else (seen.indptr.astype(np.int64), seen.indices)

    def fill(begin: int) -> None:
        part = slice(begin, begin + chunk)
        _select(users[part] @ items.T, indptr[begin:], indices, ids[part], scores[part])

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(fill, range(0, len(users), chunk)))
    return ids, scores


def best_among(
    items: ArrayLike | None,
    users: Array,
    factors: Array,
    k: int,
    seen: Any = None,
    num_threads: int = 1,
) -> tuple[Ids, Array]:
    """Returns the best of the given items, as `best`; of all items if `None`.

    Raises:
        ValueError: If `k` is not positive, or an index is out of range.
    """
    if items is None:
        return best(users, factors, k, seen, num_threads)
    wanted = np.atleast_1d(indices("items", items, len(factors)))
    items = wanted[np.sort(np.unique(wanted, return_index=True)[1])]  # each once, in their order
    seen = None if seen is None else seen[:, items].tocsr()
    ids, scores = best(users, factors[items], k, seen, num_threads)
    return np.append(items, -1).astype(np.int32)[ids], scores  # the last is what none has


def check_known(users: NDArray[Any], factors: Array) -> None:
    """Raises an error if users have no interactions: their vector 0 scores all items alike."""
    unknown = users[~factors[users].any(axis=1)]
    if len(unknown):
        raise refusal(
            "`users` must have interactions",
            f"users without interactions {unknown[:5].tolist()}. Recommend popular items to them: "
            "`seen_.getnnz(axis=0)`",
        )


def indices(name: str, wanted: ArrayLike, count: int) -> NDArray[np.int64]:
    """Returns indices from 0 to `count - 1`, of any shape.

    Raises:
        ValueError: If an index is not an integer, or out of range.
    """
    array = np.asarray(wanted)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise refusal(f"`{name}` must be integers", f"dtype {array.dtype}")
    if array.size and not 0 <= array.min() <= array.max() < count:
        raise refusal(f"`{name}` must lie from 0 to {count - 1}", f"{array.min()} to {array.max()}")
    return array.astype(np.int64)


def most_similar(places: NDArray[np.int64], factors: Array, k: int) -> tuple[Ids, Array]:
    """Returns the other rows of the largest cosines with some rows, and the cosines.

    Args:
        places: Indices of some rows, or of one row.
        factors: All rows.
        k: Number of rows to return; positive.
    """
    rows = np.atleast_1d(places)
    norms = np.linalg.norm(factors, axis=1, keepdims=True)
    unit = factors / np.maximum(norms, np.finfo(factors.dtype).tiny)
    itself = sp.csr_matrix(
        (np.ones(len(rows)), (np.arange(len(rows)), rows)), (len(rows), len(unit))
    )
    ids, cosines = best(unit[rows], unit, k, itself)
    return (ids, cosines) if places.ndim else (ids[0], cosines[0])


@njit(nogil=True, cache=True)
def _select(scores: Array, indptr: NDArray[np.int64], seen: Ids, ids: Ids, best: Array) -> None:
    """Selects the best unseen items of each row, by insertion."""
    k = ids.shape[1]
    for row in range(len(scores)):
        for at in range(indptr[row], indptr[row + 1]):
            scores[row, seen[at]] = -np.inf
        for item in range(scores.shape[1]):
            score = scores[row, item]
            if not score > best[row, k - 1]:
                continue
            rank = k - 1
            while rank > 0 and score > best[row, rank - 1]:
                best[row, rank] = best[row, rank - 1]
                ids[row, rank] = ids[row, rank - 1]
                rank -= 1
            best[row, rank] = score
            ids[row, rank] = item


def user_qualities(ids: Ids, relevant: Any) -> dict[str, NDArray[np.float64]]:
    """Computes the NDCG, recall and reciprocal rank of the recommendations of each user.

    A user without a relevant item is left out.

    Args:
        ids: Items recommended to each user, best first, `[num_users, k]`.
        relevant: CSR matrix `[num_users, num_items]` of relevant items.
    """
    k = ids.shape[1]
    hits = mark_members(ids, relevant)
    counts = np.diff(relevant.indptr)
    hits, counts = hits[counts > 0], counts[counts > 0]
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    return {
        f"ndcg@{k}": hits @ discounts / np.cumsum(discounts)[np.minimum(counts, k) - 1],
        f"recall@{k}": hits.sum(axis=1) / counts,
        f"mrr@{k}": np.max(hits / np.arange(1, k + 1), axis=1, initial=0.0),
    }


def ranking_quality(
    ids: Ids,
    relevant: Any,
    group: Group = SingleProcess(),  # noqa: B008, it has no state
) -> dict[str, float]:
    """Computes the means of `user_qualities` over the users of all processes of a group."""
    qualities = user_qualities(ids, relevant)
    sums = [quality.sum() for quality in qualities.values()]
    count = np.count_nonzero(np.diff(relevant.indptr))
    count, *totals = group.total(np.array([count, *sums]))
    return {name: float(x / count) for name, x in zip(qualities, totals, strict=True)}


def mark_members(ids: Ids, matrix: Any) -> NDArray[np.bool_]:
    """Returns which items, `[rows, k]`, are in the same row of a CSR matrix."""
    return _mark_members(ids, matrix.indptr.astype(np.int64), matrix.indices)


@njit(nogil=True, cache=True)
def _mark_members(ids: Ids, indptr: NDArray[np.int64], indices: Ids) -> NDArray[np.bool_]:
    is_in = np.zeros(ids.shape, np.bool_)
    for row in range(len(ids)):
        for at in range(indptr[row], indptr[row + 1]):
            for column in range(ids.shape[1]):
                is_in[row, column] |= ids[row, column] == indices[at]
    return is_in


class Explanation(NamedTuple):
    """A score as a sum over the items that the user took.

    Attributes:
        items: The user's items, from the largest contribution to the smallest.
        contributions: Their contributions to the score.
        rest: The rest of the score, which the loss of the items not taken contributes.
    """

    items: NDArray[Any]
    contributions: Float64s
    rest: float

    @property
    def score(self) -> float:
        """The sum of all contributions."""
        return float(self.contributions.sum() + self.rest)


def explain_score(
    item: int,
    row: Any,
    objective: Objective,
    factors: NDArray[Any],
    base_weights: Float64s,
    ridge: float,
) -> Explanation:
    """Divides the score of an item by the terms of the linear system of the user's vector.

    Args:
        item: Index of the item.
        row: SciPy CSR matrix of the user's positives, `[1, items]`.
        objective: The loss of the user.
        factors: The items' vectors.
        base_weights: Base weight of each item.
        ridge: Regularisation of the user.
    """
    q, gains = factors.astype(np.float64), row.data.astype(np.float64)
    taken, num_items = q[row.indices], len(q)
    (scale,) = objective.scale(np.array([gains.sum()]), num_items)
    total = base_weights @ q
    system = scale * (q.T * base_weights) @ q
    system -= scale * objective.kappa / num_items * np.outer(total, total)
    curvatures = objective.curvature[0] + objective.curvature[1] * gains
    system += (taken.T * curvatures) @ taken + ridge * np.eye(q.shape[1])
    direction = scipy.linalg.solve(system, q[item], assume_a="pos")
    slopes = objective.slope[0] + objective.slope[1] * gains
    contributions = slopes * (taken @ direction)
    order = np.argsort(-contributions, kind="stable")
    rest = -scale * objective.lift * float(total @ direction)
    return Explanation(row.indices[order].astype(np.int32), contributions[order], rest)
