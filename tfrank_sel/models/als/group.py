"""Process groups of a factorisation, each process with a block of users and one of items."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.arguments import Checked

Array: TypeAlias = NDArray[Any]
Indices: TypeAlias = NDArray[np.int64] | slice

_ALL = slice(None)


class Group(Checked, abc.ABC):
    """Processes that solve one problem; each calls the same methods in the same order.

    Attributes:
        rank: Index of this process, from 0.
        size: Number of processes.
    """

    rank: int
    size: int

    @abc.abstractmethod
    def total(self, values: Array) -> Array:
        """Returns the sum of the arrays of all processes, which have the same shape."""

    @abc.abstractmethod
    def gathered(self, rows: Array, needed: Indices = _ALL) -> Array:
        """Returns rows of all processes in their order, at the given increasing indices."""

    @abc.abstractmethod
    def compact(self, matrix: Any) -> tuple[Any, Indices]:
        """Drops the empty columns of a CSR matrix; returns the indices of the others."""

    @abc.abstractmethod
    def transposed(self, matrix: Any) -> Any:
        """Returns this process's block of columns of a CSR matrix, as rows.

        Args:
            matrix: This process's block of rows, with all columns.
        """

    def first(self, values: Array) -> Array:
        """Returns the array of the first process."""
        return self.total(values if self.rank == 0 else np.zeros_like(values))

    def block(self, count: int) -> slice:
        """Returns the rows of this process if rows are distributed evenly."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)


class SingleProcess(Group):
    """A single process."""

    rank = 0
    size = 1

    def total(self, values: Array) -> Array:
        return values

    def gathered(self, rows: Array, needed: Indices = _ALL) -> Array:
        return rows[needed]

    def compact(self, matrix: Any) -> tuple[Any, Indices]:
        return matrix, _ALL  # avoids a copy

    def transposed(self, matrix: Any) -> Any:
        return matrix.T.tocsr()


class CollectiveGroup(Group):
    """The workers of a TensorFlow cluster, described by `TF_CONFIG`.

    The collectives are those of `tf.distribute.MultiWorkerMirroredStrategy`: rings over gRPC, or
    NCCL between GPUs. Create it before TensorFlow runs anything else in the process. For the
    resources of large problems, see `docs/scale.md`.

    Collectives were faster than one Beam pipeline per half-sweep in measurements
    (`benchmarks/speed/als_sharded.py exchange`). A process keeps its interactions and factors in
    memory between half-sweeps, so that only factors are exchanged. Beam would read the interactions
    and start its workers again.

    Args:
        piece_bytes: Number of bytes that all processes together send at a time, which bounds the
            memory for copies.

    Raises:
        ValueError: If a process has more than one replica.
    """

    def __init__(self, piece_bytes: int = 1 << 26) -> None:
        self.piece_bytes = piece_bytes
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        resolver = self._strategy.cluster_resolver
        workers = resolver.cluster_spec().as_dict().get("worker", ["this"])
        self.rank = resolver.task_id or 0
        self.size = self._strategy.num_replicas_in_sync
        if self.size != len(workers):
            raise ValueError(
                "Each process must have exactly one replica: make one GPU visible to it. "
                f"Received: {self.size} replicas of {len(workers)} processes"
            )
        self._sum = self._compiled(_sum, tf.float64)
        self._concatenated = self._compiled(_concatenation, tf.float32)

    def total(self, values: Array) -> Array:
        values = np.asarray(values)
        summed = self._sum(values.astype(np.float64).ravel()).numpy()
        return summed.reshape(values.shape).astype(values.dtype)

    def gathered(self, rows: Array, needed: Indices = _ALL) -> Array:
        counts = self._each(np.array([len(rows)]))[:, 0]
        ends = np.cumsum(counts)
        wanted = np.arange(ends[-1])[needed]
        out = np.empty((len(wanted), *rows.shape[1:]), rows.dtype)
        for at, parts in self._pieces(rows, counts):
            for begin, part in zip(ends - counts + at, parts, strict=True):
                low, high = np.searchsorted(wanted, (begin, begin + len(part)))
                out[low:high] = part[wanted[low:high] - begin]
        return out

    def compact(self, matrix: Any) -> tuple[Any, Indices]:
        columns, indices = np.unique(matrix.indices, return_inverse=True)
        shape = (matrix.shape[0], len(columns))
        return sp.csr_matrix((matrix.data, indices, matrix.indptr), shape), columns

    def transposed(self, matrix: Any) -> Any:
        counts = self._each(np.array([matrix.nnz, matrix.shape[0]]))
        own = self.block(matrix.shape[1])
        pairs = matrix.tocoo()
        rows = pairs.row + counts[: self.rank, 1].sum()
        triples = np.stack([rows, pairs.col, pairs.data], axis=1, dtype=np.float64)  # exactly
        kept = [np.empty((0, 3))]
        for _, parts in self._pieces(triples, counts[:, 0]):
            kept += [part[(part[:, 1] >= own.start) & (part[:, 1] < own.stop)] for part in parts]
        row, column, data = np.concatenate(kept).T
        positions = (column.astype(np.int64) - own.start, row.astype(np.int64))
        shape = (own.stop - own.start, counts[:, 1].sum())
        return sp.csr_matrix((data.astype(matrix.dtype), positions), shape)

    def _pieces(self, rows: Array, counts: NDArray[np.int64]) -> Iterator[tuple[int, list[Array]]]:
        """Yields the start of a piece in each process's rows, and the piece of each process."""
        bytes_of_all = self.size * rows.itemsize * int(np.prod(rows.shape[1:]))
        step = max(1, self.piece_bytes // bytes_of_all)
        for begin in range(0, counts.max(), step):
            lengths = np.clip(counts - begin, 0, step)
            piece = np.zeros((lengths.max(), *rows.shape[1:]), rows.dtype)
            piece[: lengths[self.rank]] = rows[begin : begin + step]
            parts = self._each(piece)
            yield begin, [part[:length] for part, length in zip(parts, lengths, strict=True)]

    def _each(self, values: Array) -> Array:
        """Returns the stacked arrays of all processes, which have the same shape."""
        words = self._concatenated(values.ravel().view(np.float32)).numpy()  # of any dtype
        return words.view(values.dtype).reshape(self.size, *values.shape)

    def _compiled(self, collective: Callable[[tf.Tensor], tf.Tensor], dtype: tf.DType) -> Any:
        """Makes a function for any length: a retrace in one process would block the others."""
        return tf.function(
            lambda values: self._strategy.run(collective, (values,)),
            input_signature=[tf.TensorSpec([None], dtype)],
        )


def _sum(values: tf.Tensor) -> tf.Tensor:
    # the identity is on a device, as a collective needs
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(values))


def _concatenation(values: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_gather(tf.identity(values), axis=0)
