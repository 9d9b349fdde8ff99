"""Half-sweeps of alternating least squares, in compiled loops."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba.extending import typeof_impl
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from tfrank_sel.distribution.groups import Group, Indices, SingleProcess
from tfrank_sel.errors import refusal
from tfrank_sel.models.als import rows as kernels
from tfrank_sel.models.als.objectives import Float64s, Objective
from tfrank_sel.models.als.rows import Array, GainRows, Scratch, Shared
from tfrank_sel.models.als.vectors import lanes

_CHUNK = 1 << 12  # rows at a time, to avoid a copy of all of them


class _Side(NamedTuple):
    """The rows of this process, and the indices of the columns that they need."""

    rows: GainRows
    needed: Indices


class Solver:
    """Minimises an objective over the factors of one side, with the other side fixed.

    With scores `o_ui = p_u . q_i` it minimises

    ```
    J = sum_u L_u + sum_u user_ridges_u / 2 * |p_u|**2 + sum_i item_ridges_i / 2 * |q_i|**2
    ```

    with the `L_u` of the objective. Rows are independent of one another, so results do not depend
    on their order, the number of threads or the number of processes, except for rounding. Each
    process of a group has a block of the users and a block of the items. For a half-sweep it
    gathers the factors of the other side that its interactions need; only factors are exchanged.

    Args:
        interactions: SciPy CSR matrix `[users, items]` of positive gains: this process's users,
            all items.
        objective: The objective to minimise.
        user_ridges: Regularisation of each user of this process.
        item_ridges: Regularisation of each item of this process.
        list_weights: Weight of the loss of each user of this process.
        base_weights: Base weight `v` of each item of this process; over all processes, they sum to
            the number of items.
        cg_steps: Conjugate gradient steps per row, from its current value; exact if `None`.
        num_threads: Number of threads.
        dtype: The dtype of the factors, float32 or float64.
        group: The processes that solve the problem together.
    """

    def __init__(
        self,
        interactions: Any,
        objective: Objective,
        user_ridges: Float64s,
        item_ridges: Float64s,
        list_weights: Float64s,
        base_weights: Float64s,
        cg_steps: int | None,
        num_threads: int,
        dtype: str,
        group: Group = SingleProcess(),  # noqa: B008, it has no state
    ) -> None:
        self.group = group
        self.on_rows: Callable[[int], None] = lambda count: None  # called when rows are solved
        self.objective = objective
        self.cg_steps = cg_steps
        self.num_threads = num_threads
        # this takes long, because it searches for the libraries
        self._blas = ThreadpoolController()
        self.num_items = interactions.shape[1]
        everyones_weights = group.gather_rows(list_weights)
        self.num_users = len(everyones_weights)
        gain_sums = np.asarray(interactions.sum(axis=1, dtype=np.float64)).ravel()
        self._scales = list_weights * objective.scale(gain_sums, self.num_items)
        self._base_weights = base_weights
        self._ridges = user_ridges, item_ridges
        ones = np.ones(self.num_items), np.ones(len(base_weights))
        per_user = (list_weights, ones[0], self._scales, user_ridges)
        per_item = (ones[1], everyones_weights, base_weights, item_ridges)
        self.by_user = self._side(interactions, *per_user, dtype)
        self.by_item = self._side(transpose(interactions, group), *per_item, dtype)

    def sweep(self, users: Array, items: Array) -> None:
        """Updates the users' factors, then the items' factors, in place."""
        self.renew_users(users, items)
        self.renew_items(users, items)

    def renew_users(self, users: Array, items: Array) -> None:
        """Minimises over the users' factors, in place."""
        self._solve(self.by_user, *self.user_terms(items), items, users)

    def renew_items(self, users: Array, items: Array) -> None:
        """Minimises over the items' factors, in place; for RG^x see `RGCross.joint`."""
        gram, total = self._moments(users, self._scales)

        def renew(mean: Float64s) -> None:
            self._solve(self.by_item, gram, self._pull(gram, total, mean), users, items)

        def renewed_mean(mean: Float64s) -> Float64s:
            renew(mean)
            return self._mean(items)

        if self.objective.joint:
            _fixed_point(renewed_mean, self._mean(items), 30.0 * float(np.finfo(items.dtype).eps))
        else:
            renew(self._mean(items))

    def user_terms(self, items: Array) -> tuple[Float64s, Float64s]:
        """Returns the matrix and the linear term of all items, which the users' rows share."""
        gram, total = self._moments(items, self._base_weights)
        outer = np.outer(total, total)
        return gram - self.objective.kappa / self.num_items * outer, self.objective.lift * total

    def item_terms(self, users: Array, items: Array) -> tuple[Float64s, Float64s]:
        """Returns the matrix and the linear term of all users; for RG^x, its bound at `items`."""
        gram, total = self._moments(users, self._scales)
        return gram, self._pull(gram, total, self._mean(items))

    def _pull(self, gram: Float64s, total: Float64s, mean: Float64s) -> Float64s:
        # the tangent of -mu**2 / 2 at the current mean lies above it, so lowering it lowers J
        return self.objective.lift * total - self.objective.kappa * gram @ mean

    def _mean(self, items: Array) -> Float64s:
        return self._moments(items, self._base_weights / self.num_items)[1]

    def value(self, users: Array, items: Array) -> float:
        """Returns the objective, without the logarithms of numbers of items."""
        by_user, pulled = self._moments(users, self._scales)
        by_item, total = self._moments(items, self._base_weights)
        # a quadratic form of the users' and items' moments: no pair of a user and an item is
        # visited
        by_item -= self.objective.kappa / self.num_items * np.outer(total, total)
        pairs = np.sum(by_user * by_item) / 2.0 + self.objective.lift * pulled @ total
        terms = self.objective.curvature, self.objective.slope, self.objective.offset
        rows, needed_items = self.by_user.rows, self.group.gather_rows(items, self.by_user.needed)
        bounds = _bounds(rows, users.shape[1], self.num_threads)

        def positives(begin: int, end: int) -> float:
            return kernels.sum_positives(rows, users, needed_items, *terms, begin, end)

        ridges = sum(
            ridge @ np.einsum("ij,ij->i", side, side, dtype=np.float64) / 2.0
            for ridge, side in zip(self._ridges, (users, items), strict=True)
        )
        local_sum = np.array(sum(self._parallel(positives, bounds)) + ridges)
        return float(pairs + self.group.total(local_sum))

    def logit_norm(self, users: Array, items: Array) -> float:
        """Returns the root mean square of all scores, with the weights of the items."""
        by_user, _ = self._moments(users, np.full(len(users), 1.0 / self.num_users))
        # the mean of (p' q)**2 over all pairs is the trace of the product of both moments
        by_item, _ = self._moments(items, self._base_weights / self.num_items)
        return float(np.sqrt(max(np.sum(by_user * by_item), 0.0)))

    def shared(
        self, matrix: Float64s, pull: Float64s, fixed: Array, needed: Indices = slice(None)
    ) -> tuple[Shared, Array]:
        """Returns what the rows of a half-sweep share, in the eigenbasis of their matrix, and this.

        Args:
            matrix: The matrix that all rows share.
            pull: The linear term that they share.
            fixed: The factors of the other side.
            needed: The indices of those that the rows need.
        """
        # in its eigenbasis, the matrix that all rows share is a diagonal: see `rows.py`
        eigenvalues, basis = np.linalg.eigh(matrix)
        # another machine may round to another basis, but all blocks must use the same basis
        eigenvalues, basis = self.group.first(eigenvalues), self.group.first(basis)
        width, dtype = len(eigenvalues), fixed.dtype
        padded = -width % lanes(dtype)
        into = np.pad(basis, ((0, 0), (0, padded))).astype(dtype)
        shared = Shared(
            factors=self.group.gather_rows(self._rotate(fixed, into), needed),
            # rounding may leave a negative eigenvalue; a padded column must not make a row singular
            eigenvalues=np.pad(
                np.maximum(eigenvalues, 0.0), (0, padded), constant_values=max(eigenvalues[-1], 1.0)
            ).astype(dtype),
            pull=np.pad(pull @ basis, (0, padded)).astype(dtype),
            curvature=_pair(self.objective.curvature, dtype),
            slope=_pair(self.objective.slope, dtype),
        )
        return shared, into

    def _solve(
        self, side: _Side, matrix: Float64s, pull: Float64s, fixed: Array, free: Array
    ) -> None:
        shared, into = self.shared(matrix, pull, fixed, side.needed)
        dtype, width = free.dtype, len(matrix)
        bounds, rows = _bounds(side.rows, width, self.num_threads), side.rows

        def part(begin: int, end: int) -> int:
            scratch = Scratch.of(len(shared.eigenvalues), dtype)
            if self.cg_steps is None:
                out = np.empty((end - begin, into.shape[1]), dtype)
                failed = kernels.solve_exactly(rows, shared, begin, end, out, scratch)
            else:
                out = free[begin:end] @ into
                failed = kernels.improve(rows, shared, begin, end, out, scratch, self.cg_steps)
            np.matmul(out, into.T, out=free[begin:end])
            self.on_rows(end - begin)
            return failed

        failed = sum(self._parallel(part, bounds))
        singular, count = self.group.total(np.array([failed, len(free)]))
        if singular:
            raise refusal(
                "The system of every row must be positive definite: raise `regularization` or "
                "lower `num_factors`",
                f"{singular} singular of {count} rows",
            )

    def _side(
        self,
        matrix: Any,
        weights: Float64s,
        column_weights: Float64s,
        scales: Float64s,
        ridges: Float64s,
        dtype: str,
    ) -> _Side:
        matrix, needed = compact(matrix, self.group)
        arrays = (matrix.data, weights, column_weights[needed], scales, ridges)
        rows = GainRows(
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int32, copy=False),
            *(array.astype(dtype, copy=False) for array in arrays),
        )
        return _Side(rows, needed)

    def _rotate(self, factors: Array, into: Array) -> Array:
        rotated = np.empty((len(factors), into.shape[1]), into.dtype)

        def part(begin: int, end: int) -> None:
            np.matmul(factors[begin:end], into, out=rotated[begin:end])

        self._parallel(part, _chunks(len(factors)))
        return rotated

    def _moments(self, factors: Array, weights: Float64s) -> tuple[Float64s, Float64s]:
        """Returns `sum w x x'` and `sum w x` over the rows, summed in float64."""

        def part(begin: int, end: int) -> tuple[Array, Array]:
            weight = weights[begin:end].astype(factors.dtype)
            scaled = factors[begin:end] * np.sqrt(weight)[:, None]
            return scaled.T @ scaled, weight @ factors[begin:end]  # BLAS computes half of the first

        gram, total = np.zeros((factors.shape[1],) * 2), np.zeros(factors.shape[1])
        for partial_gram, partial_total in self._parallel(part, _chunks(len(factors))):
            gram += partial_gram
            total += partial_total
        return self.group.total(gram), self.group.total(total)

    def _parallel(self, work: Callable[[int, int], Any], bounds: NDArray[np.int64]) -> list[Any]:
        """Processes the runs of rows between the bounds on the free threads.

        Each thread makes its own BLAS calls, because multi-threaded BLAS calls wait actively.
        """
        with self._blas.limit(limits=1, user_api="blas"):
            if self.num_threads == 1:
                return list(map(work, bounds[:-1], bounds[1:]))
            for kind in (GainRows, Shared, Scratch):
                typeof_impl.dispatch(kind)  # the first look-up of a class is not safe in threads
            with ThreadPoolExecutor(self.num_threads) as pool:
                return list(pool.map(work, bounds[:-1], bounds[1:]))


