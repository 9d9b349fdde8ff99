"""ApproxNDCG with ranks after a sort, against ranks by all pairs, and fast-soft-sort's ranks.

    python -m benchmarks.speed.soft_ranks

Forward and backward on one core, in a plain `tf.function` and under XLA. fast-soft-sort projects on
the permutahedron by isotonic regression, list by list in NumPy and Numba; its rows are ranks alone.
Install it from https://github.com/google-research/fast-soft-sort.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import Call, use_one_core
from tfrank_sel import links, losses
from tfrank_sel.ops import soft_ranks

SHAPES = ((256, 20), (256, 200), (64, 1000), (16, 4000))
PAIRS = rows.Peer("all pairs (Sigmoid)")


def of(
    f: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, upstream: tf.Tensor, jit_compile: bool
) -> Call:
    @tf.function(jit_compile=jit_compile, autograph=False)
    def call(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = f(x)
        return found, tape.gradient(found, x, output_gradients=upstream)

    return functools.partial(call, x)


def fast_soft_sort(x: np.ndarray, upstream: np.ndarray) -> Call:
    from fast_soft_sort.numpy_ops import SoftRank

    def call() -> None:
        for values, slope in zip(x, upstream, strict=True):
            made = SoftRank(values, direction="DESCENDING")
            made.compute()
            made.vjp(slope)

    return call


def found(rounds: int) -> Iterator[rows.Found]:
    random = np.random.default_rng(0)
    for shape in SHAPES:
        scores, slopes = random.normal(size=(2, *shape)).astype(np.float32)
        labels = tf.constant(random.integers(0, 5, shape), tf.float32)
        x, among = tf.constant(scores), tf.ones(shape, tf.bool)
        for jit in (False, True):
            sorted_, pairs = (
                of(functools.partial(losses.ApproxNDCGLoss(link=link), labels), x, 1.0, jit)
                for link in (links.Laplace(), links.Sigmoid())
            )
            case = f"ApproxNDCGLoss(link=Laplace()), {list(shape)}{', XLA' if jit else ''}"
            yield from rows.compare({case: sorted_}, {PAIRS: pairs}, rounds)
        ranks = of(functools.partial(soft_ranks.laplace_ranks, among=among), x, slopes, False)
        makers: Mapping[str, Callable[[], Call]] = {
            "fast-soft-sort": functools.partial(fast_soft_sort, scores, slopes)
        }
        peers, left_out = rows.installed(makers)
        yield from left_out
        yield from rows.compare({f"soft ranks, {list(shape)}": ranks}, peers, rounds)


def main() -> None:
    options = rows.parser(__doc__ or "", rounds=10).parse_args()
    use_one_core()
    rows.show(found(options.rounds), options.json)


if __name__ == "__main__":
    main()
