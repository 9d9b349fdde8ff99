"""The next item of a user: RG^x without the order of items, popularity, neighbours of the last.

    python -m benchmarks.quality.leave_one_out --data s3rec --results results

`--data` is a folder of files of S3-Rec (https://github.com/aHuiWang/CIKM2020-S3Rec, in `data`):
lines of a user and its items in order of time. The last item of a user is for the test, and the one
before for validation. Of `ml-100k`, a folder with `u.data` of
https://grouplens.org/datasets/movielens, the test is by time: the first item of each user in the
last tenth of the times, and for validation in the tenth before, so that nothing later trains a
model. All items are ranked but those that the user had before. Settings of RG^x are those of the
best validation NDCG@10 with 256 factors; the best are fitted to all items before the test, with
`--seeds` seeds for each number of factors. The table has means and standard deviations over seeds,
and the median of their CPU seconds. What `--results` holds is not computed again.
"""

import functools
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
from tfrank_sel.data import Sequences
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

K = 10
JUDGED = 256  # factors with which settings are judged
GRID = {**ALPHAS, "regularization": (0.3, 0.6, 1.2), "activity_exponent": (0.0, 0.25)}


class Split(NamedTuple):
    """Sequences to train on, and a later item of their users.

    Attributes:
        train: The sequences.
        matrix: Their items by user.
        target: The item held out of each user, by which a model is judged.
        before: The last item of each user.
    """

    train: Sequences
    matrix: Any
    target: Any
    before: Any


def sequences(path: pathlib.Path) -> Sequences:
    """The sequences of lines of a user and its items, in whose order they have times."""
    rows = [
        np.array(line.split()[1:], np.int32)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    items, sizes = np.concatenate(rows), [len(row) for row in rows]
    times = np.concatenate([np.arange(size, dtype=float) for size in sizes])
    users = np.repeat(np.arange(len(rows)), sizes)
    return Sequences(np.arange(len(rows)), np.arange(items.max()), users, items, times)


def held_out(path: pathlib.Path, last: int) -> Split:
    """The items before the one that is `last` from the end, and this item."""
    train = held = sequences(path)
    for _ in range(last):
        train, held = train.leave_one_out()
    return split(train, held.users, held.items)


def split(train: Sequences, users: np.ndarray, targets: np.ndarray) -> Split:
    """Sequences, with an item of some users by which a model is judged."""
    shape = len(train.user_ids), len(train.item_ids)
    last = train.histories(1)[:, 0]
    rows = np.flatnonzero(last)
    target, before = (matrix(x, shape) for x in ((users, targets - 1), (rows, last[rows] - 1)))
    return Split(train, matrix((train.users, train.items - 1), shape), target, before)


def by_time(data: pathlib.Path, last: int) -> Split:
    """The first item of each user in a tenth of the times, the `last` from the end."""
    columns = np.loadtxt(data / "u.data")
    users, items, _, times = columns[columns[:, 0] > 0].T
    order = np.lexsort((times, users))
    users, items = (np.unique(x, return_inverse=True) for x in (users[order], items[order]))
    train = Sequences(users[0], items[0], users[1], items[1].astype(np.int32) + 1, times[order])
    held = train
    for part in range(1, last + 1):
        train, held = train.split(np.quantile(times, 1.0 - part / 10.0))
    first, places = np.unique(held.users, return_index=True)
    is_fair = train.histories(1)[first, 0] > 0
    return split(train, first[is_fair], held.items[places[is_fair]])


# the split of a folder of data: of the test by 1, for validation by 2
SETS: dict[str, Callable[[pathlib.Path, int], Split]] = {
    "Beauty": lambda data, last: held_out(data / "Beauty.txt", last),
    "Sports": lambda data, last: held_out(data / "Sports_and_Outdoors.txt", last),
    "ml-100k": by_time,
}


def by_neighbours(of: Split) -> Callable[[], np.ndarray]:
    """The items whose users are most, by their cosine, those of the last item."""
    train = of.matrix
    unit = train @ sp.diags(1.0 / np.sqrt(np.maximum(train.getnnz(axis=0), 1.0)))
    return nearest(of, unit.T @ unit)


def nearest(of: Split, scores: Any) -> Callable[[], np.ndarray]:
    """The unseen items of the best scores beside the last item."""

    def best() -> np.ndarray:
        near = sp.csr_matrix(of.before @ scores)
        near -= near.multiply(of.matrix > 0.0)
        near.eliminate_zeros()
        first = np.full((near.shape[0], K), -1, np.int32)
        for row, part in enumerate(itertools.starmap(slice, itertools.pairwise(near.indptr))):
            order = np.argsort(-near.data[part], kind="stable")[:K]
            first[row, : len(order)] = near.indices[part][order]
        return first

    return best


def judged(of: Split, fit: Callable[[Split], Callable[[], np.ndarray]]) -> dict[str, float]:
    """NDCG and recall of the held-out items, and CPU seconds of the fit."""
    began = time.process_time()
    best = fit(of)
    seconds = time.process_time() - began
    return {**retrieval.ranking_quality(best()[:, :K], of.target), "seconds": seconds}


def stored(path: pathlib.Path, made: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What a file has, or else what is made."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(made()))
        partial.rename(path)
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rows(
    data: Callable[[int], Split], results: pathlib.Path, factors: list[int], seeds: int
) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Each model, its settings, and its results by seed; `data(2)` is for validation."""
    results.mkdir(parents=True, exist_ok=True)
    for name, fit in (
        ("popularity", lambda of: by_popularity(of.matrix)),
        ("neighbours of the last item", by_neighbours),
    ):
        yield name, "", [stored(results / f"{name}.json", lambda fit=fit: judged(data(1), fit))]
    factorized = by_factors(als.RGCross, "alpha")

    def found(last: int, size: int, seed: int, settings: dict[str, float]) -> dict[str, float]:
        def fit(of: Split) -> Callable[[], np.ndarray]:
            return factorized(of.matrix, settings, size, FACTORS[size], seed)

        key = " ".join(map(str, (last, *settings.values(), size, seed)))
        return stored(results / f"{key}.json", lambda: judged(data(last), fit))

    grid = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    best = max(grid, key=lambda settings: found(2, JUDGED, 0, settings)["ndcg@10"])
    shown = ", ".join(f"{key} {value:g}" for key, value in best.items())
    for size in factors:
        yield f"RG^x, K = {size}", shown, [found(1, size, seed, best) for seed in range(seeds)]


def main() -> None:
    """Prints the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["Beauty", "Sports"])
    parser.add_argument("--factors", nargs="+", type=int, choices=FACTORS, default=[256, 1024])
    parser.add_argument("--seeds", type=int, default=5, help="number of fits of each row")
    options = parser.parse_args()
    for name in options.sets:
        data = functools.partial(SETS[name], options.data)
        print(f"\n| {name} | settings | NDCG@10 | Recall@10 | CPU s |\n{'|---' * 5}|")
        for model, settings, runs in rows(
            data, options.results / name, options.factors, options.seeds
        ):
            values = [over_seeds(runs, key) for key in ("ndcg@10", "recall@10")]
            seconds = np.median([run["seconds"] for run in runs])
            print(f"| {' | '.join((model, settings, *values))} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
