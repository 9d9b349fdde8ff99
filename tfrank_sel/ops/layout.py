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
import threading
from collections.abc import Iterator
from typing import Literal

import tensorflow as tf

_TERMS_ON_CPU = 2**15  # what operations leave in a cache is there for the next
_TERMS_ON_GPU = 2**24  # 64 MiB of float32, in each of a few arrays if XLA does not fuse them
LISTS = 256  # the assumed batch size if it is known only when the graph runs

_tf32 = threading.RLock()
_device: contextvars.ContextVar[str | None] = contextvars.ContextVar("device", default=None)


def is_wide() -> bool:
    """Whether formulas are traced for a GPU."""
    device = _device.get()
    return bool(tf.config.list_logical_devices("GPU")) if device is None else device == "GPU"


def terms() -> int:
    """The number of terms, such as pairs of items, that are computed at a time."""
    return _TERMS_ON_GPU if is_wide() else _TERMS_ON_CPU


def at_once(shape: tf.TensorShape, each: int | None) -> bool:
    """Whether `each` terms of all items of `[batch_size, list_size]` are computed at a time.

    Keras does not tell the batch size to the functions that it traces. Then `LISTS` count; lists of
    unknown size are not computed at once.
    """
    batch_size, list_size = shape
    if list_size is None or each is None:
        return False
    return (LISTS if batch_size is None else batch_size) * list_size * each <= terms()


@contextlib.contextmanager
def traced_for(device: Literal["CPU", "GPU"]) -> Iterator[None]:
    """Lays out the formulas that are traced inside this context for a device."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


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
