"""Recommendation on public splits by equal rules: RG^2, RG^x, WRMF, iALS, EASE, softmax, implicit.

    python -m benchmarks.quality.recommendation --data gowalla --results results
    python -m benchmarks.quality.recommendation --data ml-1m.npz --results results

`--data` is a folder of LightGCN's files `train.txt` and `test.txt`, lines of a user and its items
(https://github.com/kuandeng/LightGCN/tree/master/Data), or an npz file: with arrays `train_user`,
`train_item`, `test_user` and `test_item`, or with `user` and `item`, of which a fifth is then drawn
for the test. Each method has twelve settings, judged with 128 factors on a tenth of the training
interactions. The best by NDCG@20 is fitted to all training interactions. Recall@20 and NDCG@20 are
means over the users with test items and, of RG and WRMF with `--seeds`, their mean and standard
deviation over fits; all items that are not in training are ranked. Seconds are CPU time of the
first fit. EASE has one matrix of all pairs of items in float32, of 6.7 GB on Gowalla; softmax over
all items is left out if there are too many. Where EASE has a row, the table shows the difference of
NDCG@20 to it with its 95 % interval, by paired bootstrap over users. Each result is written to the
folder `--results` and not computed again. Ours take three conjugate gradient steps for each row. It
needs the extra `als`, and `implicit`.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# implicit asks for one BLAS thread; each of our solvers sets its own number
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from benchmarks.quality.judging import interval
from tfrank_sel.distribution import SingleProcess
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval
from tfrank_sel.models.als.objectives import activity_weights

K = 20
JUDGED = 128, 8  # factors and sweeps
FACTORS = {64: 12, 256: 8, 1024: 4}  # sweeps by number of factors
MORE = FACTORS | {2048: 4}
EPOCHS = 5  # of stochastic gradients, for each sweep
CHUNK = 256  # users at a time
BASE = "EASE"
THREADS = len(os.sched_getaffinity(0))

Settings: TypeAlias = Mapping[str, float]
# what finds the best items of each user, from training interactions, settings, factors, sweeps and
# a seed
Fit: TypeAlias = Callable[[Any, Settings, int, int, int], Callable[[], np.ndarray]]


def by_factors(
    make: Callable[[float], als.Objective], name: str, count_exponent: float = 0.5
) -> Fit:
    """One of our factorisations; `name` is the setting of the objective."""

    def fit(
        train: Any, settings: Settings, factors: int, sweeps: int, seed: int
    ) -> Callable[[], np.ndarray]:
        model = als.RGFactorizer(
            make(settings[name]),
            factors,
            regularization=settings["regularization"],
            count_exponent=count_exponent,
            activity_exponent=settings.get("activity_exponent", 0.0),
            sweeps=sweeps,
            cg_steps=3,
            num_threads=THREADS,
            seed=seed,
        ).fit(train)
        return by_products(train, model.user_factors_, model.item_factors_)

    return fit


def by_products(train: Any, users: Any, items: Any) -> Callable[[], np.ndarray]:
    return lambda: retrieval.best(users, items, K, train, THREADS)[0]


def by_softmax(
    train: Any, settings: Settings, factors: int, sweeps: int, seed: int
) -> Callable[[], np.ndarray]:
    from benchmarks.quality.rg import Softmax, softmax_by_adam

    random = np.random.default_rng(seed)
    start = [random.normal(0.0, 0.1, (n, factors)).astype(np.float32) for n in train.shape]
    penalties = settings["users"], settings["items"]
    trained = Softmax(EPOCHS * sweeps, 0.01, penalties, settings["count_exponent"])
    *_, (_, users, items) = softmax_by_adam(train, trained, start)
    return by_products(train, users, items)


def by_bpr(
    train: Any, settings: Settings, factors: int, sweeps: int, seed: int
) -> Callable[[], np.ndarray]:
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(
        factors, iterations=EPOCHS * sweeps, random_state=seed, num_threads=THREADS, **settings
    )
    model.fit(train, show_progress=False)
    return by_products(train, model.user_factors, model.item_factors)


def by_implicit(
    train: Any, settings: Settings, factors: int, sweeps: int, seed: int
) -> Callable[[], np.ndarray]:
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(
        factors, iterations=sweeps, random_state=seed, num_threads=THREADS, **settings
    )
    model.fit(train, show_progress=False)
    return by_products(train, model.user_factors, model.item_factors)


def by_scores(train: Any, scores: Callable[[Any], np.ndarray]) -> Callable[[], np.ndarray]:
    """What finds the best unseen items, by the scores of rows of the training matrix."""

    def best() -> np.ndarray:
        found = []
        for start in range(0, train.shape[0], CHUNK):
            rows = train[start : start + CHUNK]
            unseen = np.where(rows.toarray() > 0.0, -np.inf, scores(rows))
            first = np.argpartition(-unseen, K, axis=1)[:, :K]
            order = np.argsort(-np.take_along_axis(unseen, first, axis=1), axis=1)
            found.append(np.take_along_axis(first, order, axis=1))
        return np.concatenate(found).astype(np.int32)

    return best


def by_ease(train: Any, settings: Settings, *_: int) -> Callable[[], np.ndarray]:
    """A ridge regression of each item on all others (Steck, 2019), in one float32 matrix."""
    exponent = settings.get("activity_exponent", 0.0)
    users = sp.diags(activity_weights(np.diff(train.indptr), exponent, SingleProcess()))
    matrix = (train.T @ users @ train).astype(np.float32).toarray(order="F")
    matrix[np.diag_indices_from(matrix)] += np.float32(settings["regularization"])
    matrix, failed = scipy.linalg.lapack.spotrf(matrix, lower=True, clean=False, overwrite_a=True)
    assert failed == 0
    matrix, failed = scipy.linalg.lapack.spotri(matrix, lower=True, overwrite_c=True)
    assert failed == 0
    for start in range(0, len(matrix), CHUNK):  # the upper triangle from the lower
        stop = start + CHUNK
        block = matrix[start:stop, start:stop]
        block[:] = np.tril(block) + np.tril(block, -1).T
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
    matrix /= -np.diag(matrix).copy()
    np.fill_diagonal(matrix, 0.0)
    return by_scores(train, lambda rows: rows @ matrix)


def squares(unobserved: float) -> als.Objective:
    return als.WeightedSquare(unobserved=unobserved)


def by_popularity(train: Any, *_: Any) -> Callable[[], np.ndarray]:
    counts = np.asarray(train.sum(axis=0))
    return by_scores(train, lambda rows: counts)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method, its grid of settings, and its fits.

    Args:
        fit: The method.
        grid: Values of each setting.
        factors: Sweeps of the test, by number of factors.
        judged: Factors and sweeps of the validation.
        seeded: Whether `--seeds` counts for it.
    """

    fit: Fit
    grid: Mapping[str, tuple[float, ...]]
    factors: Mapping[int, int] = dataclasses.field(default_factory=lambda: {0: 0})
    judged: tuple[int, int] = JUDGED
    seeded: bool = False

    def settings(self) -> Iterator[Settings]:
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


