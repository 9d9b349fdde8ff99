"""Layout of formulas by device: blocks that stay in a CPU's cache, or wide operations for a GPU.

A formula has equal values in both layouts, up to rounding. On a CPU, a loop over blocks or items
is faster than operations on arrays that leave the cache. On a GPU, each step of a loop waits for
the last one, and arrays of millions of numbers keep the device busy: what fits into `terms()` is
one operation.

The layout is fixed when TensorFlow traces a function. Neither a graph nor XLA tells a trace for
which device it will be compiled, so that it is that of a GPU if TensorFlow has one in this process.
`traced_for` names the device where this is wrong: to lower a program for another machine, or to
trace one for the CPU of a machine with a GPU.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Literal

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor

_TERMS_ON_CPU = 2**15  # what operations leave in a cache is there for the next
_TERMS_ON_GPU = 2**24  # 64 MiB of float32, in each of a few arrays if XLA does not fuse them
LISTS = 256  # the assumed batch size if it is known only when the graph runs

_device: contextvars.ContextVar[str | None] = contextvars.ContextVar("device", default=None)


def is_wide() -> bool:
    """Whether formulas are traced for a GPU."""
    device = _device.get()
    return xp.has_gpu() if device is None else device == "GPU"


def terms() -> int:
    """The number of terms, such as pairs of items, that are computed at a time."""
    return _TERMS_ON_GPU if is_wide() else _TERMS_ON_CPU


def at_once(shape: xp.TensorShape, each: int | None) -> bool:
    """Whether `each` terms of all items of `[batch_size, list_size]` are computed at a time.

    Keras does not tell the batch size to the functions that it traces. Then `LISTS` count; lists of
    unknown size are not computed at once.
    """
    batch_size, list_size = shape
    if list_size is None or each is None:
        return False
    return (LISTS if batch_size is None else batch_size) * list_size * each <= terms()


def in_blocks(
    function: Callable[..., tuple[Tensor, ...]],
    *lists: Tensor,
    rows: int | Tensor,
    to: list[xp.TensorSpec],
) -> tuple[Tensor, ...]:
    """Calls a function of the lists of a batch on blocks of them.

    Args:
        function: Maps a block of each argument to tensors.
        *lists: Arguments per list, the first of them `[batch_size, list_size]`.
        rows: Maximum number of lists in a block.
        to: Each result of the function, of any number of lists.

    Returns:
        The results for the whole batch.
    """
    batch_size, list_size = lists[0].shape
    known = LISTS if batch_size is None and is_wide() and list_size is not None else batch_size
    if isinstance(rows, int) and known is not None and known <= rows:
        return function(*lists)
    if batch_size is None:
        batch_size = xp.shape(lists[0])[0]
        rows = xp.clip_by_value(batch_size, 1, rows)

    # A loop of no block has no shapes.
    count = xp.maximum(-(-batch_size // rows), 1)
    missing = count * rows - batch_size

    def split(y: Tensor) -> Tensor:
        ends = [[0, missing]] + [[0, 0]] * (xp.rank(y) - 1)
        blocks = xp.reshape(xp.pad(y, ends), [count, rows, *xp.unstack(xp.shape(y)[1:])])
        return xp.ensure_shape(blocks, [None, None, *y.shape[1:]])

    results = xp.map_fn(
        lambda block: function(*block), tuple(map(split, lists)), fn_output_signature=tuple(to)
    )
    return tuple(
        xp.ensure_shape(
            xp.reshape(y, xp.concat([[count * rows], xp.shape(y)[2:]], 0))[:batch_size], spec.shape
        )
        for y, spec in zip(results, to, strict=True)
    )


@contextlib.contextmanager
def traced_for(device: Literal["CPU", "GPU"]) -> Iterator[None]:
    """Lays out the formulas that are traced inside this context for a device."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)
