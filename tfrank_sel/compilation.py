"""Formulas as plain graphs: shared by equal objects in eager mode, part of the caller's in a graph.

XLA compiles a formula if it compiles the caller.
"""

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow import Tensor

Formula = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
F = TypeVar("F", bound=Callable[..., Any])

# AutoGraph reads what a user's `tf.function` calls, and warns of syntax that it does not know. It
# need not read what has no control flow of tensors.
unconverted: Callable[[F], F] = tf.autograph.experimental.do_not_convert

# weak: a graph goes with the last object that runs it
_in_use: weakref.WeakValueDictionary[Hashable, Callable[..., Any]]
_in_use = weakref.WeakValueDictionary()


def graph(function: F) -> F:
    """Makes a graph of a function, which is traced again for few shapes."""
    # TensorFlow counts the retracings of each partial separately. Otherwise all formulas would
    # share one count, and a few of them in one model would raise a warning.
    own = functools.partial(function)
    return tf.function(own, reduce_retracing=True, autograph=False)


def in_graph(key: Hashable, function: F, made: Callable[..., Any] = graph) -> F:
    """Runs a function of tensors in the graph of the caller; in eager mode, as a graph of its own.

    Args:
        key: In eager mode, functions of equal keys share a graph, as long as it is in use.
        function: The function.
        made: Makes the graph: `graph` or `differentiable`.
    """
    bare = unconverted(function)

    def run(*arguments: Any) -> Any:
        return own(*arguments) if tf.executing_eagerly() else bare(*arguments)

    own = _in_use.get(key) or made(function)
    _in_use[key] = own
    return run  # type: ignore[return-value]


def differentiable(formula: Formula) -> Formula:
    """Makes two graphs: of a formula, and of the formula with its gradient in the scores.

    TensorFlow's own gradient of the first has no gradient of its own if a custom gradient in it
    uses other tensors of the graph.
    """

    def pull_back(*arguments: Tensor) -> Tensor:
        *fields, upstream = arguments
        with tf.GradientTape() as tape:
            tape.watch(fields[1])
            values = formula(*fields)
        return tape.gradient(values, fields[1], upstream)

    value, gradient = graph(formula), graph(pull_back)

    @tf.custom_gradient
    def of_fields(*fields: Tensor) -> tuple[Tensor, object]:
        # hidden from a tape outside, which would record the formula and differentiate its loops
        values = value(*map(tf.stop_gradient, fields))
        return values, lambda upstream: (None, gradient(*fields, upstream), None, None)

    return of_fields
