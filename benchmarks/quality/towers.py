"""Two towers at equal CPU seconds: all items, in-batch negatives with logQ, sampled softmax.

    python -m benchmarks.quality.towers --data ml-1m.npz --results results
    python -m benchmarks.quality.towers --data gowalla --results results --seconds 60

`--data` is as in `benchmarks.quality.recommendation`, whose splits, validation and stored results
this has, too. The towers are embeddings of identifiers, K = 64, trained by Adam for `--seconds` of
CPU time at a rate that falls to 0 as a cosine. Each method has six settings. `fit_towers` minimises
RG^x over all items. The others compare cosines: a batch of 512 interactions is ranked among its
own items, with the logarithms of counts as `log_q`, or among 512 items drawn uniformly. The time
to compile the steps of these two is not counted. The differences are those to in-batch negatives,
with 95 % intervals by paired bootstrap over users.
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.quality.judging import interval
from benchmarks.quality.recommendation import (
    Benchmark,
    Fit,
    Method,
    Settings,
    arguments,
    by_products,
)
from tfrank_sel import losses
from tfrank_sel.models import als

FACTORS, BATCH = 64, 512
BASE = "in-batch negatives, `log_q`"


def by_all_items(
    train: Any, settings: Settings, factors: int, seconds: int, seed: int
) -> Callable[[], np.ndarray]:
    few, many = (_timed(train, settings, factors, epochs) for epochs in (2, 8))
    epochs = max(1, 2 + int((seconds - few) / (many - few) * 6.0))
    model = _fitted(train, settings, factors, epochs, seed)
    return by_products(train, model.user_factors_, model.item_factors_)


_TIMES: dict[tuple[Any, ...], float] = {}


def _timed(train: Any, settings: Settings, factors: int, epochs: int) -> float:
    """The CPU seconds of some epochs, measured once for all settings."""
    key = (*train.shape, factors, epochs)
    if key not in _TIMES:
        began = time.process_time()
        _fitted(train, settings, factors, epochs, 0)
        _TIMES[key] = time.process_time() - began
    return _TIMES[key]


def _fitted(
    train: Any, settings: Settings, factors: int, epochs: int, seed: int
) -> als.RGFactorizer:
    keras.utils.set_random_seed(seed)
    tables = [
        keras.layers.Embedding(n, factors, keras.initializers.RandomNormal(0.0, 0.1, seed))
        for n in train.shape
    ]
    towers = [keras.Sequential([keras.Input([], dtype="int32"), x]) for x in tables]
    model = als.RGFactorizer(als.RGCross(settings["alpha"]), factors, seed=seed, num_threads=1)
    steps = epochs * max(train.shape) // 512
    rate = keras.optimizers.schedules.CosineDecay(settings["rate"], steps)
    features = tuple(np.arange(n, dtype=np.int32) for n in train.shape)
    optimizer = keras.optimizers.Adam(rate)
    return als.fit_towers(model, train, tuple(towers), features, optimizer, epochs=epochs)


def by_pairs(in_batch: bool) -> Fit:
    """Towers trained on pairs, with the other items of a batch or any items as negatives."""

    def fit(
        train: Any, settings: Settings, factors: int, seconds: int, seed: int
    ) -> Callable[[], np.ndarray]:
        random = np.random.default_rng(seed)
        tables = [
            tf.Variable(random.normal(0.0, 0.1, [n, factors]).astype(np.float32))
            for n in train.shape
        ]
        means, squares = ([tf.Variable(tf.zeros_like(x)) for x in tables] for _ in range(2))
        counts = np.maximum(np.bincount(train.indices, minlength=train.shape[1]), 1.0)
        temperature = settings["temperature"]
        loss = losses.InBatchInfoNCELoss(temperature, log_q=np.log(counts))
        steps = tf.Variable(0.0)

        @tf.function(jit_compile=True, autograph=False)
        def step(users: tf.Tensor, items: tf.Tensor, others: tf.Tensor, rate: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                of_users, of_items = (
                    tf.math.l2_normalize(tf.gather(table, x), axis=1)
                    for table, x in zip(tables, (users, items), strict=True)
                )
                if in_batch:
                    value = loss(items, tf.matmul(of_users, of_items, transpose_b=True))
                else:
                    drawn = tf.math.l2_normalize(tf.gather(tables[1], others), axis=1)
                    wrong = tf.matmul(of_users, drawn, transpose_b=True) / temperature
                    wrong = tf.where(items[:, tf.newaxis] == others, -1e9, wrong)
                    right = tf.reduce_sum(of_users * of_items, axis=1) / temperature
                    logits = tf.concat([right[:, tf.newaxis], wrong], axis=1)
                    value = tf.reduce_mean(tf.reduce_logsumexp(logits, axis=1) - right)
            gradients = tape.gradient(value, tables)
            rate *= tf.sqrt(1.0 - 0.999 ** steps.assign_add(1.0)) / (1.0 - 0.9**steps)
            for x, m, v, g in zip(tables, means, squares, gradients, strict=True):
                g = tf.convert_to_tensor(g)
                m.assign(0.9 * m + 0.1 * g)
                v.assign(0.999 * v + 0.001 * tf.square(g))
                x.assign_sub(rate * m / (tf.sqrt(v) + 1e-7))
            return value

        pairs = train.tocoo()
        zeros = tf.zeros([BATCH], tf.int32)
        step(zeros, zeros, zeros, tf.constant(0.0))  # compiles it
        for variable in (*means, *squares, steps):
            variable.assign(tf.zeros_like(variable))
        began, done = time.process_time(), 0.0
        while done < 1.0:
            order = random.permutation(train.nnz)
            for start in range(0, train.nnz - BATCH, BATCH):
                some = order[start : start + BATCH]
                others = random.integers(0, train.shape[1], BATCH, np.int32)
                rate = settings["rate"] * (1.0 + np.cos(np.pi * done)) / 2.0
                drawn = pairs.row[some], pairs.col[some], others
                float(step(*drawn, tf.constant(rate, tf.float32)))  # steps would queue up
                done = (time.process_time() - began) / seconds
                if done >= 1.0:
                    break
        return by_products(train, *(tf.math.l2_normalize(x, axis=1).numpy() for x in tables))

    return fit


def methods(seconds: int) -> dict[str, Method]:
    size = {FACTORS: seconds}
    rates = {"rate": (0.01, 0.03)}
    cosines = {"temperature": (0.07, 0.14, 0.28), **rates}
    alphas = {"alpha": (0.02, 0.05, 0.1), **rates}
    grids: dict[str, tuple[Fit, Any]] = {
        BASE: (by_pairs(True), cosines),
        "uniform negatives": (by_pairs(False), cosines),
        "`fit_towers`, all items": (by_all_items, alphas),
    }
    return {
        name: Method(fit, grid, size, (FACTORS, seconds), seeded=True)
        for name, (fit, grid) in grids.items()
    }


def gap(values: np.ndarray, base: np.ndarray) -> str:
    low, high = interval(values - base)
    return f"{np.mean(values - base):+.4f} ({low:+.4f} to {high:+.4f})"


def main() -> None:
    """Prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="CPU time of a fit")
    parser.add_argument("--seeds", type=int, default=3, help="number of fits of each row")
    options = parser.parse_args()
    print(
        "| towers | settings | Recall@20 | NDCG@20 | Recall@20 - the first row's (95 %) "
        f"| NDCG@20 - the first row's (95 %) | CPU s |\n{'|---' * 7}|"
    )
    benchmark = Benchmark(options.data, options.results, methods(options.seconds))
    base: dict[str, np.ndarray] | None = None
    for name, settings, runs in benchmark.rows(options.seeds, list(benchmark.methods), [FACTORS]):
        found = {key: np.mean([x[key] for x in runs], axis=0) for key in runs[0]}
        gaps = " | "
        if base is None:
            base = found
        else:
            gaps = " | ".join(gap(found[key], base[key]) for key in ("recalls", "users"))
        told = ", ".join(f"{key} {value:g}" for key, value in settings.items())
        print(
            f"| {name} | {told} | {found['recall@20']:.4f} | {found['ndcg@20']:.4f} "
            f"| {gaps} | {found['seconds']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
