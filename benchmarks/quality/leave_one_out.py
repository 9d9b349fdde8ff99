"""The next item of a user: RG^x without the order of items, popularity, neighbours of the last.

    python -m benchmarks.quality.leave_one_out --data s3rec --results results

`--data` is a folder of files of S3-Rec (https://github.com/aHuiWang/CIKM2020-S3Rec, in `data`):
lines of a user and its items in order of time. The last item of a user is for the test, and the one
before for validation. All items are ranked but those that the user had before. Settings of RG^x are
those of the best validation NDCG@10 with 256 factors, from items before the last two; the best are
fitted to all items but the last, with `--seeds` seeds for each number of factors. The table has
means and standard deviations over seeds, and the median of their CPU seconds. What `--results`
holds is not computed again.
"""

import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.quality.recommendation import (
    ALPHAS,
    FACTORS,
    arguments,
    by_factors,
    by_popularity,
    matrix,
    over_seeds,
)
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

SETS = {"Beauty": "Beauty", "Sports": "Sports_and_Outdoors"}
K = 10
JUDGED = 256  # factors with which settings are judged
GRID = {**ALPHAS, "regularization": (0.3, 0.6, 1.2), "activity_exponent": (0.0, 0.25)}


def held_out(path: pathlib.Path, last: int) -> tuple[Any, Any, Any]:
    """The items before the one that is `last` from the end, this item, and the one before it."""
    rows = [np.array(line.split()[1:], np.int64) - 1 for line in path.read_text().splitlines()]
    shape = len(rows), max(row.max() for row in rows) + 1
    users = np.repeat(np.arange(len(rows)), [len(row) - last for row in rows])
    train = matrix((users, np.concatenate([row[:-last] for row in rows])), shape)
    one_each = np.arange(len(rows))
    target, before = (
        matrix((one_each, [row[-x] for row in rows]), shape) for x in (last, last + 1)
    )
    return train, target, before


def by_neighbours(train: Any, before: Any) -> Callable[[], np.ndarray]:
    """The items whose users are most, by their cosine, those of the last item."""
    unit = train @ sp.diags(1.0 / np.sqrt(np.maximum(train.getnnz(axis=0), 1.0)))
    cosines = unit.T @ unit

    def best() -> np.ndarray:
        near = sp.csr_matrix(before @ cosines)
        near -= near.multiply(train)
        near.eliminate_zeros()
        first = np.full((near.shape[0], K), -1, np.int32)
        for row, part in enumerate(itertools.starmap(slice, itertools.pairwise(near.indptr))):
            order = np.argsort(-near.data[part], kind="stable")[:K]
            first[row, : len(order)] = near.indices[part][order]
        return first

    return best


def judged(
    path: pathlib.Path, last: int, fit: Callable[[Any, Any], Callable[[], np.ndarray]]
) -> dict[str, float]:
    """NDCG and recall of the items that are `last` from the end, and CPU seconds of the fit."""
    train, target, before = held_out(path, last)
    began = time.process_time()
    best = fit(train, before)
    seconds = time.process_time() - began
    return {**retrieval.ranking_quality(best()[:, :K], target), "seconds": seconds}


def stored(path: pathlib.Path, made: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What a file has, or else what is made."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(made()))
        partial.rename(path)
    found: dict[str, float] = json.loads(path.read_text())
    return found


def rows(
    data: pathlib.Path, results: pathlib.Path, factors: list[int], seeds: int
) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Each model, its settings, and its results by seed."""
    results.mkdir(parents=True, exist_ok=True)
    for name, fit in (
        ("popularity", by_popularity),
        ("neighbours of the last item", by_neighbours),
    ):
        yield name, "", [stored(results / f"{name}.json", lambda fit=fit: judged(data, 1, fit))]
    factorized = by_factors(als.RGCross, "alpha")

    def found(last: int, size: int, seed: int, settings: dict[str, float]) -> dict[str, float]:
        def fit(train: Any, before: Any) -> Callable[[], np.ndarray]:
            return factorized(train, settings, size, FACTORS[size], seed)

        key = " ".join(map(str, (last, *settings.values(), size, seed)))
        return stored(results / f"{key}.json", lambda: judged(data, last, fit))

    grid = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    best = max(grid, key=lambda settings: found(2, JUDGED, 0, settings)["ndcg@10"])
    shown = ", ".join(f"{key} {value:g}" for key, value in best.items())
    for size in factors:
        yield f"RG^x, K = {size}", shown, [found(1, size, seed, best) for seed in range(seeds)]


def main() -> None:
    """Prints the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--factors", nargs="+", type=int, choices=FACTORS, default=[256, 1024])
    parser.add_argument("--seeds", type=int, default=5, help="number of fits of each row")
    options = parser.parse_args()
    for name in options.sets:
        data = options.data / f"{SETS[name]}.txt"
        print(f"\n| {name} | settings | NDCG@10 | Recall@10 | CPU s |\n{'|---' * 5}|")
        for model, settings, runs in rows(
            data, options.results / name, options.factors, options.seeds
        ):
            values = [over_seeds(runs, key) for key in ("ndcg@10", "recall@10")]
            seconds = np.median([run["seconds"] for run in runs])
            print(f"| {' | '.join((model, settings, *values))} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
