"""Arrays of the compiled loops: rows in compressed form, and scratch arrays."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[np.floating]

# Compiled code does not allocate. Without Numba's runtime it does not count references either, #
# which would cost more than a short row. A division by zero gives an infinity without a branch.
compiled = njit(
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp", "reassoc"},
    _nrt=False,
)

BLOCK = 128  # rows of gathered factors that fit the first-level cache


class Rows(NamedTuple):
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
