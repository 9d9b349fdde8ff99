"""RG factorisation compared with implicit: time, growth, memory and descent.

    python -m benchmarks.speed.rg speed [--data DIR]    # a sweep of each, interleaved
        [--factors 64 256 ...] [--only "RG2 CG(3)"]
    python -m benchmarks.speed.rg growth                # time and memory by interactions
    python -m benchmarks.speed.rg descent               # objective of each half-sweep, low rank

DIR holds `movielens/ml-1m.npz` and `gowalla.npz`, each with arrays `user` and `item`; without it,
`speed` takes a million made interactions. It needs the extra `als`, and `implicit` for `speed`. How
good the factors are: `benchmarks/quality/rg.py`.
"""

import argparse
import functools
import itertools
import multiprocessing
import os
import pathlib
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# implicit asks for one BLAS thread; each of our solvers sets its own number
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

from benchmarks.speed import rows
from tfrank_sel.models import als
from tfrank_sel.models.als.solver import Solver

SETS = {"MovieLens-1M": "movielens/ml-1m.npz", "Gowalla": "gowalla.npz"}
FILES = {"MovieLens-100k": "movielens/ml-100k.npz", **SETS}
K = 64
# ours, its steps of conjugate gradients, and whether implicit takes three of them
SWEEPS = (
    ("RG2 exact, implicit exact", als.RG2(0.1), None, False),
    ("RGCross exact, implicit exact", als.RGCross(0.1), None, False),
    ("RG2 exact, implicit CG(3)", als.RG2(0.1), None, True),
    ("RG2 CG(3), implicit CG(3)", als.RG2(0.1), 3, True),
)


def read(data: pathlib.Path, name: str) -> tuple[Any, Any, Any]:
    """Train, validation and test: 80, 10 and 10 of 100 interactions, drawn with a fixed seed."""
    with np.load(data / FILES[name]) as stored:
        user, item = stored["user"], stored["item"]
    part = np.random.default_rng(0).choice(3, len(user), p=[0.8, 0.1, 0.1])
    shape = (user.max() + 1, item.max() + 1)
    ones = np.ones(len(user), np.float32)
    return tuple(
        sp.csr_matrix((ones[part == p], (user[part == p], item[part == p])), shape)
        for p in range(3)
    )


def random_factors(shape: tuple[int, int], width: int = K) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(0.0, 0.1, (count, width)).astype(np.float32) for count in shape]


def our_sweep(
    train: Any, objective: als.Objective, cg: int | None, threads: int, width: int = K
) -> Callable[[], None]:
    counts = [np.maximum(np.diff(m.indptr), 1.0) ** 0.5 for m in (train, train.tocsc())]
    ones = [np.ones(count) for count in train.shape]
    solver = Solver(train, objective, *counts, *ones, cg, threads, "float32")
    users, items = random_factors(train.shape, width)
    return lambda: solver.sweep(users, items)


def implicit_sweep(train: Any, cg: bool, threads: int, width: int) -> Callable[[], None]:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=width, use_cg=cg, num_threads=threads)
    by_item, (users, items) = train.T.tocsr(), random_factors(train.shape, width)

    def sweep() -> None:
        model.solver(train, users, items, 0.01, threads)
        model.solver(by_item, items, users, 0.01, threads)

    return sweep


def speed(arguments: argparse.Namespace) -> Iterator[rows.Found]:
    """Sweeps by the CPU's clock on one thread, by the clock on the wall on more."""
    if arguments.data:
        sets = {name: read(arguments.data, name)[0] for name in SETS}
    else:
        sets = {"a million interactions": random_interactions(10**6)}
    sizes = itertools.product(sets.items(), arguments.factors, arguments.threads)
    for (name, train), width, threads in sizes:
        where = f"{name}, K = {width}, {threads} thread{'s' * (threads > 1)}"
        clock = time.process_time if threads == 1 else time.perf_counter
        for case, objective, steps, cg in SWEEPS:
            if arguments.only not in case:
                continue
            theirs, left_out = rows.installed(
                {"implicit": functools.partial(implicit_sweep, train, cg, threads, width)}
            )
            yield from left_out
            ours = {f"{case}: {where}": our_sweep(train, objective, steps, threads, width)}
            yield from rows.compare(ours, theirs, arguments.rounds, "ms a sweep", clock=clock)


