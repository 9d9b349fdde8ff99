"""How good the factors of RG, WRMF, softmax and implicit's models are, and how soon.

    python -m benchmarks.rg_quality quality --data DIR [--set Gowalla]  # validation, test, time
    python -m benchmarks.rg_quality warm --data DIR [--set Gowalla]     # sweeps after epochs
    python -m benchmarks.rg_quality ridge --data DIR [--set Gowalla]    # logit norm by lambda

Settings were chosen by validation NDCG@10. It needs the extra `als`, and `implicit` for `quality`.
"""

import argparse
import dataclasses
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

from benchmarks.rg import SETS, K, random_factors, read
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

# seconds of training so far, the factors of users and of items
Curve: TypeAlias = Iterator[tuple[float, Any, Any]]

THREADS = len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class Settings:
    """What validates best on one set.

    Args:
        epochs: Of softmax by Adam.
        penalties: Of the squares of the users' and of the items' factors in a batch of softmax.
        factorizers: By name.
        sweeps: Of the factorizers, and of implicit's ALS.
        implicit_als: Its arguments.
        implicit_bpr: Its arguments.
    """

    epochs: int
    penalties: tuple[float, float]
    factorizers: Mapping[str, als.RGFactorizer]
    sweeps: int
    implicit_als: Mapping[str, float]
    implicit_bpr: Mapping[str, float]


def factorizer(objective: als.Objective, strength: float, **options: Any) -> als.RGFactorizer:
    options = {"count_exponent": 0.5, "sweeps": 1, "num_threads": THREADS, **options}
    return als.RGFactorizer(objective, K, strength, **options)


SETTINGS = {
    "MovieLens-1M": Settings(
        60,
        (8.0, 2.5),
        {
            "RG^2": factorizer(als.RG2(0.05), 1.0),
            "RG^x": factorizer(als.RGCross(0.05), 1.0),
            "WRMF": factorizer(als.WeightedSquare(1.0, 1.0, 0.4), 1.0),
        },
        12,
        {"regularization": 1.0, "alpha": 4.0},
        {"regularization": 0.01, "learning_rate": 0.05},
    ),
    "Gowalla": Settings(
        30,
        (1.0, 0.05),
        {
            "RG^2": factorizer(als.RG2(0.03), 0.5, popularity_exponent=0.5),
            "RG^x": factorizer(als.RGCross(0.05), 0.25, popularity_exponent=0.5),
            "WRMF": factorizer(als.WeightedSquare(1.0, 1.0, 0.02), 0.05, popularity_exponent=0.5),
        },
        6,
        {"regularization": 1.0, "alpha": 4.0},
        {"regularization": 0.01, "learning_rate": 0.05},
    ),
}


def judged(users: Any, items: Any, train: Any, held_out: Any, k: int) -> dict[str, float]:
    ids, _ = retrieval.best(users, items, k, train, THREADS)
    return retrieval.ranking_quality(ids, held_out)


def softmax_by_adam(train: Any, epochs: int, penalties: tuple[float, float]) -> Curve:
    """Full softmax over all items, in mini-batches of users."""
    users, items = (tf.Variable(x) for x in random_factors(train.shape))
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build([users, items])

    @tf.function(reduce_retracing=True)
    def step(rows: tf.Tensor, positives: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            logits = tf.matmul(tf.gather(users, rows), items, transpose_b=True)
            loss = -tf.reduce_sum(positives * tf.nn.log_softmax(logits))
            for side, penalty in zip((tf.gather(users, rows), items), penalties, strict=True):
                loss += 0.5 * penalty * tf.reduce_sum(side * side)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [users, items])]
        optimizer.apply(gradients, [users, items])

    rng, spent = np.random.default_rng(0), 0.0
    for _ in range(epochs):
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

    yield "softmax, Adam", softmax_by_adam(train, settings.epochs, settings.penalties)
    for name, model in settings.factorizers.items():
        yield name, by_sweeps(train, model, settings.sweeps)
    shared = {"factors": K, "num_threads": THREADS, "random_state": 0}
    model = AlternatingLeastSquares(**shared, **settings.implicit_als, iterations=1)
    yield "implicit ALS", by_implicit(train, model, settings.sweeps)
    model = BayesianPersonalizedRanking(**shared, **settings.implicit_bpr, iterations=10)
    yield "implicit BPR", by_implicit(train, model, 15)


def quality(data: pathlib.Path, name: str) -> Iterator[str]:
    train, validation, test = read(data, name)
    yield (
        "| model | NDCG@10 | NDCG@20 | Recall@20 | MRR@20 | validation NDCG@10 "
        "| its seconds | seconds to 99% of softmax's best |"
    )
    goal = 0.0
    for model, run in curves(train, SETTINGS[name]):
        curve, best = [], (-1.0, 0.0, None, None)
        for spent, users, items in run:
            reached = judged(users, items, train, validation, 10)["ndcg@10"]
            curve.append((spent, reached))
            if reached > best[0]:
                best = (reached, spent, users.copy(), items.copy())
        goal = goal or 0.99 * best[0]
        sooner = next((f"{spent:.2f}" for spent, reached in curve if reached >= goal), "-")
        at = {k: judged(*best[2:], train + validation, test, k) for k in (10, 20)}
        values = [at[10]["ndcg@10"], *at[20].values(), best[0]]
        shown = " | ".join(f"{value:.4f}" for value in values)
        yield f"| {model} | {shown} | {best[1]:.2f} | {sooner} |"


def warm(data: pathlib.Path, name: str) -> Iterator[str]:
    """Validation NDCG@10 of sweeps that start from the factors of softmax."""
    train, validation, _ = read(data, name)
    settings = SETTINGS[name]
    yield "| epochs of softmax | NDCG@10 | " + " | ".join(
        f"{model}, sweep {count}" for model in ("RG^2", "RG^x") for count in (1, 2, 4)
    )
    started = softmax_by_adam(train, settings.epochs, settings.penalties)
    for epoch, (_, *factors) in enumerate(started, start=1):
        if epoch not in (1, 2, 4, 8, 16, settings.epochs):
            continue
        row = [judged(*factors, train, validation, 10)["ndcg@10"]]
        for model in (settings.factorizers["RG^2"], settings.factorizers["RG^x"]):
            model.fit(train, factors=factors)
            for more in (0, 1, 2):
                model.partial_fit(train, more)
                reached = judged(model.user_factors_, model.item_factors_, train, validation, 10)
                row.append(reached["ndcg@10"])
        yield f"| {epoch} | " + " | ".join(f"{value:.4f}" for value in row) + " |"


def ridge(data: pathlib.Path, name: str) -> Iterator[str]:
    train, validation, _ = read(data, name)
    yield "| lambda | RG^2 NDCG@10 | logit norm | RG^x NDCG@10 | logit norm |"
    for strength in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0):
        row = [f"{strength}"]
        for objective in (als.RG2(0.03), als.RGCross(0.03)):
            model = factorizer(objective, strength, sweeps=10)
            last = model.fit(train, validation).history_[-1]
            row += [f"{last['ndcg@10']:.4f}", f"{last['logit_norm']:.2f}"]
        yield "| " + " | ".join(row) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runs: dict[str, Callable[..., Iterator[str]]]
    runs = {f.__name__: f for f in (quality, warm, ridge)}
    parser.add_argument("run", choices=runs)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--set", choices=SETS, default="MovieLens-1M")
    arguments = parser.parse_args()
    for line in runs[arguments.run](arguments.data, arguments.set):
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
