"""Half-sweeps of alternating least squares in batches of TensorFlow, on any device."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.models.als.rows import Array, GainRows, Shared

_BATCH_VALUES = 1 << 24  # size of the largest array of a batch, unless a single row needs more
_tf32 = threading.RLock()


class BatchedRows:
    """Solves the systems of `rows.py` in batches, each by Cholesky decomposition.

    A batch has rows of similar length, to have little padding, and is as large as the memory for
    gathered factors and matrices allows.

    Args:
        rows: The rows.
        device: Name of the device, such as "GPU:0".
    """

    def __init__(self, rows: GainRows, device: str) -> None:
        self.device = device
        self._counts = np.diff(rows.indptr)
        with tf.device(device):
            self._rows = GainRows(*map(tf.constant, rows))

    def solve(self, shared: Shared, out: Array) -> int:
        """Solves all rows into `out`; returns the number of singular rows."""
        failed = 0
        with tf.device(self.device), without_tf32():
            on_device = tf.nest.map_structure(tf.constant, shared)
            for batch in self._batches(out.shape[1]):
                solved, singular = _solve(self._rows, on_device, tf.constant(batch))
                out[batch] = solved.numpy()
                failed += int(singular)
        return failed

    def _batches(self, width: int) -> Iterator[NDArray[np.int64]]:
        order, begin = np.argsort(-self._counts, kind="stable"), 0
        while begin < len(order):
            longest = int(self._counts[order[begin]])
            end = begin + max(1, _BATCH_VALUES // (width * max(width, longest)))
            yield order[begin:end]
            begin = end


@tf.function(reduce_retracing=True, autograph=False)
def _solve(rows: Any, shared: Any, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the solutions of some rows, and the number of rows without a solution."""
    first, last = tf.gather(rows.indptr, batch), tf.gather(rows.indptr, batch + 1)
    places = first[:, None] + tf.range(tf.reduce_max(last - first))
    valid = places < last[:, None]
    places = tf.where(valid, places, tf.zeros_like(places))
    columns, gains = tf.gather(rows.indices, places), tf.gather(rows.gains, places)
    weights = tf.gather(rows.weights, batch)[:, None] * tf.gather(rows.column_weights, columns)
    weights = tf.where(valid, weights, tf.zeros_like(weights))
    factors = tf.gather(shared.factors, columns)
    slopes = weights * (shared.slope[0] + shared.slope[1] * gains)
    scales, ridges = tf.gather(rows.scales, batch), tf.gather(rows.ridges, batch)
    rhs = tf.linalg.matvec(factors, slopes, transpose_a=True) - scales[:, None] * shared.pull
    diagonal = scales[:, None] * shared.eigenvalues + ridges[:, None]
    empty = (first == last) & (scales == 0.0)  # their solution is 0 for any ridge
    diagonal = tf.where(empty[:, None], tf.ones_like(diagonal), diagonal)
    curvatures = weights * (shared.curvature[0] + shared.curvature[1] * gains)
    scaled = tf.sqrt(curvatures)[:, :, None] * factors
    matrix = tf.matmul(scaled, scaled, transpose_a=True)
    matrix = tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + diagonal)
    triangle = tf.linalg.cholesky(matrix)
    most = tf.reduce_max(tf.linalg.diag_part(matrix), axis=-1, keepdims=True)
    rounding = tf.cast(tf.shape(factors)[2], factors.dtype)  # fits may differ in their widths
    rounding *= np.finfo(factors.dtype.as_numpy_dtype).eps
    # NaN, for a matrix without a Cholesky factor, is not above it either
    definite = tf.reduce_all(tf.square(tf.linalg.diag_part(triangle)) > rounding * most, axis=-1)
    solution = tf.linalg.cholesky_solve(triangle, rhs[:, :, None])[:, :, 0]
    return solution, tf.math.count_nonzero(~definite)


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Multiplies float32 matrices on a GPU in float32: TF32 has 11 bits, an error of 1e-3.

    TensorFlow has one switch for the process, which is as before at the end. One thread at a time
    is inside this context.
    """
    with _tf32:
        enabled = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(enabled)