def _pair(numbers: tuple[float, float], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    return dtype.type(numbers[0]), dtype.type(numbers[1])


def _bounds(rows: GainRows, width: int, num_threads: int) -> NDArray[np.int64]:
    """Splits the rows into runs of about equal work, several per thread and none too long."""
    counts = np.diff(rows.indptr)
    # a Gram matrix, and the constant part
    work = np.cumsum(width + counts * np.minimum(counts, width))
    num_runs = max(8 * num_threads, -(-len(counts) // _CHUNK))
    shares = work[-1] * np.arange(1, num_runs) / num_runs
    return np.concatenate([[0], np.searchsorted(work, shares), [len(counts)]])


def _chunks(count: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, count, _CHUNK), count)


def _fixed_point(
    renewed: Callable[[Float64s], Float64s], start: Float64s, tolerance: float
) -> None:
    """Finds the fixed point of an affine map by Anderson acceleration.

    Each argument is the combination of the previous ones with the smallest combined residual.
    """
    arguments, residuals = [start], [renewed(start) - start]
    # for an affine map this is GMRES, which ends after as many steps as there are numbers, rounding
    # apart
    for _ in range(2 * len(start)):
        value = arguments[-1] + residuals[-1]
        if np.linalg.norm(residuals[-1]) <= tolerance * np.linalg.norm(value):
            return
        if len(arguments) > 1:
            steps = np.diff(arguments, axis=0).T
            changes = np.diff(residuals, axis=0).T
            mix = np.linalg.lstsq(changes, residuals[-1], rcond=1e-12)[0]
            value = value - (steps + changes) @ mix
        arguments.append(value)
        residuals.append(renewed(value) - value)


def compact(matrix: Any, group: Group) -> tuple[Any, Indices]:
    """Drops the empty columns of a CSR matrix; returns the indices of the others."""
    if group.size == 1:
        # A slice avoids a copy of the matrix.
        return matrix, slice(None)
    columns, indices = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(columns))
    return sp.csr_matrix((matrix.data, indices, matrix.indptr), shape), columns


def transpose(matrix: Any, group: Group) -> Any:
    """Returns this process's block of columns of a CSR matrix, as rows.

    Args:
        matrix: This process's block of rows, with all columns.
        group: The processes.
    """
    if group.size == 1:
        return matrix.T.tocsr()
    rows_of = group.gather_rows(np.array([matrix.shape[0]]))
    block = group.block(matrix.shape[1])
    pairs = matrix.tocoo()
    rows = pairs.row + rows_of[: group.rank].sum()
    # float64 holds all indices exactly.
    triples = np.stack([rows, pairs.col, pairs.data], axis=1, dtype=np.float64)
    kept = [np.empty((0, 3))]
    for _, parts in group.pieces(triples):
        kept += [part[(part[:, 1] >= block.start) & (part[:, 1] < block.stop)] for part in parts]
    row, column, data = np.concatenate(kept).T
    positions = (column.astype(np.int64) - block.start, row.astype(np.int64))
    shape = (block.stop - block.start, rows_of.sum())
    return sp.csr_matrix((data.astype(matrix.dtype), positions), shape)