OURS = {"regularization": (0.6, 1.0), "activity_exponent": (0.0, 0.25)}
ALPHAS = {"alpha": (0.02, 0.05, 0.1)}
UNOBSERVED = {"unobserved": (0.1, 0.3, 0.6)}
STOCHASTIC = {64: 12, 256: 8}
METHODS = {
    BASE: Method(by_ease, {"regularization": tuple(np.geomspace(50.0, 2000.0, 12).round())}),
    "EASE, users weighted": Method(
        by_ease,
        {"regularization": (100.0, 200.0, 400.0, 800.0), "activity_exponent": (0.25, 0.5, 0.75)},
    ),
    "RG^2": Method(by_factors(als.RG2, "alpha"), {**ALPHAS, **OURS}, FACTORS, seeded=True),
    "RG^x": Method(by_factors(als.RGCross, "alpha"), {**ALPHAS, **OURS}, MORE, seeded=True),
    "WRMF": Method(by_factors(squares, "unobserved"), {**UNOBSERVED, **OURS}, FACTORS, seeded=True),
    "iALS, regularization by count": Method(
        by_factors(squares, "unobserved", count_exponent=1.0),
        {"unobserved": (0.3, 0.6, 1.2), "regularization": (0.02, 0.05, 0.1, 0.2)},
        FACTORS,
    ),
    "softmax, Adam": Method(
        by_softmax,
        {"users": (2.0, 8.0, 16.0), "items": (0.6, 2.5), "count_exponent": (0.0, 0.5)},
        STOCHASTIC,
    ),
    "implicit ALS": Method(
        by_implicit,
        {"regularization": (10.0, 40.0, 80.0), "alpha": (2.0, 5.0, 15.0, 40.0)},
        FACTORS,
    ),
    "implicit BPR": Method(
        by_bpr,
        {"learning_rate": (0.003, 0.01, 0.03, 0.1), "regularization": (0.001, 0.01, 0.1)},
        STOCHASTIC,
    ),
    "popularity": Method(by_popularity, {}),
}
# of methods whose memory or time grows with all pairs of items, or of users and items
MOST_ITEMS = {BASE: 50_000, "EASE, users weighted": 50_000, "softmax, Adam": 10_000}


def matrix(pairs: Any, shape: tuple[int, ...]) -> Any:
    return sp.csr_matrix((np.ones(len(pairs[0]), np.float32), tuple(pairs)), shape)


