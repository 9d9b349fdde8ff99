"""Two vector operations for compiled loops, on registers of 64 bytes.

LLVM does not keep a tile of a matrix product in registers by itself, and BLAS calls cost more than
the small systems of one row. Both operations read and write whole registers: arrays are
C-contiguous, and padded to a multiple of `lanes(dtype)`. Positions are flat indices.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

TILE_ROWS = 8  # accumulators in flight: the latency of a multiply-add times two units
_REGISTER_BYTES = 64
_ALIGN = 4  # bytes: positions within an array are not aligned
_FAST = ("contract", "reassoc", "nsz")


def lanes(dtype: Any) -> int:
    """Returns the number of values of a dtype in one register."""
    return _REGISTER_BYTES // np.dtype(dtype).itemsize


def _tile(num_rows: int, sign: int, depth: int = 1) -> Callable[..., None]:
    """Makes `tile(out, at, stride, left, at, stride, right, at, stride, count)`.

    For `r < num_rows` and `c < lanes`,

    ```
    out[r, c] += sign * sum_{m < count} left[m, r] * right[m, c]
    ```

    where each matrix begins at its flat index `at` and has rows `stride` apart. The sum is split
    into `depth` parts, so that additions do not wait for one another.
    """

    @intrinsic
    def tile(
        typing: Any,
        out: Any,
        out_at: Any,
        out_stride: Any,
        left: Any,
        left_at: Any,
        left_stride: Any,
        right: Any,
        right_at: Any,
        right_stride: Any,
        count: Any,
    ) -> Any:
        position = (types.intp, types.intp)
        signature = types.void(out, *position, left, *position, right, *position, types.intp)

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            code = _Code(context, builder, out.dtype)
            to, by, of = (
                code.matrix(kind, *values[first : first + 3])
                for kind, first in ((out, 0), (left, 3), (right, 6))
            )
            sums = [[code.zero() for _ in range(num_rows)] for _ in range(depth)]
            deep = builder.and_(values[9], code.index(-depth))  # a multiple of depth, a power of 2

            def accumulate(m: Any, totals: list[Any]) -> None:
                row = code.load(of, m, 0)
                for r, total in enumerate(totals):
                    product = builder.fmul(code.spread(by, m, r), row, flags=_FAST)
                    builder.store(builder.fadd(builder.load(total), product, flags=_FAST), total)

            with cgutils.for_range_slice(builder, code.index(0), deep, code.index(depth)) as (m, _):
                for d, totals in enumerate(sums):
                    accumulate(builder.add(m, code.index(d)), totals)
            if depth > 1:
                with cgutils.for_range_slice(builder, deep, values[9], code.index(1)) as (m, _):
                    accumulate(m, sums[0])
            add = builder.fadd if sign > 0 else builder.fsub
            for r in range(num_rows):
                value = code.load(to, code.index(r), 0)
                for totals in sums:
                    value = add(value, builder.load(totals[r]), flags=_FAST)
                code.store(value, to, code.index(r))
            return context.get_dummy_value()

        return signature, codegen

    return tile


class _Code:
    """Code shared by both operations: reads and writes of registers."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.context, self.builder = context, builder
        self.scalar = context.get_data_type(dtype)
        self.vector = ir.VectorType(self.scalar, _REGISTER_BYTES * 8 // dtype.bitwidth)

    def matrix(self, kind: Any, array: Any, at: Any, stride: Any) -> tuple[Any, Any]:
        data = self.context.make_array(kind)(self.context, self.builder, array).data
        return self.builder.gep(data, [at]), stride

    def index(self, value: int) -> Any:
        return ir.Constant(ir.IntType(64), value)

    def zero(self) -> Any:
        return cgutils.alloca_once_value(self.builder, ir.Constant(self.vector, None))

    def load(self, matrix: tuple[Any, Any], row: Any, column: int) -> Any:
        pointer = self._pointer(matrix, row, column)
        return self.builder.load(
            self.builder.bitcast(pointer, self.vector.as_pointer()), align=_ALIGN
        )

    def store(self, value: Any, matrix: tuple[Any, Any], row: Any) -> None:
        pointer = self.builder.bitcast(self._pointer(matrix, row, 0), self.vector.as_pointer())
        self.builder.store(value, pointer, align=_ALIGN)

    def spread(self, matrix: tuple[Any, Any], row: Any, column: int) -> Any:
        """Reads one value into all lanes."""
        value = self.builder.load(self._pointer(matrix, row, column))
        none, lane = ir.Constant(self.vector, ir.Undefined), ir.IntType(32)
        first = self.builder.insert_element(none, value, ir.Constant(lane, 0))
        zeros = ir.Constant(ir.VectorType(lane, self.vector.count), None)
        return self.builder.shuffle_vector(first, none, zeros)

    def _pointer(self, matrix: tuple[Any, Any], row: Any, column: int) -> Any:
        data, stride = matrix
        at = self.builder.add(self.builder.mul(row, stride), self.index(column))
        return self.builder.gep(data, [at])


@intrinsic
def dot(typing: Any, left: Any, left_at: Any, right: Any, right_at: Any, count: Any) -> Any:
    """Sums the products of `count` registers of values from two positions."""
    dtype = left.dtype
    signature = dtype(left, types.intp, right, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, dtype)
        stride = code.index(code.vector.count)
        a = code.matrix(left, values[0], values[1], stride)
        b = code.matrix(right, values[2], values[3], stride)
        total = code.zero()
        with cgutils.for_range(builder, values[4]) as loop:
            product = builder.fmul(
                code.load(a, loop.index, 0), code.load(b, loop.index, 0), flags=_FAST
            )
            builder.store(builder.fadd(builder.load(total), product, flags=_FAST), total)
        name = f"llvm.vector.reduce.fadd.v{code.vector.count}f{dtype.bitwidth}"
        kind = ir.FunctionType(code.scalar, [code.scalar, code.vector])
        reduce = cgutils.get_or_insert_function(builder.module, kind, name)
        start = ir.Constant(code.scalar, -0.0)  # adds nothing, not even a sign
        return builder.call(reduce, [start, builder.load(total)], fastmath=_FAST)

    return signature, codegen


add_tile = _tile(TILE_ROWS, +1)
subtract_tile = _tile(TILE_ROWS, -1)
add_row = _tile(1, +1, depth=TILE_ROWS)
subtract_row = _tile(1, -1)
