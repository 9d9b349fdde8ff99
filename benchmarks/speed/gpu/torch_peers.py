"""Handwritten and compiled PyTorch peers for some of `jax_peers.PEERS`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.speed.gpu.cases import RATE
from benchmarks.speed.interleaved import Call

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")  # TF32 on a GPU that has it, as XLA does


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of normalised grades."""
    grades = labels.to(scores.dtype)
    targets = grades / grades.sum(-1, keepdim=True).clamp(min=1.0)
    return functional.cross_entropy(scores, targets)


def mlp_step(*arguments: Tensor) -> tuple[Tensor, ...]:
    """A step of the network of `ListScorer` alone, over three copies of the features."""
    *weights, x, labels = arguments

    def loss(weights: Sequence[Tensor]) -> Tensor:
        values = torch.cat([x, x, x], dim=-1)
        *hidden, (kernel, bias) = zip(weights[::2], weights[1::2], strict=True)
        for w, b in hidden:
            values = torch.relu(values @ w + b)
        return cross_entropy((values @ kernel + bias)[..., 0], labels)

    slopes, value = torch.func.grad_and_value(loss)(weights)
    return value, *(w - RATE * g for w, g in zip(weights, slopes, strict=True))


PEERS: dict[str, Callable[..., Any]] = {
    "cross-entropy": torch.func.grad_and_value(cross_entropy),
    "cross-entropy of classes": torch.func.grad_and_value(functional.cross_entropy),
    "MLP step": mlp_step,
}


def queued(name: str, arguments: Sequence[np.ndarray], count: int) -> Call:
    """Makes so many calls of a peer, and waits for them."""
    function = torch.compile(PEERS[name], dynamic=False)
    tensors = [torch.from_numpy(x).to(DEVICE) for x in arguments]

    def call() -> None:
        for _ in range(count):
            function(*tensors)
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return call
