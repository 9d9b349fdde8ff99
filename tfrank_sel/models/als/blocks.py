"""Blocks of a sparse matrix, one for each process of a group."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from tfrank_sel.distribution.groups import Group, Indices


def compact(matrix: Any, group: Group) -> tuple[Any, Indices]:
    """Drops the empty columns of a CSR matrix; returns the indices of the others."""
    if group.size == 1:
        return matrix, slice(None)  # avoids a copy
    columns, indices = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(columns))
    return sp.csr_matrix((matrix.data, indices, matrix.indptr), shape), columns


def transposed(matrix: Any, group: Group) -> Any:
    """Returns this process's block of columns of a CSR matrix, as rows.

    Args:
        matrix: This process's block of rows, with all columns.
        group: The processes.
    """
    if group.size == 1:
        return matrix.T.tocsr()
    rows_of = group.gathered(np.array([matrix.shape[0]]))
    own = group.block(matrix.shape[1])
    pairs = matrix.tocoo()
    rows = pairs.row + rows_of[: group.rank].sum()
    triples = np.stack([rows, pairs.col, pairs.data], axis=1, dtype=np.float64)  # exactly
    kept = [np.empty((0, 3))]
    for _, parts in group.pieces(triples):
        kept += [part[(part[:, 1] >= own.start) & (part[:, 1] < own.stop)] for part in parts]
    row, column, data = np.concatenate(kept).T
    positions = (column.astype(np.int64) - own.start, row.astype(np.int64))
    shape = (own.stop - own.start, rows_of.sum())
    return sp.csr_matrix((data.astype(matrix.dtype), positions), shape)
