"""Formulas as plain graphs: shared by equal objects in eager mode, part of the caller's in a graph.

A graph is a function of its arguments alone. It knows their ranks, and no size of a list, so that
it does not depend on the first call; and it holds no object that may change.

XLA compiles a formula if it compiles the caller.
"""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor

Formula = Callable[..., Tensor]  # of labels, scores, ...: the gradient is that in the scores
F = TypeVar("F", bound=Callable[..., Any])

# weak: a graph goes with the last object that runs it
_in_use: weakref.WeakValueDictionary[Hashable, Callable[..., Any]]
_in_use = weakref.WeakValueDictionary()


def in_graph(key: Hashable | None, function: F, made: Callable[..., Any] = xp.graph_of_lists) -> F:
    """Runs a function of tensors in the graph of the caller; in eager mode, as a graph of its own.

    Args:
        key: In eager mode, functions of equal keys share a graph, as long as it is in use. `None`
            for a function that reads what may change: it runs without a graph.
        function: The function.
        made: Makes the graph: `graph_of_lists` or `differentiable`.
    """
    bare = xp.entry_point(function)
    if key is None:
        return bare

    def run(*arguments: Any) -> Any:
        return graph(*arguments) if xp.executing_eagerly() else bare(*arguments)

    graph = _in_use.get(key) or made(function)
    _in_use[key] = graph
    return run  # type: ignore[return-value]
