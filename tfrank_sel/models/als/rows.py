"""Compiled solvers for single rows: a half-sweep solves one system per user or item.

A row of the free factors minimises a quadratic whose matrix is, in the eigenbasis of the Gram
matrix that all rows share, a diagonal plus one rank for each positive of the row:

```
A = diag(d) + sum_j q_j * y_j * y_j',  d = scale * eigenvalues + ridge
b = sum_j l_j * y_j - scale * pull
```
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from tfrank_sel.models.als.vectors import (
    TILE_ROWS,
    add_row,
    add_tile,
    dot,
    subtract_row,
    subtract_tile,
)

Array: TypeAlias = NDArray[np.floating]
# Compiled code does not allocate. Without Numba's runtime it does not count references either,
# which would cost more than a short row. A division by zero gives an infinity without a branch.
# Not `fastmath=True`, which also assumes that no number is NaN or infinite, and may drop the tests
# of singular rows.
compiled = njit(
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp", "reassoc"},
    _nrt=False,
)
BLOCK = 128  # rows of gathered factors that fit the first-level cache


class GainRows(NamedTuple):
    """The rows of a half-sweep, in compressed form.

    Attributes:
        indptr: Start of the positives of each row, `[num_rows + 1]`.
        indices: The columns of the positives.
        gains: The gains of the positives, above 0.
        weights: Weight of each row's positives, `[num_rows]`.
        column_weights: Weight of each column's positives, `[num_columns]`.
        scales: Factor of the shared matrix in each row, `[num_rows]`.
        ridges: Regularisation of each row, `[num_rows]`.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    gains: Array
    weights: Array
    column_weights: Array
    scales: Array
    ridges: Array


class Shared(NamedTuple):
    """Data shared by all rows of a half-sweep.

    Attributes:
        factors: The fixed factors in the eigenbasis, columns padded to whole registers.
        eigenvalues: Eigenvalues of the shared matrix, one per column.
        pull: The linear term of all pairs, in the eigenbasis.
        curvature: `q_j = weight * (curvature[0] + curvature[1] * gain)`.
        slope: `l_j = weight * (slope[0] + slope[1] * gain)`.
    """

    factors: Array
    eigenvalues: Array
    pull: Array
    curvature: tuple[float, float]
    slope: tuple[float, float]


class Scratch(NamedTuple):
    """Scratch arrays for the solution of one row, created once per thread."""

    diagonal: Array
    rhs: Array
    root: Array
    x: Array
    y: Array
    curvature: Array
    slope: Array
    block: Array
    turned: Array
    matrix: Array
    direction: Array
    product: Array

    @classmethod
    def of(cls, width: int, dtype: DTypeLike) -> "Scratch":
        """Creates the arrays for rows of a width."""
        row, square = (width,), (width, width)
        shapes = [row] * 5 + [(BLOCK,)] * 2 + [(BLOCK, width), square, square] + [row] * 2
        return cls(*(np.empty(shape, dtype) for shape in shapes))


