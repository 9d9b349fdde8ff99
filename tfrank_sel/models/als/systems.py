"""What the compiled loops read and write: rows in compressed form, and scratch arrays."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[np.floating]

# Nothing compiled allocates; without Numba's runtime nothing counts references either, which would
# cost more than a short row does. A division by zero gives an infinity and no branch.
compiled = njit(
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "nsz", "arcp", "reassoc"},
    _nrt=False,
)

BLOCK = 128  # rows of gathered factors, which the nearest cache holds
LONGEST = 512  # rows that conjugate gradients go over again and again, which the next one holds


class Rows(NamedTuple):
    """The rows of a half-sweep, in compressed form.

    Attributes:
        indptr: Where the positives of each row begin, `[num_rows + 1]`.
        indices: The columns of the positives.
        gains: The gains of the positives, above 0.
        weights: Weight of each row's positives, `[num_rows]`.
        column_weights: Weight of each column's positives, `[num_columns]`.
        scales: How much of the shared matrix each row takes, `[num_rows]`.
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
    """What all rows of a half-sweep share.

    Attributes:
        factors: The fixed factors in the eigenbasis, columns padded to whole registers.
        eigenvalues: Those of the shared matrix, as many as columns.
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
    """What the solution of one row writes over, made once a thread."""

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
        """Makes the arrays for rows of some width."""
        row, block = (width,), (LONGEST, width)
        longest = (max(LONGEST, width),)
        square = (width, width)
        shapes = [row] * 4 + [longest] * 3 + [block, square, square] + [row] * 2
        return cls(*(np.empty(shape, dtype) for shape in shapes))
