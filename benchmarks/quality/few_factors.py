"""Attempts to raise RG^x with 64 factors on a public split, by validation and by its test.

    python -m benchmarks.quality.few_factors --data gowalla --results results

`--data` is as in `benchmarks.quality.recommendation`, whose splits, validation and stored results
this has, too. Validation NDCG@20 chooses the settings of each attempt, and of those, the test is
shown beside it, one seed. Attempts below `WEIGHTED` start from its factors, with other scores, or
with Adam on cosines, where a step has 512 users, all their positives, and uniform items that all of
them share as negatives. The first table tells how far test and validation are from random parts:
the deviation over popular items of the share of their interactions that is held out. Seconds are
CPU time of the fit.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.quality.recommendation import (
    Benchmark,
    Method,
    Settings,
    arguments,
    by_products,
)
from tfrank_sel.models import als

K, BATCH, DRAWN, EPOCHS = 64, 512, 4096, 8
WEIGHTED = "base weights, few sweeps"
POPULAR = 200  # interactions
START = {"popularity_exponent": 0.5, "sweeps": 3}
Best = Callable[[], np.ndarray]
# what gives users' and items' vectors, from interactions, settings, start and seed
Change = Callable[[Any, Settings, tuple[Any, Any], int], tuple[Any, Any]]


def weighted(train: Any, settings: Settings, factors: int, seed: int) -> tuple[Any, Any]:
    options: dict[str, Any] = {**settings, "sweeps": int(settings["sweeps"])}
    objective = als.RGCross(0.05)
    model = als.RGFactorizer(
        objective, factors, regularization=0.6, cg_steps=3, num_threads=1, seed=seed, **options
    ).fit(train)
    return model.user_factors_, model.item_factors_


def by_weights(train: Any, settings: Settings, factors: int, _: int, seed: int) -> Best:
    return by_products(train, *weighted(train, settings, factors, seed))


def changed(change: Change, train: Any, settings: Settings, _: int, start: int, seed: int) -> Best:
    """Vectors that are made of those of `WEIGHTED`, which have `start` factors."""
    vectors = change(train, settings, weighted(train, START, start, seed), seed)
    return by_products(train, *(np.ascontiguousarray(x, np.float32) for x in vectors))


def by_norms(train: Any, settings: Settings, start: tuple[Any, Any], _: int) -> tuple[Any, Any]:
    users, items = start
    norms = np.linalg.norm(items, axis=1, keepdims=True)
    return users, items / np.maximum(norms, 1e-9) ** settings["norms"]


def by_neighbours(
    train: Any, settings: Settings, start: tuple[Any, Any], _: int
) -> tuple[Any, Any]:
    """Users by themselves and the sum of their items, of equal size over all users."""
    users, items = start
    sums = train @ items / np.sqrt(np.maximum(np.diff(train.indptr), 1.0))[:, np.newaxis]
    share = settings["share"] * np.linalg.norm(users) / np.linalg.norm(sums)
    return users + share * sums, items


def by_cut(train: Any, settings: Settings, start: tuple[Any, Any], _: int) -> tuple[Any, Any]:
    """The best approximation of all scores by 64 factors."""
    (left, right), (mixed, back) = zip(*map(np.linalg.qr, start), strict=True)
    users, sizes, items = np.linalg.svd(mixed @ back.T)
    return left @ users[:, :K] * sizes[:K], right @ items[:K].T


def by_adam(
    of_wrong: Callable[[tf.Tensor], tf.Tensor],
    train: Any,
    settings: Settings,
    start: tuple[Any, Any],
    seed: int,
) -> tuple[Any, Any]:
    """Cosines that minimise `sum_u n_u * of_wrong(logits of items) - sum_j (logit of positive)`."""
    random = np.random.default_rng(seed)
    tables = [tf.Variable(tf.math.l2_normalize(x, axis=1)) for x in start]
    parts = train.shape[0] // BATCH
    rate = keras.optimizers.schedules.CosineDecay(settings["rate"], EPOCHS * parts)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(tables)

    @tf.function(reduce_retracing=True)
    def step(rows: tf.Tensor, owner: tf.Tensor, positives: tf.Tensor, drawn: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            users, right, wrong = (
                tf.math.l2_normalize(tf.gather(tables[side], x), axis=1)
                for side, x in ((0, rows), (1, positives), (1, drawn))
            )
            of_positives = tf.reduce_sum(tf.gather(users, owner) * right) / settings["temperature"]
            logits = tf.matmul(users, wrong, transpose_b=True) / settings["temperature"]
            counts = tf.math.unsorted_segment_sum(tf.ones_like(owner), owner, tf.shape(rows)[0])
            loss = tf.reduce_sum(tf.cast(counts, tf.float32) * of_wrong(logits)) - of_positives
        gradients = [tf.convert_to_tensor(x) for x in tape.gradient(loss, tables)]
        optimizer.apply(gradients, tables)

    for _ in range(EPOCHS):
        for rows in np.array_split(random.permutation(train.shape[0]), parts):
            positives = train[rows]
            owner = np.repeat(np.arange(len(rows)), np.diff(positives.indptr))
            drawn = random.integers(0, train.shape[1], DRAWN)
            step(*map(tf.constant, (rows, owner, positives.indices, drawn)))
    return tuple(tf.math.l2_normalize(x, axis=1).numpy() for x in tables)


def of_rg(logits: tf.Tensor) -> tf.Tensor:
    """RG^x in place of the logarithm of the sum of exponentials: mean and half of the variance."""
    means, variances = tf.nn.moments(logits, 1)
    return means + variances / 2.0


def method(change: Change, start: int = K, **grid: tuple[float, ...]) -> Method:
    return Method(functools.partial(changed, change), grid, {K: start}, (K, start))


WEIGHTS = {"popularity_exponent": (0.0, 0.35, 0.5), "sweeps": (3.0, 4.0)}
PUBLISHED = {"popularity_exponent": (0.0,), "activity_exponent": (0.25,), "sweeps": (12.0,)}
ATTEMPTS = {
    "as above": Method(by_weights, PUBLISHED, {K: 0}, (K, 0)),
    WEIGHTED: Method(by_weights, WEIGHTS, {K: 0}, (K, 0)),
    "norms of items to a power": method(by_norms, norms=(0.25, 0.5)),
    "users with their items": method(by_neighbours, share=(0.3,)),
    "512 factors, cut to 64": method(by_cut, 512),
    "RG^x of cosines": method(functools.partial(by_adam, of_rg), temperature=(0.1,), rate=(0.003,)),
    "softmax of cosines": method(
        functools.partial(by_adam, functools.partial(tf.reduce_logsumexp, axis=1)),
        temperature=(0.1, 0.15),
        rate=(0.003,),
    ),
}


def shares(train: Any, held_out: Any) -> tuple[float, float]:
    """The deviation of the share of a popular item's interactions that is held out; by chance."""
    held = held_out.getnnz(axis=0)
    counts = train.getnnz(axis=0) + held
    popular = counts > POPULAR
    part = held.sum() / counts.sum()
    by_chance = np.sqrt(np.mean(part * (1.0 - part) / counts[popular]))
    return float(np.std(held[popular] / counts[popular])), float(by_chance)


def main() -> None:
    """Prints the tables."""
    options = arguments(__doc__).parse_args()
    benchmark = Benchmark(options.data, options.results, ATTEMPTS)
    print(f"| held out | deviation of shares | by chance |\n{'|---' * 3}|")
    for part, pair in benchmark.parts.items():
        print(f"| {part} | {' | '.join(f'{x:.3f}' for x in shares(*pair))} |")
    head = "attempt | settings | validation Recall@20 | NDCG@20 | test Recall@20 | NDCG@20 | CPU s"
    print(f"\n| {head} |\n{'|---' * 7}|")
    for name, attempt in ATTEMPTS.items():
        settings = benchmark.chosen(name)
        row = [name, ", ".join(f"{key} {value:g}" for key, value in settings.items())]
        for part in benchmark.parts:
            result = benchmark.quality(name, part, settings, attempt.judged)
            row += [f"{result[key]:.4f}" for key in ("recall@20", "ndcg@20")]
        print(f"| {' | '.join(row)} | {result['seconds']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