def random_interactions(count: int) -> Any:
    """Twenty interactions a user, of items whose popularity falls like 1 / rank."""
    rng = np.random.default_rng(0)
    num_users, num_items = count // 20, max(1000, count // 40)
    item = np.minimum(np.exp(rng.random(count) * np.log(num_items)), num_items - 1).astype(int)
    user = rng.integers(0, num_users, count)
    matrix = sp.csr_matrix((np.ones(count, np.float32), (user, item)), (num_users, num_items))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def _grown(count: int, results: Any) -> None:
    train = random_interactions(count)
    warm = our_sweep(random_interactions(1000), als.RG2(0.1), None, 1)
    warm()
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sweep = our_sweep(train, als.RG2(0.1), None, 1)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        sweep()
        seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    factors = sum(train.shape) * K * 4
    results.put((train.shape, train.nnz, min(seconds), peak - base, factors, train.nnz * 8))


def growth(_: argparse.Namespace) -> Iterator[str]:
    yield (
        "| interactions | users x items | s/sweep | us/interaction "
        "| peak MB | factors + interactions MB | ratio |"
    )
    context = multiprocessing.get_context("spawn")
    for count in (10**5, 10**6, 10**7):
        results = context.Queue()
        process = context.Process(target=_grown, args=(count, results))
        process.start()
        shape, nnz, seconds, peak, factors, interactions = results.get()
        process.join()
        size = factors + interactions
        yield (
            f"| {nnz} | {shape[0]} x {shape[1]} | {seconds:.3f} | {seconds / nnz * 1e6:.3f} | "
            f"{peak / 1e6:.0f} | {size / 1e6:.0f} | {peak / size:.2f} |"
        )


def low_rank(rng: np.random.Generator) -> tuple[Any, Any]:
    """Scores of five factors, and the tenth of the pairs with the highest scores."""
    scores = rng.normal(size=(500, 5)) @ rng.normal(size=(5, 300))
    return scores, sp.csr_matrix((scores > np.quantile(scores, 0.9)).astype(float))


def descent(_: argparse.Namespace) -> Iterator[str]:
    rng = np.random.default_rng(0)
    _, train = low_rank(rng)
    yield "| objective | " + " | ".join(f"sweep {n}" for n in (1, 5, 10, 20, 40)) + " | rate |"
    for objective in (als.RG2(0.3), als.RGCross(0.3), als.RGCross(0.3, joint=True)):
        counts = [np.asarray(np.maximum(train.sum(axis=a), 1)).ravel() ** 0.5 for a in (1, 0)]
        ones = [np.ones(count) for count in train.shape]
        solver = Solver(train, objective, *counts, *ones, None, 1, "float64")
        users, items = (rng.normal(0.0, 0.1, (count, 5)) for count in train.shape)
        values = []
        for _ in range(600):
            for renew in (solver.renew_users, solver.renew_items):
                renew(users, items)
                values.append(solver.value(users, items))
        assert np.all(np.diff(values) <= 1e-10 * np.abs(values[-1]))
        gaps = np.array(values[1::2]) - values[-1]
        rate = (gaps[40] / gaps[20]) ** (1 / 20)
        shown = " | ".join(f"{gaps[n - 1]:.3g}" for n in (1, 5, 10, 20, 40))
        yield f"| {objective} | {shown} | {rate:.3f} |"


def main() -> None:
    runs = {f.__name__: f for f in (speed, growth, descent)}
    parser = rows.parser(__doc__, rounds=9)
    parser.add_argument("run", choices=runs)
    parser.add_argument("--data", type=pathlib.Path, help="interactions; made, if not given")
    parser.add_argument("--factors", type=int, nargs="+", default=[K])
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    lines = runs[arguments.run](arguments)
    if arguments.run == "speed":
        rows.show(lines, arguments.json)
        return
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