@compiled
def add_gram(matrix: Array, size: int, block: Array, count: int) -> None:
    """Adds `B' B` of the first rows of a block to the upper triangle of a matrix."""
    width = matrix.shape[1]
    lanes = 64 // matrix.itemsize
    for i in range(0, size, TILE_ROWS):
        for j in range(i // lanes * lanes, size, lanes):
            add_tile(matrix, i * width + j, width, block, i, width, block, j, width, count)


@compiled
def solve_definite(matrix: Array, x: Array, y: Array, size: int) -> bool:
    """Solves a positive definite system in place by Cholesky, from its upper triangle.

    `size` is a multiple of the lanes. Left of the diagonal, tiles write values that are never read.
    At the end, the diagonal holds the inverse of the diagonal of the triangular factor.
    """
    width = matrix.shape[1]
    lanes = 64 // matrix.itemsize
    least = matrix[0, 0]
    for i in range(1, size):
        least = max(least, matrix[i, i])
    # a pivot below the rounding of the largest diagonal element may be 0
    least *= np.finfo(x.dtype).eps
    for p in range(0, size, TILE_ROWS):
        for j in range(p // lanes * lanes, size, lanes):
            subtract_tile(matrix, p * width + j, width, matrix, p, width, matrix, j, width, p)
        for q in range(p, p + TILE_ROWS):
            if not matrix[q, q] > least:
                return False
            inverse = 1 / np.sqrt(matrix[q, q])
            start = q // lanes * lanes
            for j in range(start, size):
                matrix[q, j] *= inverse
            y[q] = x[q] * inverse
            for j in range(start, size, lanes):
                for r in range(q + 1, p + TILE_ROWS):
                    at, left = r * width + j, q * width + r
                    subtract_row(matrix, at, 0, matrix, left, 0, matrix, q * width + j, 0, 1)
                subtract_row(x, j, 0, y, q, 0, matrix, q * width + j, 0, 1)
            matrix[q, q] = inverse
    for i in range(size):
        x[i] = 0
    for i in range(size - 1, -1, -1):
        start = i // lanes * lanes
        solved = dot(matrix, i * width + start, x, start, (size - start) // lanes)
        x[i] = (y[i] - solved) * matrix[i, i]
    return True


@compiled
def solve_exactly(
    rows: GainRows, shared: Shared, begin: int, end: int, out: Array, scratch: Scratch
) -> int:
    """Solves the rows from `begin` to `end` into `out`; returns the number of singular rows."""
    width = shared.factors.shape[1]
    # One unknown for each positive, or one for each factor, whichever system is smaller; Woodbury's
    # identity has some work more for each positive, and needs all of them in one block.
    few = min(width * 3 // 4, BLOCK)
    failed = 0
    for row in range(begin, end):
        count = rows.indptr[row + 1] - rows.indptr[row]
        definite = _start(rows, shared, row, scratch)
        if count == 0 and rows.scales[row] == 0:
            for k in range(width):
                scratch.rhs[k] = 0
        # without a curvature, positives add nothing to the diagonal
        elif shared.curvature[0] == 0 and shared.curvature[1] == 0:
            _gather_all(rows, shared, row, scratch)
            for k in range(width):
                scratch.rhs[k] /= scratch.diagonal[k] if definite else 1
            failed += not definite
        elif count <= few and definite:
            failed += not _solve_small(rows, shared, row, scratch)
        else:
            failed += not _solve_large(rows, shared, row, scratch)
        for k in range(width):
            out[row - begin, k] = scratch.rhs[k]
    return failed


@compiled
def improve(
    rows: GainRows, shared: Shared, begin: int, end: int, out: Array, scratch: Scratch, steps: int
) -> int:
    """Improves the rows of `out` by conjugate gradient steps; returns the number of singular rows.

    The preconditioner is the diagonal.
    """
    width = shared.factors.shape[1]
    lanes = 64 // shared.factors.itemsize
    direction, product = scratch.direction, scratch.product
    residual, x, diagonal = scratch.rhs, scratch.x, scratch.diagonal
    failed = 0
    for row in range(begin, end):
        definite = _start(rows, shared, row, scratch)
        if rows.indptr[row] == rows.indptr[row + 1] and rows.scales[row] == 0:
            for k in range(width):
                out[row - begin, k] = 0
            continue
        if not definite:
            failed += 1
            continue
        for k in range(width):
            x[k] = out[row - begin, k]
            residual[k] -= diagonal[k] * x[k]
        _add_positives(rows, shared, row, x, residual, True)
        for k in range(width):
            direction[k] = residual[k] / diagonal[k]
        # Preconditioned, the squared residual is r' r / d. From the current value, every step
        # lowers the quadratic: so does a sweep of any number of steps, and few suffice, as sweeps
        # go on.
        norm = dot(residual, 0, direction, 0, width // lanes)
        for _ in range(steps):
            # The row is solved, or its norm is NaN.
            if not norm > 0:
                break
            for k in range(width):
                product[k] = diagonal[k] * direction[k]
            _add_positives(rows, shared, row, direction, product, False)
            step = norm / dot(direction, 0, product, 0, width // lanes)
            for k in range(width):
                x[k] += step * direction[k]
                residual[k] -= step * product[k]
                product[k] = residual[k] / diagonal[k]
            renewed = dot(residual, 0, product, 0, width // lanes)
            for k in range(width):
                direction[k] = product[k] + renewed / norm * direction[k]
            norm = renewed
        for k in range(width):
            out[row - begin, k] = x[k]
    return failed


@compiled
def _add_positives(
    rows: GainRows, shared: Shared, row: int, x: Array, out: Array, is_residual: bool
) -> None:
    """Adds `sum_j q_j y_j y_j' x` of a row, or `sum_j (l_j - q_j y_j' x) y_j`.

    It reads each factor once and where it is, so that rows of any length need no copy.
    """
    width = len(x)
    registers = width // (64 // x.itemsize)
    for at in range(rows.indptr[row], rows.indptr[row + 1]):
        column, gain = rows.indices[at], rows.gains[at]
        weight = rows.weights[row] * rows.column_weights[column]
        score = dot(shared.factors, column * width, x, 0, registers)
        step = weight * (shared.curvature[0] + shared.curvature[1] * gain) * score
        if is_residual:
            step = weight * (shared.slope[0] + shared.slope[1] * gain) - step
        for k in range(width):
            out[k] += step * shared.factors[column, k]


@compiled
def _start(rows: GainRows, shared: Shared, row: int, scratch: Scratch) -> bool:
    """Writes the part of a row without its positives; returns whether it is positive definite."""
    scale, ridge = rows.scales[row], rows.ridges[row]
    width = len(scratch.rhs)
    for k in range(width):
        scratch.diagonal[k] = scale * shared.eigenvalues[k] + ridge
    for k in range(width):
        scratch.rhs[k] = -scale * shared.pull[k]
    # eigenvalues ascend, and a padded column has at least the largest
    least, most = scratch.diagonal[0], scratch.diagonal[width - 1]
    return least > np.finfo(shared.factors.dtype).eps * width * most


@compiled
def _gather(
    rows: GainRows, shared: Shared, row: int, begin: int, end: int, scratch: Scratch
) -> None:
    """Copies the factors of some positives into the block, with their `q_j` and `l_j`."""
    block, curvature, slope = scratch.block, scratch.curvature, scratch.slope
    for at in range(begin, end):
        column, gain = rows.indices[at], rows.gains[at]
        weight = rows.weights[row] * rows.column_weights[column]
        curvature[at - begin] = weight * (shared.curvature[0] + shared.curvature[1] * gain)
        slope[at - begin] = weight * (shared.slope[0] + shared.slope[1] * gain)
        for k in range(block.shape[1]):
            block[at - begin, k] = shared.factors[column, k]


@compiled
def _add_slopes(scratch: Scratch, count: int) -> None:
    """Adds `l_j * y_j` of the gathered positives to `rhs`."""
    rhs, width = scratch.rhs, len(scratch.rhs)
    for k in range(0, width, 64 // rhs.itemsize):
        add_row(rhs, k, 0, scratch.slope, 0, 1, scratch.block, k, width, count)


@compiled
def _gather_all(rows: GainRows, shared: Shared, row: int, scratch: Scratch) -> None:
    """Adds the slopes of a row, and keeps its factors in the block if they fit."""
    last = rows.indptr[row + 1]
    for begin in range(rows.indptr[row], last, BLOCK):
        end = min(begin + BLOCK, last)
        _gather(rows, shared, row, begin, end, scratch)
        _add_slopes(scratch, end - begin)


@compiled
def _solve_small(rows: GainRows, shared: Shared, row: int, scratch: Scratch) -> bool:
    """Solves a row of few positives, with one unknown per positive, by Woodbury's identity.

    With `z_j = sqrt(q_j) * y_j / sqrt(d)`, the columns of `turned`, the solution is
    `(rhs - sum_j sqrt(q_j) * x_j * y_j) / d` where `(I + Z Z') x = Z rhs / sqrt(d)`.
    """
    rhs, root, x, y = scratch.rhs, scratch.root, scratch.x, scratch.y
    block, turned, matrix = scratch.block, scratch.turned, scratch.matrix
    width = len(rhs)
    lanes = 64 // rhs.itemsize
    begin, end = rows.indptr[row], rows.indptr[row + 1]
    count = end - begin
    size = (count + lanes - 1) // lanes * lanes
    _gather(rows, shared, row, begin, end, scratch)
    _add_slopes(scratch, count)
    for k in range(width):
        root[k] = 1 / np.sqrt(scratch.diagonal[k])
        y[k] = root[k] * rhs[k]
    for j in range(count):
        scratch.curvature[j] = np.sqrt(scratch.curvature[j])
        for k in range(width):
            turned[k, j] = scratch.curvature[j] * root[k] * block[j, k]
    for k in range(width):
        for j in range(count, size):
            turned[k, j] = 0
    for i in range(size):
        for j in range(size):
            matrix[i, j] = 0
        matrix[i, i] = 1
        x[i] = 0
    add_gram(matrix, size, turned, width)
    for j in range(0, size, lanes):
        add_row(x, j, 0, y, 0, 1, turned, j, width, width)
    solved = solve_definite(matrix, x, y, size)
    for j in range(count):
        x[j] *= -scratch.curvature[j]
    for k in range(0, width, lanes):
        add_row(rhs, k, 0, x, 0, 1, block, k, width, count)
    for k in range(width):
        rhs[k] /= scratch.diagonal[k]
    return solved


@compiled
def _solve_large(rows: GainRows, shared: Shared, row: int, scratch: Scratch) -> bool:
    """Solves a row of many positives, with one unknown per factor."""
    matrix, rhs = scratch.matrix, scratch.rhs
    width = len(rhs)
    first, last = rows.indptr[row], rows.indptr[row + 1]
    for i in range(width):
        for j in range(width):
            matrix[i, j] = 0
        matrix[i, i] = scratch.diagonal[i]
    for begin in range(first, last, BLOCK):
        end = min(begin + BLOCK, last)
        _gather(rows, shared, row, begin, end, scratch)
        _add_slopes(scratch, end - begin)
        for j in range(end - begin):
            factor = np.sqrt(scratch.curvature[j])
            for k in range(width):
                scratch.block[j, k] *= factor
        add_gram(matrix, width, scratch.block, end - begin)
    return solve_definite(matrix, rhs, scratch.y, width)


@compiled
def sum_positives(
    rows: GainRows,
    users: Array,
    items: Array,
    curvature: tuple[float, float],
    slope: tuple[float, float],
    offset: tuple[float, float],
    begin: int,
    end: int,
) -> float:
    """Sums the terms of the objective for the positives of some users, given their scores."""
    total = 0.0
    for user in range(begin, end):
        loss = 0.0
        for at in range(rows.indptr[user], rows.indptr[user + 1]):
            score, gain = 0.0, rows.gains[at]
            item = rows.indices[at]
            for k in range(users.shape[1]):
                score += users[user, k] * items[item, k]
            loss += offset[0] + offset[1] * gain - (slope[0] + slope[1] * gain) * score
            loss += (curvature[0] + curvature[1] * gain) / 2.0 * score * score
        total += rows.weights[user] * loss
    return total
