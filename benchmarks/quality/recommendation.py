"""Recommendation on a public split, by which papers report: popularity, RG^2, RG^x and WRMF.

    python -m benchmarks.quality.recommendation --data gowalla --results gowalla-results

`--data` is a folder of LightGCN's files `train.txt` and `test.txt`: lines of a user and its items
(https://github.com/kuandeng/LightGCN/tree/master/Data). Each factorisation has the same number of
settings, judged with 128 factors on a tenth of the training interactions; the best by NDCG@20 is
fitted to all training interactions with the numbers of factors of the table. Recall@20 and NDCG@20
are means over the users with test items, as LightGCN computes them. Each result is written to the
folder `--results` and not computed again.
"""

import argparse
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import scipy.sparse as sp

from tfrank_sel.models import als

K = 20
JUDGED_FACTORS, JUDGED_SWEEPS = 128, 8
FACTORS = {64: 12, 256: 8, 1024: 4}  # sweeps for each number of factors
CHUNK = 4096  # users at a time

Settings = Mapping[str, float]
GRID = {
    "regularization": (0.3, 0.6),
    "popularity_exponent": (0.0, 0.3),
    "count_exponent": (0.3, 0.5),
}
OBJECTIVES: dict[str, Callable[[int], als.Objective]] = {
    "RG^2": lambda i: als.RG2(alpha=(0.02, 0.05)[i]),
    "RG^x": lambda i: als.RGCross(alpha=(0.02, 0.05)[i]),
    "WRMF": lambda i: als.WeightedSquare(unobserved=(0.03, 0.1)[i]),
}


def read(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """The users and items of a file of LightGCN."""
    rows = [np.array(line.split(), np.int64) for line in path.read_text().splitlines()]
    users = np.concatenate([np.full(len(row) - 1, row[0]) for row in rows if len(row) > 1])
    return users, np.concatenate([row[1:] for row in rows if len(row) > 1])


def matrix(users: np.ndarray, items: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape)


def measured(first: np.ndarray, users: np.ndarray, held_out: sp.csr_matrix) -> dict[str, float]:
    """Mean Recall@20 and NDCG@20 of users, by their first twenty items."""
    counts = np.diff(held_out.indptr)[users]
    hits = np.take_along_axis(held_out[users].toarray(), first, axis=1)
    discounts = 1.0 / np.log2(np.arange(K) + 2.0)
    ideal = np.cumsum(discounts)[np.minimum(counts, K) - 1]
    found = {"recall": hits.sum(axis=1) / counts, "ndcg": hits @ discounts / ideal}
    return {name: float(values.sum()) for name, values in found.items()}


def quality(
    recommend: Callable[[np.ndarray], np.ndarray], held_out: sp.csr_matrix
) -> dict[str, float]:
    """Means over all users with held-out items."""
    users = np.flatnonzero(np.diff(held_out.indptr))
    parts = [users[start : start + CHUNK] for start in range(0, len(users), CHUNK)]
    found = [measured(recommend(part), part, held_out) for part in parts]
    return {name: sum(x[name] for x in found) / len(users) for name in found[0]}


def popularity(train: sp.csr_matrix) -> Callable[[np.ndarray], np.ndarray]:
    counts = np.asarray(train.sum(axis=0))

    def recommend(users: np.ndarray) -> np.ndarray:
        scores = np.where(train[users].toarray() > 0.0, -1.0, counts)
        return np.argsort(-scores, axis=1, kind="stable")[:, :K]

    return recommend


def fitted(
    objective: als.Objective, train: sp.csr_matrix, factors: int, sweeps: int, settings: Settings
) -> Callable[[np.ndarray], np.ndarray]:
    model = als.RGFactorizer(objective, factors, sweeps=sweeps, **settings).fit(train)  # type: ignore[arg-type]
    return lambda users: model.recommend(users, K)[0]


class Benchmark:
    """The splits, and the results that are stored."""

    def __init__(self, data: pathlib.Path, results: pathlib.Path) -> None:
        train, test = (read(data / f"{part}.txt") for part in ("train", "test"))
        shape = tuple(int(max(a.max(), b.max())) + 1 for a, b in zip(train, test, strict=True))
        kept = np.random.default_rng(0).random(len(train[0])) >= 0.1
        self.train, self.test = matrix(*train, shape), matrix(*test, shape)
        self.fewer = matrix(train[0][kept], train[1][kept], shape)
        self.validation = matrix(train[0][~kept], train[1][~kept], shape)
        self.results = results

    def stored(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A result, computed unless its file is there."""
        path = self.results / f"{name}.json"
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(compute()))
            partial.rename(path)
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def chosen(self, method: str) -> tuple[int, Settings]:
        """The objective and the settings that are best on validation."""
        found = []
        for i, *values in itertools.product(range(2), *GRID.values()):
            settings = dict(zip(GRID, values, strict=True))

            def compute(i: int = i, settings: Settings = settings) -> dict[str, float]:
                objective = OBJECTIVES[method](i)
                size = JUDGED_FACTORS, JUDGED_SWEEPS
                return quality(fitted(objective, self.fewer, *size, settings), self.validation)

            name = " ".join([method, str(OBJECTIVES[method](i)), *map(str, values)])
            found.append((self.stored(name, compute)["ndcg"], i, settings))
        _, i, settings = max(found, key=lambda x: x[0])
        return i, settings

    def rows(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The method, its settings and its results on the test interactions."""
        yield (
            "popularity",
            "",
            self.stored("popularity", lambda: quality(popularity(self.train), self.test)),
        )
        for method in OBJECTIVES:
            i, settings = self.chosen(method)
            told = f"`{OBJECTIVES[method](i)}`, " + ", ".join(f"{x:g}" for x in settings.values())
            for factors, sweeps in FACTORS.items():

                def compute(
                    method: str = method, i: int = i, settings: Settings = settings,
                    factors: int = factors, sweeps: int = sweeps,
                ) -> dict[str, float]:  # fmt: skip
                    began = time.perf_counter()
                    objective = OBJECTIVES[method](i)
                    recommend = fitted(objective, self.train, factors, sweeps, settings)
                    seconds = time.perf_counter() - began
                    return {**quality(recommend, self.test), "seconds": seconds}

                name = " ".join([method, "test", str(factors), told.replace("`", "")])
                yield f"{method}, K = {factors}", told, self.stored(name, compute)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of two files")
    parser.add_argument(
        "--results", type=pathlib.Path, required=True, help="folder to keep them in"
    )
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    print(f"| model | {', '.join(['objective', *GRID])} | Recall@20 | NDCG@20 | s |\n{'|---' * 5}|")
    for name, told, found in Benchmark(options.data, options.results).rows():
        seconds = f"{found['seconds']:.0f}" if "seconds" in found else ""
        print(
            f"| {name} | {told} | {found['recall']:.4f} | {found['ndcg']:.4f} | {seconds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
