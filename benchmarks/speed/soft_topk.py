"""Soft top-k and top-k cross-entropy and difftopk and LapSum's code.

    python -m benchmarks.speed.soft_topk --lapsum CHECKOUT

Forward and backward on one core. The peers need PyTorch: install `torch`, `difftopk` and
`ninja`, and uninstall `triton`, whose LLVM and TensorFlow's do not share a process. CHECKOUT is
one of https://github.com/gmum/LapSum, whose extension for CPUs is compiled here. Its memberships
must equal ours. difftopk sorts the 16 best classes by a bitonic network.
"""

import argparse
import functools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import Call, use_one_core
from benchmarks.speed.topk_competitors import softmax, with_gradient
from tfrank_sel import losses, models

BATCH_SIZE = 128
K = 5
CLASSES = (100, 1000, 10_000)
SHARES = [0.5, 0.0, 0.0, 0.0, 0.5]  # of top 1 to top 5
CLASSES_OF_NETWORK = 16  # of difftopk, which cannot sort thousands


def ours(scores: np.ndarray, upstream: np.ndarray, labels: np.ndarray) -> dict[str, Call]:
    """Our layer and loss, under XLA."""
    layer, loss = models.SoftTopK(K), losses.TopKCrossEntropyLoss([1, K])

    @tf.function(jit_compile=True, autograph=False)
    def select(x: tf.Tensor, slope: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = layer(x)
        return found, tape.gradient(found, x, output_gradients=slope)

    of_labels = with_gradient(functools.partial(_swapped, loss))
    x, slope, y = map(tf.constant, (scores, upstream, labels))
    n = scores.shape[1]
    return {
        f"SoftTopK({K}), {n:,} items": lambda: select(x, slope),
        f"TopKCrossEntropyLoss([1, {K}]), {n:,} items": lambda: of_labels(x, y),
    }


def difftopk(scores: np.ndarray, labels: np.ndarray) -> Call:
    """The loss of difftopk with a bitonic network, the dense one, which needs no other package."""
    import torch
    from difftopk import TopKCrossEntropyLoss

    loss = TopKCrossEntropyLoss(
        "bitonic__non_sparse",
        inverse_temperature=1.0,
        p_k=SHARES,
        n=scores.shape[1],
        m=CLASSES_OF_NETWORK,
        distribution="cauchy",
    )
    x, y = torch.tensor(scores, requires_grad=True), torch.tensor(labels)
    return lambda: loss(x, y).backward()


def lapsum(checkout: pathlib.Path, scores: np.ndarray, upstream: np.ndarray) -> Call:
    """The operator of the authors of LapSum: its forward and backward pass."""
    import torch
    from torch.utils import cpp_extension

    path = checkout / "lapsum/lapsum/topk/cpu/soft_topk.cpp"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / path.name
        # as its setup.py does for newer versions of PyTorch
        source.write_text(path.read_text().replace(".type()", ".scalar_type()"))
        flags = ["-O2", "-fopenmp"]
        made = cpp_extension.load("soft_topk", [str(source)], flags, ["-fopenmp"])
    x, slope = torch.tensor(scores), torch.tensor(upstream)[:, None]
    k = torch.full([len(scores), 1], float(K))

    def call() -> Any:
        output, found = made.forward(x, k, -1.0)
        made.vjp(x, output, slope, -1.0)
        return found

    expected = models.SoftTopK(K)(scores)
    np.testing.assert_allclose(call()[:, 0], expected, atol=1e-5)
    return call


def compare(rounds: int, checkout: pathlib.Path | None) -> Iterator[rows.Found]:
    """Yields a row for each of ours and each peer that does the same."""
    random = np.random.default_rng(0)
    for n in CLASSES:
        scores, upstream = random.standard_normal([2, BATCH_SIZE, n], np.float32)
        labels = random.integers(0, n, BATCH_SIZE)
        select, loss = ours(scores, upstream, labels).items()
        x, y = tf.constant(scores), tf.constant(labels)
        plain = {rows.Peer("softmax cross-entropy"): functools.partial(softmax(), x, y)}
        makers: Mapping[str, Callable[[], Call]] = {
            "difftopk": functools.partial(difftopk, scores, labels)
        }
        peers, left_out = rows.installed(makers)
        yield from left_out
        yield from rows.compare(dict([loss]), plain | peers, rounds)
        authors: dict[rows.Peer, Call] = {}
        if checkout:
            authors[rows.Peer("LapSum's code")] = lapsum(checkout, scores, upstream)
        else:
            yield rows.LeftOut("LapSum's code", "it is given by --lapsum")
        yield from rows.compare(dict([select]), plain | authors, rounds)


def _swapped(loss: losses.ListwiseLoss, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return loss(labels, scores)


def found(options: argparse.Namespace) -> Iterator[rows.Found]:
    """Yields all rows."""
    yield from compare(options.rounds, options.lapsum)


def main() -> None:
    parser = rows.parser(__doc__ or "", rounds=20)
    parser.add_argument("--lapsum", type=pathlib.Path, help="a checkout of LapSum")
    options = parser.parse_args()
    use_one_core()
    try:
        import torch
    except ImportError:
        pass  # named with the peers
    else:
        torch.set_num_threads(1)
    rows.show(found(options), options.json)


if __name__ == "__main__":
    main()
