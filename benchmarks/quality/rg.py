"""Quality and training time of RG, WRMF, softmax and implicit's models.

    python -m benchmarks.quality.rg quality --data DIR [--set Gowalla]  # validation, test, time
    python -m benchmarks.quality.rg warm --data DIR [--set Gowalla]     # sweeps after epochs
    python -m benchmarks.quality.rg studies --data DIR                  # the paper's, K = 16

Settings were chosen by validation NDCG@10. It needs the extra `als`, and `implicit` for `quality`.
"""

import argparse
import dataclasses
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# implicit asks for one BLAS thread; each of our solvers sets its own number
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import keras
import numpy as np
import tensorflow as tf
from scipy import stats

from benchmarks.speed.rg import FILES, SETS, K, low_rank, random_factors, read
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

# seconds of training so far, the factors of users and of items
Curve: TypeAlias = Iterator[tuple[float, Any, Any]]

FEW = 16  # factors of studies
THREADS = len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class Softmax:
    """How Adam trains the softmax.

    Args:
        epochs: Number of epochs.
        learning_rate: Of Adam.
        penalties: Of the squares of the users' and of the items' factors in a batch.
        count_exponent: They are in proportion to counts of positives to this power, mean 1.
    """

    epochs: int
    learning_rate: float
    penalties: tuple[float, float]
    count_exponent: float


@dataclasses.dataclass(frozen=True)
class Settings:
    """What validates best on one set.

    Args:
        softmax: How it is trained.
        factorizers: By name.
        sweeps: Of the factorizers, and of implicit's ALS.
        implicit_als: Its arguments.
        implicit_bpr: Its arguments.
    """

    softmax: Softmax
    factorizers: Mapping[str, als.RGFactorizer]
    sweeps: int
    implicit_als: Mapping[str, float]
    implicit_bpr: Mapping[str, float]


def factorizer(objective: als.Objective, strength: float, **options: Any) -> als.RGFactorizer:
    shared = {"num_factors": K, "count_exponent": 0.5, "sweeps": 1, "num_threads": THREADS}
    return als.RGFactorizer(objective, regularization=strength, **{**shared, **options})


SETTINGS = {
    "MovieLens-1M": Settings(
        Softmax(60, 0.01, (8.0, 2.5), 0.0),
        {
            "RG^2": factorizer(als.RG2(0.05), 1.0),
            "RG^x": factorizer(als.RGCross(0.05), 1.0),
            "WRMF": factorizer(als.WeightedSquare(1.0, 1.0, 0.4), 1.0),
        },
        12,
        {"regularization": 40.0, "alpha": 4.0},
        {"regularization": 0.01, "learning_rate": 0.005},
    ),
    "Gowalla": Settings(
        Softmax(12, 0.02, (2.0, 0.2), 0.5),
        {
            "RG^2": factorizer(als.RG2(0.034), 0.5, popularity_exponent=0.5),
            "RG^x": factorizer(als.RGCross(0.05), 0.25, popularity_exponent=0.5),
            "RG^2, equal base weights": factorizer(als.RG2(0.0276), 0.25, count_exponent=0.3),
            "WRMF": factorizer(
                als.WeightedSquare(1.0, 1.0, 0.0175),
                0.0017,
                count_exponent=1.0,
                popularity_exponent=0.5,
            ),
            "RG^2, K = 256": factorizer(
                als.RG2(0.03), 0.48, num_factors=256, count_exponent=0.65, popularity_exponent=0.65
            ),
        },
        5,
        {"regularization": 40.0, "alpha": 30.0},
        {"regularization": 0.001, "learning_rate": 0.05},
    ),
}


def judged(users: Any, items: Any, train: Any, held_out: Any, k: int) -> dict[str, float]:
    ids, _ = retrieval.best(users, items, k, train, THREADS)
    return retrieval.ranking_quality(ids, held_out)


def validator(train: Any, validation: Any, most: int = 10_000) -> Callable[[Any, Any], float]:
    """Returns what judges factors by NDCG@10, on a number of users at most."""
    some = np.random.default_rng(0).permutation(train.shape[0])[:most]
    seen, held_out = train[some], validation[some]
    return lambda users, items: judged(users[some], items, seen, held_out, 10)["ndcg@10"]