def of_lines(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """The users and items of a file of LightGCN."""
    rows = [
        np.array(line.split(), np.int64) for line in path.read_text(encoding="utf-8").splitlines()
    ]
    users = np.concatenate([np.full(len(row) - 1, row[0]) for row in rows if len(row) > 1])
    return users, np.concatenate([row[1:] for row in rows if len(row) > 1])


def divided(pairs: Any, part: float) -> tuple[Any, Any]:
    """The pairs in two, the second a random part of them."""
    drawn = np.random.default_rng(0).random(len(pairs[0])) < part
    first, second = ([column[chosen] for column in pairs] for chosen in (~drawn, drawn))
    return first, second


def read(path: pathlib.Path) -> tuple[Any, Any]:
    """The training and the test interactions: users and items."""
    if path.is_dir():
        return of_lines(path / "train.txt"), of_lines(path / "test.txt")
    with np.load(path) as stored:
        if "user" in stored:
            return divided((stored["user"], stored["item"]), 0.2)
        train, test = (
            (stored[f"{part}_user"], stored[f"{part}_item"]) for part in ("train", "test")
        )
        return train, test


class Benchmark:
    """The splits, and the results that are stored."""

    def __init__(
        self, data: pathlib.Path, results: pathlib.Path, methods: Mapping[str, Method] = METHODS
    ) -> None:
        train, test = read(data)
        shape = tuple(int(max(map(np.max, pair))) + 1 for pair in zip(train, test, strict=True))
        fewer, validation = (matrix(pairs, shape) for pairs in divided(train, 0.1))
        self.parts = {
            "validation": (fewer, validation),
            "test": (matrix(train, shape), matrix(test, shape)),
        }
        self.methods = methods
        self.results = results / data.stem
        self.results.mkdir(parents=True, exist_ok=True)

    def quality(
        self, name: str, part: str, settings: Settings, size: tuple[int, int], seed: int = 0
    ) -> dict[str, Any]:
        """Recall, NDCG and seconds of a method, computed unless they are stored.

        On few items, `users` has the NDCG of each user of the test.
        """
        key = " ".join([name, part, *map(str, (*settings.values(), *size, seed))])
        path = self.results / f"{key}.json"
        if not path.exists():
            train, held_out = self.parts[part]
            began = time.process_time()
            best = self.methods[name].fit(train, settings, *size, seed)
            seconds = time.process_time() - began
            first = best()
            found = {**retrieval.ranking_quality(first, held_out), "seconds": seconds}
            if part == "test":
                of_users = retrieval.user_qualities(first, held_out)
                found["users"] = of_users["ndcg@20"].tolist()
                found["recalls"] = of_users["recall@20"].tolist()
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(found))
            partial.rename(path)
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def chosen(self, name: str) -> Settings:
        """The settings that are best on validation."""
        method = self.methods[name]
        choices = list(method.settings())
        if len(choices) == 1:
            return choices[0]
        judged = [self.quality(name, "validation", x, method.judged)["ndcg@20"] for x in choices]
        return choices[int(np.argmax(judged))]

    def rows(
        self, seeds: int, names: Sequence[str], factors: Sequence[int]
    ) -> Iterator[tuple[str, Settings, list[dict[str, Any]]]]:
        """Each method, its settings, and its results on the test by seed."""
        num_items = self.parts["test"][0].shape[1]
        for name in names:
            method = self.methods[name]
            if num_items > MOST_ITEMS.get(name, num_items):
                continue
            settings = self.chosen(name)
            for size in method.factors.items():
                if size[0] not in (0, *factors):
                    continue
                found = [
                    self.quality(name, "test", settings, size, seed)
                    for seed in range(seeds if method.seeded else 1)
                ]
                yield f"{name}, K = {size[0]}" if size[0] else name, settings, found


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of the data and the results of a benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder or npz file")
    parser.add_argument(
        "--results", type=pathlib.Path, required=True, help="folder to keep results in"
    )
    return parser


def main() -> None:
    """Prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="number of fits of RG and WRMF")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--factors", type=int, nargs="+", choices=MORE, default=list(FACTORS))
    options = parser.parse_args()
    base = None
    head = ["model", "settings", "Recall@20", "NDCG@20", "CPU s"]
    if BASE in options.methods:
        head.insert(-1, "- EASE's (95 %)")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    benchmark = Benchmark(options.data, options.results)
    for name, settings, runs in benchmark.rows(options.seeds, options.methods, options.factors):
        row = [name, ", ".join(f"{key} {value:g}" for key, value in settings.items())]
        row += [over_seeds(runs, key) for key in ("recall@20", "ndcg@20")]
        ndcgs, gap = np.mean([x["users"] for x in runs], axis=0), ""
        if name == BASE:
            base = ndcgs
        elif base is not None:
            low, high = interval(ndcgs - base)
            gap = f"{np.mean(ndcgs - base):+.4f} ({low:+.4f} to {high:+.4f})"
        if BASE in options.methods:
            row.append(gap)
        print(f"| {' | '.join(row)} | {runs[0]['seconds']:.0f} |", flush=True)


def over_seeds(runs: Sequence[Mapping[str, Any]], key: str) -> str:
    """The mean over seeds and, of several, the standard deviation."""
    values = [x[key] for x in runs]
    deviation = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{deviation}"


if __name__ == "__main__":
    main()
