"""Formulas as plain graphs: shared by equal objects in eager mode, part of the caller's in a graph.

A graph is a function of its arguments alone. It knows their ranks, and no size of a list, so that
it does not depend on the first call; and it holds no object that may change.

XLA compiles a formula if it compiles the caller.
"""

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow import Tensor

Formula = Callable[..., Tensor]  # of labels, scores, ...: the gradient is that in the scores
F = TypeVar("F", bound=Callable[..., Any])

# AutoGraph reads what a user's `tf.function` calls, and warns of syntax that it does not know. It
# need not read what has no control flow of tensors.
unconverted: Callable[[F], F] = tf.autograph.experimental.do_not_convert

# weak: a graph goes with the last object that runs it
_in_use: weakref.WeakValueDictionary[Hashable, Callable[..., Any]]
_in_use = weakref.WeakValueDictionary()


def graph(function: F) -> F:
    """Makes a graph of a function, which is traced again for few shapes."""
    return tf.function(_counted_apart(function), reduce_retracing=True, autograph=False)


def _counted_apart(function: F) -> F:
    """TensorFlow counts the retracings of each partial separately.

    Otherwise all formulas would share one count, and a few of them would raise a warning.
    """
    return functools.partial(function)  # type: ignore[return-value]


def graph_of_lists(function: F) -> F:
    """Makes a graph of a function of lists, `[batch_size, list_size, ...]`, of any size.

    A loop of a user sees many sizes: the trace of the second would take longer than the first.
    """
    traces: dict[Hashable, Callable[..., Any]] = {}

    def run(*arguments: Any) -> Any:
        flat = tf.nest.flatten(arguments)
        # what is no tensor is a part of the structure, such as a cut-off
        kinds = tuple(_of_any_size(x) if tf.is_tensor(x) else x for x in flat)
        if kinds not in traces:
            traces[kinds] = _trace(function, tf.nest.pack_sequence_as(arguments, kinds))
        return traces[kinds](*filter(tf.is_tensor, flat))

    return run  # type: ignore[return-value]


def _trace(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Makes a graph of the tensors among the arguments, of which there are the types."""
    leaves = tf.nest.flatten(arguments)

    def of_tensors(*tensors: Tensor) -> Any:
        rest = iter(tensors)
        whole = [next(rest) if isinstance(x, tf.TensorSpec) else x for x in leaves]
        return function(*tf.nest.pack_sequence_as(arguments, whole))

    types = [x for x in leaves if isinstance(x, tf.TensorSpec)]
    return tf.function(_counted_apart(of_tensors), types, autograph=False)


def _of_any_size(x: Tensor) -> tf.TensorSpec:
    """The type of a tensor of lists, but for their number and size."""
    return tf.TensorSpec([None, None, *x.shape[2:]][: x.shape.rank], x.dtype)


def in_graph(key: Hashable | None, function: F, made: Callable[..., Any] = graph_of_lists) -> F:
    """Runs a function of tensors in the graph of the caller; in eager mode, as a graph of its own.

    Args:
        key: In eager mode, functions of equal keys share a graph, as long as it is in use. `None`
            for a function that reads what may change: it runs without a graph.
        function: The function.
        made: Makes the graph: `graph_of_lists` or `differentiable`.
    """
    bare = unconverted(function)
    if key is None:
        return bare

    def run(*arguments: Any) -> Any:
        return graph(*arguments) if tf.executing_eagerly() else bare(*arguments)

    graph = _in_use.get(key) or made(function)
    _in_use[key] = graph
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

    value, gradient = graph_of_lists(formula), graph_of_lists(pull_back)

    @tf.custom_gradient
    def of_fields(*fields: Tensor) -> tuple[Tensor, object]:
        # hidden from a tape outside, which would record the formula and differentiate its loops
        values = value(*map(tf.stop_gradient, fields))
        others = [None] * (len(fields) - 2)
        return values, lambda upstream: (None, gradient(*fields, upstream), *others)

    return of_fields
