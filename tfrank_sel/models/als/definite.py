"""Gram matrices and positive definite systems that fit the first-level cache."""

import numpy as np

from tfrank_sel.models.als.systems import Array, compiled
from tfrank_sel.models.als.vectors import TILE_ROWS, add_tile, dot, subtract_row, subtract_tile


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
        known = dot(matrix, i * width + start, x, start, (size - start) // lanes)
        x[i] = (y[i] - known) * matrix[i, i]
    return True
