"""Compilation of formulas by XLA, for few shapes and once for equal objects."""

import functools
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel import stack

Formula = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
F = TypeVar("F", bound=Callable[..., object])

# Sizes to which the axes of a batch are padded: powers of two for its lists. For the items of a #
# list, on which the time of a loss may depend quadratically, also one size between two powers.
BATCH_SIZES = 2 ** np.arange(3, 31, dtype=np.int32)
LIST_SIZES = np.sort(np.concatenate([BATCH_SIZES, BATCH_SIZES // 2 * 3]))

_in_use: weakref.WeakValueDictionary[Hashable, Callable[..., object]]
_in_use = weakref.WeakValueDictionary()


def shared(key: Hashable, make: Callable[[], F]) -> F:
    """Returns the result of `make`: the same function for equal keys, as long as it is in use."""
    function = _in_use.get(key)
    if function is None:
        function = _in_use[key] = make()
    return function  # type: ignore[return-value]


def jit(function: F) -> F:
    """Compiles a function with XLA."""
    # TensorFlow counts the retracings of each partial separately. Otherwise all formulas would
    # share # one count, and a few of them in one model would raise a warning.
    own = functools.partial(function)
    return tf.function(own, jit_compile=True, reduce_retracing=True, autograph=False)


def under_xla(formula: Formula, padding: float | None) -> Formula:
    """Compiles a formula of labels, scores, mask and weights; gradients flow to the scores.

    XLA compiles each shape separately, so axes are padded by `round_up`.

    Args:
        formula: The formula, which returns a number for each list.
        padding: The label and score of padding. `None` for a formula whose value depends on padding
            or on other lists: it is compiled for each shape.
    """
    if padding is None:
        return _in_two_passes(formula)
    differentiable = _in_one_pass(formula)

    def compiled(*fields: tf.Tensor) -> tf.Tensor:
        return differentiable(*round_up(fields, padding))[: tf.shape(fields[1])[0]]

    return compiled


def round_up(fields: Sequence[tf.Tensor], padding: float) -> list[tf.Tensor]:
    """Pads a batch to one of `BATCH_SIZES` lists, of one of `LIST_SIZES` items.

    A graph with a static size keeps it, because it was traced for that size only. So does a graph
    that XLA compiles, because it is compiled for each size anyway.

    Args:
        fields: Labels, scores, mask and weights, `[batch_size, list_size, ...]`. If the second axes
            differ, because a label is a class index, they are kept.
        padding: The label and score of padding.
    """
    if stack.is_compiled_by_xla():
        return list(fields)
    more = [_missing(fields, *axis) for axis in enumerate((BATCH_SIZES, LIST_SIZES))]
    fills = (padding, padding, False, 0.0)
    return [_padded(x, more, fill) for x, fill in zip(fields, fills, strict=True)]


def _missing(fields: Sequence[tf.Tensor], axis: int, sizes: NDArray[np.int32]) -> int | tf.Tensor:
    """Computes the number of slots to add to an axis to reach the next of `sizes`."""
    size = fields[1].shape[axis]
    if any(x.shape[axis] != size for x in fields):
        return 0
    if size is None:
        size = tf.shape(fields[1])[axis]
        return tf.gather(sizes, tf.searchsorted(sizes, [size])[0]) - size
    return int(sizes[np.searchsorted(sizes, size)]) - size if tf.executing_eagerly() else 0


def _padded(x: tf.Tensor, more: Sequence[int | tf.Tensor], fill: float) -> tf.Tensor:
    cut, kept = x.shape[: len(more)], x.shape[len(more) :]
    shape = (n if isinstance(m, int) and m == 0 else None for n, m in zip(cut, more, strict=True))
    x = tf.pad(x, [*([0, m] for m in more), *([0, 0] for _ in kept)], constant_values=fill)
    x.set_shape([*shape, *kept])
    return x


def _pull_back(formula: Formula) -> Callable[..., tf.Tensor]:
    """Makes the function that computes the gradient from the fields and the upstream gradient."""

    def gradient(*args: tf.Tensor) -> tf.Tensor:
        *fields, upstream = args
        with tf.GradientTape() as tape:
            tape.watch(fields[1])
            values = formula(*fields)
        return tape.gradient(values, fields[1], upstream)

    return gradient


def _unwatched(*fields: tf.Tensor) -> Iterator[tf.Tensor]:
    """Hides tensors from tapes, which would compile everything that a gradient may need."""
    return map(tf.stop_gradient, fields)


def _in_two_passes(formula: Formula) -> Formula:
    """Computes the formula again for the gradient.

    The gradient is a separate function, and an XLA-compiled caller merges the two. TensorFlow's own
    gradient would pass shapes between the two halves as values. XLA treats such values as constants
    and would compile at every step.
    """
    value, gradient = jit(formula), jit(_pull_back(formula))

    @tf.custom_gradient
    def differentiable(*fields: tf.Tensor) -> tuple[tf.Tensor, object]:
        values = value(*_unwatched(*fields))
        return values, lambda upstream: (None, gradient(*fields, upstream), None, None)

    return differentiable


def _in_one_pass(formula: Formula) -> Formula:
    """Computes the gradient together with the value, even if it is not used.

    Together they take little longer than the gradient alone, to compile and to run. The value of a
    list must not depend on other lists.
    """
    gradient = _pull_back(formula)

    @jit
    def value_and_slopes(*fields: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(fields[1])
            values = formula(*fields)
        return values, tape.gradient(values, fields[1])

    @tf.custom_gradient
    def pulled(*args: tf.Tensor) -> tuple[tf.Tensor, object]:
        *fields, upstream, slopes = args

        def again(seed: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            with tf.GradientTape() as tape:
                tape.watch([fields[1], upstream])
                along = gradient(*fields, upstream)
            in_scores, in_upstream = tape.gradient(along, [fields[1], upstream], seed)
            return None, in_scores, None, None, in_upstream, None

        ones = [1] * (len(slopes.shape) - 1)
        return tf.reshape(upstream, [-1, *ones]) * slopes, again

    @tf.custom_gradient
    def differentiable(*fields: tf.Tensor) -> tuple[tf.Tensor, object]:
        values, slopes = value_and_slopes(*_unwatched(*fields))

        def pull(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            # the tensors of `again` must be in the graph of the gradient
            here = map(tf.identity, (*fields, upstream, slopes))
            return None, pulled(*here), None, None

        return values, pull

    return differentiable
