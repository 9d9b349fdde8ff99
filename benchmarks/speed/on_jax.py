"""Losses on JAX beside those of rax and keras-rs: value and gradient, compiled, on one core.

    make .venv-jax/installed
    KERAS_BACKEND=jax .venv-jax/bin/python -m benchmarks.speed.on_jax

Prints a Markdown table of CPU milliseconds, and of the ratio of ours to the peer's.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras_rs
import numpy as np
import rax

from benchmarks.speed.interleaved import Call, timings, use_one_core
from tfrank_sel import losses

SHAPES = ((64, 120), (256, 200))
ROUNDS = 15

Loss = Callable[[Any, Any], Any]  # of labels and scores


def of_rax(loss: Loss) -> Loss:
    return lambda labels, scores: loss(scores, labels)


# by the name of the peer; ours has the same number up to the divisor of the mean
PAIRS: dict[str, tuple[Loss, Loss]] = {
    "rax.softmax_loss": (losses.SoftmaxLoss(), of_rax(rax.softmax_loss)),
    "rax.poly1_softmax_loss": (losses.PolyOneSoftmaxLoss(), of_rax(rax.poly1_softmax_loss)),
    "rax.unique_softmax_loss": (losses.UniqueSoftmaxLoss(), of_rax(rax.unique_softmax_loss)),
    "rax.listmle_loss": (losses.ListMLELoss(), of_rax(rax.listmle_loss)),
    "rax.pairwise_logistic_loss": (
        losses.PairwiseLogisticLoss(),
        of_rax(rax.pairwise_logistic_loss),
    ),
    "rax.pairwise_hinge_loss": (losses.PairwiseHingeLoss(), of_rax(rax.pairwise_hinge_loss)),
    "keras_rs ListMLELoss": (losses.ListMLELoss(), keras_rs.losses.ListMLELoss()),
    "keras_rs PairwiseLogisticLoss": (
        losses.PairwiseLogisticLoss(),
        keras_rs.losses.PairwiseLogisticLoss(),
    ),
}


def compiled(loss: Loss, labels: Any, scores: Any) -> Call:
    """Returns a call of the compiled value and gradient, which waits for them."""
    step = jax.jit(jax.value_and_grad(lambda *lists: loss(*lists), argnums=1))
    return lambda: jax.block_until_ready(step(labels, scores))


def main() -> None:
    use_one_core()  # before JAX starts its threads
    print("| peer | lists | ours, ms | peer, ms | ratio |\n|---|---|---|---|---|")
    for shape in SHAPES:
        rng = np.random.default_rng(0)
        labels = jnp.asarray(rng.integers(0, 5, shape), jnp.float32)
        scores = jnp.asarray(rng.normal(size=shape), jnp.float32)
        for name, pair in PAIRS.items():
            calls = dict(enumerate(compiled(loss, labels, scores) for loss in pair))
            ours, theirs = (x.seconds for x in timings(calls, ROUNDS).values())
            row = f"{1e3 * ours:.2f} | {1e3 * theirs:.2f} | {ours / theirs:.2f}"
            print(f"| {name} | {list(shape)} | {row} |", flush=True)


if __name__ == "__main__":
    main()
