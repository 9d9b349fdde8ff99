"""RG factorisation on several processes: cost of an exchange, and resources of a large problem.

    python -m benchmarks.speed.als_sharded exchange --data DIR  # collectives and Beam
    python -m benchmarks.speed.als_sharded scale                # memory and traffic by formula

DIR holds `gowalla.npz`. It needs the extras `als` and, for `exchange`, `pipelines`.
"""

import argparse
import logging
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.speed import local_group
from benchmarks.speed.rg import K, random_factors, read
from tfrank_sel.models import als

REPEATS = 7


def seconds(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median wall-clock seconds, after two calls that compile."""
    taken = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[2:])


def _exchanged(shape: tuple[int, int], results: Any) -> None:
    group = als.CollectiveGroup()
    blocks = [rows[group.block(len(rows))] for rows in random_factors(shape)]
    gram = np.zeros((K, K))

    def exchange() -> None:
        for block in blocks:
            group.total(gram)
            group.gather_rows(block)

    results.put(seconds(exchange))


def _by_collectives(shape: tuple[int, int]) -> float:
    """The exchange of a sweep between two processes of a cluster."""
    context = multiprocessing.get_context("spawn")
    results, processes = context.Queue(), []
    for configuration in local_group.configurations(2):
        os.environ["TF_CONFIG"] = configuration  # which the process inherits
        processes.append(context.Process(target=_exchanged, args=(shape, results)))
        processes[-1].start()
    slowest = max(results.get() for _ in processes)
    for process in processes:
        process.join()
    return slowest


def _by_beam(folder: pathlib.Path, train: Any) -> float:
    """The exchange of a sweep in Beam: workers read what they need, and write their blocks.

    Solving is left out, so that this is the least that a sweep can take.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    sides = dict(zip(("users", "items"), random_factors(train.shape), strict=True))
    matrices = {"users": train, "items": train.T.tocsr()}
    for side, factors in sides.items():
        for rank, half in enumerate(np.array_split(np.arange(len(factors)), 2)):
            np.save(folder / f"{side}-{rank}.npy", factors[half])
            rows = matrices[side][half]
            parts = {"indptr": rows.indptr, "indices": rows.indices, "gains": rows.data}
            np.savez(folder / f"{side}-rows-{rank}.npz", **parts)

    def half_sweep(rank: int, own: str, other: str) -> Any:
        with np.load(folder / f"{own}-rows-{rank}.npz") as stored:
            rows = dict(stored)
        fixed = np.concatenate([np.load(folder / f"{other}-{r}.npy") for r in range(2)])
        block = np.load(folder / f"{own}-{rank}.npy")
        np.save(folder / f"{own}-{rank}.npy", block)
        return block.T @ block + 0.0 * (len(rows["gains"]) + len(fixed))

    logging.disable(logging.WARNING)
    options = PipelineOptions([], direct_num_workers=2, direct_running_mode="multi_processing")

    def exchange() -> None:
        for own, other in (("users", "items"), ("items", "users")):
            with beam.Pipeline("DirectRunner", options=options) as pipeline:
                grams = (
                    pipeline
                    | beam.Create([0, 1])
                    | beam.Reshuffle()
                    | beam.Map(half_sweep, own, other)
                )
                (
                    grams
                    | beam.CombineGlobally(sum)
                    | beam.Map(lambda gram: np.save(folder / "gram.npy", gram))
                )

    return seconds(exchange, 3)


def exchange(data: pathlib.Path) -> Iterator[str]:
    train = read(data, "Gowalla")[0]
    yield "| exchange of a sweep, two processes | s |"
    yield f"| collectives of tf.distribute | {_by_collectives(train.shape):.3f} |"
    with tempfile.TemporaryDirectory() as folder:
        yield f"| Beam, DirectRunner | {_by_beam(pathlib.Path(folder), train):.3f} |"


def scale(users: float = 1e8, items: float = 1e7, factors: int = 128) -> Iterator[str]:
    """What one of several processes holds and receives, in GB of 10^9 bytes.

    With U users, I items, n interactions, and factors of float32, each of P processes holds
    4 K (U + I) / P of its own factors, 16 n / P of interactions (a column and a gain, by user and
    by item), and, while it solves, the factors that its interactions need: at most 4 K min(n / P,
    U), or of items. In a sweep it receives, and passes on in the ring, 4 K (U + I) (P - 1) / P of
    factors and four Gram matrices of 8 K^2.
    """
    yield (
        "| interactions | processes | own factors | own interactions | gathered, at most "
        "| together | received a sweep | seconds at 10 Gbit/s, 100 Gbit/s |"
    )
    row = 4e-9 * factors
    for interactions in (1e9, 1e10):
        for size in (1, 4, 16, 64, 256):
            own = row * (users + items) / size
            pairs = 16e-9 * interactions / size
            gathered = row * min(max(users, items), interactions / size)
            moved = row * (users + items) * (size - 1) / size
            moved += 4 * 8e-9 * factors**2 * (size > 1)
            held = own + pairs + gathered
            yield (
                f"| {interactions:.0e} | {size} | {own:.1f} | {pairs:.1f} | {gathered:.1f} "
                f"| {held:.1f} | {moved:.1f} | {moved / 1.25:.1f}, {moved / 12.5:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runs: dict[str, Callable[..., Iterator[str]]]
    runs = {f.__name__: f for f in (exchange, scale)}
    parser.add_argument("run", choices=runs)
    parser.add_argument("--data", type=pathlib.Path)
    arguments = parser.parse_args()
    for line in runs[arguments.run](*([arguments.data] if arguments.data else [])):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
