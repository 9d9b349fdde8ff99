"""Block-wise evaluation of functions of lists."""

from collections.abc import Callable

import tensorflow as tf

SCORES = 450_000  # numbers per block, so that inputs and intermediate results stay in cache
UNKNOWN_SIZE = 1024  # the assumed list size if it is known only when the graph runs

Shape = tuple[int, ...]


def in_blocks(
    function: Callable[..., tuple[tf.Tensor, ...]], x: tf.Tensor, *more: tf.Tensor, to: list[Shape]
) -> tuple[tf.Tensor, ...]:
    """Calls a function of the lists of a batch on blocks of them.

    Args:
        function: Maps a block of each argument to tensors of the dtype of `x`.
        x: The lists, `[batch_size, list_size]`.
        *more: Further arguments per list, `[batch_size]`.
        to: Shape of each result of the function for one list.

    Returns:
        The results for the whole batch.
    """
    rows: int | tf.Tensor = _power_of_two(max(SCORES // (x.shape[1] or UNKNOWN_SIZE), 1))
    batch_size = x.shape[0]
    if batch_size is not None and batch_size <= rows:
        return function(x, *more)
    if batch_size is None:
        batch_size = tf.shape(x)[0]
        rows = tf.clip_by_value(batch_size, 1, rows)

    def split(y: tf.Tensor) -> tf.Tensor:
        ends = [[0, -batch_size % rows]] + [[0, 0]] * (y.shape.rank - 1)
        return tf.reshape(tf.pad(y, ends), [-1, rows, *tf.unstack(tf.shape(y)[1:])])

    results = tf.map_fn(
        lambda block: function(*block),
        tuple(split(y) for y in (x, *more)),
        fn_output_signature=tuple(tf.TensorSpec([None, *shape], x.dtype) for shape in to),
    )
    return tuple(
        tf.reshape(y, [-1, *shape])[:batch_size] for y, shape in zip(results, to, strict=True)
    )


def _power_of_two(x: int) -> int:
    """The largest power of two up to `x`, the size of blocks."""
    return 1 << (x.bit_length() - 1)
