"""Node of the graph of PyTorch for a value whose gradient is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

# from scores, and whether their gradient is needed, to the value and the gradient
Evaluate = Callable[[NDArray[Any], bool], tuple[float, NDArray[Any] | None]]


class Evaluated(torch.autograd.Function):
    """The value of a function of scores, which computes its gradient at the same time."""

    @staticmethod
    def forward(context: Any, scores: Any, evaluate: Evaluate, dtype: str) -> Any:
        """Computes the value and keeps the gradient."""
        given = np.asarray(scores.detach().to(getattr(torch, dtype)))
        value, gradient = evaluate(given, context.needs_input_grad[0])
        if gradient is not None:
            context.save_for_backward(torch.from_numpy(gradient).to(scores))
        return scores.new_tensor(value)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, slope: Any) -> Any:
        """Scales the gradient."""
        (gradient,) = context.saved_tensors
        return slope * gradient, None, None