def softmax_by_adam(train: Any, settings: Softmax, start: Any = None) -> Curve:
    """Full softmax over all items, in mini-batches of users."""
    users, items = (tf.Variable(x) for x in start or random_factors(train.shape))
    optimizer = keras.optimizers.Adam(settings.learning_rate)
    optimizer.build([users, items])
    ridges = []
    for matrix, penalty in zip((train, train.tocsc()), settings.penalties, strict=True):
        counts = np.maximum(np.diff(matrix.indptr), 1.0)
        ridges.append(tf.constant(penalty * (counts / counts.mean()) ** settings.count_exponent))
    user_ridges, item_ridges = (tf.cast(ridge, tf.float32) for ridge in ridges)

    @tf.function(reduce_retracing=True)
    def step(rows: tf.Tensor, positives: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = tf.matmul(tf.gather(users, rows), items, transpose_b=True)
            loss = -tf.reduce_sum(positives * tf.nn.log_softmax(logits))
            for side, ridge in (
                (tf.gather(users, rows), tf.gather(user_ridges, rows)),
                (items, item_ridges),
            ):
                loss += 0.5 * tf.reduce_sum(ridge[:, None] * side * side)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [users, items])]
        optimizer.apply(gradients, [users, items])

    rng, spent = np.random.default_rng(0), 0.0
    for _ in range(settings.epochs):
        begin = time.perf_counter()
        for rows in np.array_split(rng.permutation(train.shape[0]), max(1, train.shape[0] // 512)):
            step(tf.constant(rows), tf.constant(train[rows].toarray()))
        spent += time.perf_counter() - begin
        yield spent, users.numpy(), items.numpy()


def by_sweeps(train: Any, model: als.RGFactorizer, sweeps: int) -> Curve:
    spent = 0.0
    for _ in range(sweeps):
        begin = time.perf_counter()
        model.partial_fit(train)
        spent += time.perf_counter() - begin
        yield spent, model.user_factors_, model.item_factors_


def by_implicit(train: Any, model: Any, rounds: int) -> Curve:
    """Trains a model of implicit, which goes on where it stands, by its number of iterations."""
    spent = 0.0
    for _ in range(rounds):
        begin = time.perf_counter()
        model.fit(train, show_progress=False)
        spent += time.perf_counter() - begin
        yield spent, model.user_factors, model.item_factors


def curves(train: Any, settings: Settings) -> Iterator[tuple[str, Curve]]:
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    yield "softmax, Adam", softmax_by_adam(train, settings.softmax)
    for name, model in settings.factorizers.items():
        yield name, by_sweeps(train, model, settings.sweeps)
    shared = {"factors": K, "num_threads": THREADS, "random_state": 0}
    model = AlternatingLeastSquares(**shared, **settings.implicit_als, iterations=1)
    yield "implicit ALS", by_implicit(train, model, settings.sweeps)
    model = BayesianPersonalizedRanking(**shared, **settings.implicit_bpr, iterations=5)
    yield "implicit BPR", by_implicit(train, model, 8)


def quality(data: pathlib.Path, name: str) -> Iterator[str]:
    train, validation, test = read(data, name)
    value = validator(train, validation)
    yield (
        "| model | NDCG@10 | NDCG@20 | Recall@20 | MRR@20 | validation NDCG@10 "
        "| its seconds | seconds to 99% of softmax's best |"
    )
    goal = 0.0
    for model, run in curves(train, SETTINGS[name]):
        curve, best = [], (-1.0, 0.0, None, None)
        for spent, *factors in run:
            curve.append((spent, value(*factors)))
            if curve[-1][1] > best[0]:
                best = (curve[-1][1], spent, *(side.copy() for side in factors))
        goal = goal or 0.99 * best[0]
        sooner = next((f"{spent:.2f}" for spent, reached in curve if reached >= goal), "-")
        at = {k: judged(*best[2:], train + validation, test, k) for k in (10, 20)}
        values = [at[10]["ndcg@10"], *at[20].values(), best[0]]
        shown = " | ".join(f"{value:.4f}" for value in values)
        yield f"| {model} | {shown} | {best[1]:.2f} | {sooner} |"


def warm(data: pathlib.Path, name: str) -> Iterator[str]:
    """Validation NDCG@10 of sweeps that start at random, and from the factors of softmax."""
    train, validation, _ = read(data, name)
    settings, value = SETTINGS[name], validator(train, validation)
    models = {key: settings.factorizers[key] for key in ("RG^2", "RG^x")}
    columns = [f"{key}, sweep {count}" for key in models for count in (1, 2, 3)]
    yield "| epochs of softmax | NDCG@10 | " + " | ".join(columns) + " |"
    trained = softmax_by_adam(train, settings.softmax)
    starts = itertools.chain([random_factors(train.shape)], (start for _, *start in trained))
    for epoch, start in enumerate(starts):
        if epoch not in (0, 2, 4, 8, settings.softmax.epochs):
            continue
        row = [value(*start)]
        for model in models.values():
            model.fit(train, factors=start)  # one sweep
            for more in (0, 1, 1):
                model.partial_fit(train, more)
                row.append(value(model.user_factors_, model.item_factors_))
        yield f"| {epoch} | " + " | ".join(f"{ndcg:.4f}" for ndcg in row) + " |"


def studies(data: pathlib.Path, _: str) -> Iterator[str]:
    """Regularisation, sampled negatives and the order of known scores."""
    yield from regularised(data)
    yield ""
    yield from sampled(data)
    yield ""
    yield from recovered()


def table(*head: Any) -> str:
    return f"| {' | '.join(map(str, head))} |\n{'|---' * len(head)}|"


def regularised(data: pathlib.Path) -> Iterator[str]:
    """Validation NDCG@10 and the norm of the logits after five sweeps, by lambda."""
    strengths = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
    yield table("NDCG@10, logit norm by lambda", "", *strengths)
    for name in FILES:
        train, validation, _ = read(data, name)
        value = validator(train, validation, 2000)
        for objective in (als.RG2(0.03), als.RGCross(0.03)):
            cells = []
            for strength in strengths:
                model = factorizer(objective, strength, num_factors=FEW, sweeps=5).fit(train)
                ndcg = value(model.user_factors_, model.item_factors_)
                cells.append(f"{ndcg:.4f}, {model.history_[-1]['logit_norm']:.2f}")
            yield f"| {name} | {type(objective).__name__} | {' | '.join(cells)} |"


def sampled(data: pathlib.Path) -> Iterator[str]:
    """The error of the gradient in a user's factors of RG^2, by how negatives are drawn."""
    counts = (64, 256, 1024)
    yield table("error of the gradient", "negatives", *counts)
    for name in FILES:
        train, _, _ = read(data, name)
        model = factorizer(als.RG2(0.03), 1.0, num_factors=FEW, sweeps=5).fit(train)
        users, items = model.user_factors_[:50], model.item_factors_
        popularity = np.asarray(train.sum(axis=0)).ravel() + 1.0
        # of a user and item, for a gain of 1; RG^2 has their mean over the base weights
        parts = (1.0 + users @ items.T)[..., None] * items
        full, rng = parts.mean(axis=1), np.random.default_rng(0)
        for label, weights in {
            "uniform": np.ones(len(items)),
            "popularity^.5, weights 1 / (n p)": popularity**0.5,
            "popularity, weights 1 / (n p)": popularity,
            "length of the vector, weights 1 / (n p)": np.linalg.norm(items, axis=1) + 1e-3,
        }.items():
            drawn_by = weights / weights.sum()
            cells = []
            for count in counts:
                squares = []
                for _ in range(20):
                    places = rng.choice(len(items), count, p=drawn_by)
                    base = 1.0 / drawn_by[places]
                    estimate = np.einsum("n,unk->uk", base / base.sum(), parts[:, places])
                    squares.append(np.sum((estimate - full) ** 2))
                cells.append(f"{np.sqrt(np.mean(squares) / np.sum(full**2)):.3f}")
            yield f"| {name} | {label} | {' | '.join(cells)} |"


def recovered() -> Iterator[str]:
    """Kendall's tau of a user's scores and the true ones of five factors; a tenth is positive."""
    rounds = (1, 2, 5, 10, 20, 40)
    yield table("Kendall's tau after sweeps, or steps", *rounds)
    scores, train = low_rank(np.random.default_rng(0))
    train = train.astype(np.float32)
    shared = {"num_factors": 5, "num_threads": 1}
    runs: dict[str, Curve] = {
        type(objective).__name__: by_sweeps(train, factorizer(objective, 1.0, **shared), rounds[-1])
        for objective in (als.RG2(0.3), als.RGCross(0.3))
    }
    adam = Softmax(rounds[-1], 0.05, (1.0, 1.0), 0.0)
    runs["softmax, Adam"] = softmax_by_adam(train, adam, random_factors(train.shape, 5))
    for name, run in runs.items():
        cells = []
        for number, (_, users, items) in enumerate(run, start=1):
            if number in rounds:
                pairs = zip(users @ items.T, scores, strict=True)
                taus = [stats.kendalltau(*pair)[0] for pair in pairs]
                cells.append(f"{np.nanmean(taus):.3f}")  # NaN of a user without a positive
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runs: dict[str, Callable[..., Iterator[str]]]
    runs = {f.__name__: f for f in (quality, warm, studies)}
    parser.add_argument("run", choices=runs)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--set", choices=SETS, default="MovieLens-1M")
    arguments = parser.parse_args()
    for line in runs[arguments.run](arguments.data, arguments.set):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
