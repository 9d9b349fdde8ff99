"""Speed of metrics beside their peers: NDCG@10 of 10,000 lists of 100 items, and several at once.

    python -m benchmarks.metrics

Peers that are not installed are left out: scikit-learn, keras-rs, and on the second stack
tensorflow-ranking. Prints a Markdown table: CPU milliseconds on one core of this machine, from
calls in turn, and ratios to NDCG@10 as one would write it in plain TensorFlow under XLA.
"""

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.interleaved import machine, timings, use_one_core
from tfrank_sel import metrics

LISTS, ITEMS, BATCH = 10_000, 100, 500
PLAIN = "plain XLA, top_k"


@tf.function(jit_compile=True, autograph=False)
def plain(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """NDCG@10 by hand: no mask, no weights."""
    gains = 2.0**y_true - 1.0
    discounts = 1.0 / np.log2(np.arange(2.0, 12.0, dtype=np.float32))
    on_top = tf.gather(gains, tf.math.top_k(y_pred, 10).indices, batch_dims=1)
    best = tf.math.top_k(gains, 10).values
    dcg, ideal = (tf.reduce_sum(x * discounts, axis=-1) for x in (on_top, best))
    return tf.reduce_mean(tf.math.divide_no_nan(dcg, ideal))


def seven() -> list[metrics.ListwiseMetric]:
    ndcgs = [metrics.NDCG(k, name=f"ndcg@{k}") for k in (1, 5, 10)]
    return [*ndcgs, metrics.MRR(), metrics.MAP(), metrics.Precision(10), metrics.ERR()]


def in_graph(evaluator: metrics.Evaluator) -> Callable[[tf.Tensor, tf.Tensor], Any]:
    """The call inside a compiled function, as in an evaluation step."""
    return tf.function(
        lambda y, s: [x.mean() for x in evaluator(y, s).values()], jit_compile=True, autograph=False
    )


def in_batches(metric: Any, y_true: tf.Tensor, y_pred: tf.Tensor) -> Callable[[], Any]:
    """Updates a Keras metric batch by batch in a graph, as `Model.evaluate` does."""

    @tf.function
    def update(y: tf.Tensor, s: tf.Tensor) -> None:
        metric.update_state(y, s)

    batches = [
        (y_true[i : i + BATCH], y_pred[i : i + BATCH]) for i in range(0, y_true.shape[0], BATCH)
    ]

    def call() -> Any:
        metric.reset_state()
        for y, s in batches:
            update(y, s)
        return float(metric.result())

    return call


def peers(y_true: tf.Tensor, y_pred: tf.Tensor) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    labels, scores = y_true.numpy(), y_pred.numpy()
    if sklearn := imported("sklearn.metrics"):
        gains = 2.0**labels - 1.0
        found["scikit-learn ndcg_score"] = lambda: sklearn.ndcg_score(
            gains, scores, k=10, ignore_ties=True
        )
    if keras_rs := imported("keras_rs"):
        metric = keras_rs.metrics.NDCG(k=10)
        found["keras-rs NDCG, 20 x 500"] = in_batches(metric, y_true, y_pred)
    if tfr := imported("tensorflow_ranking"):
        metric = tfr.keras.metrics.NDCGMetric(topn=10)
        found["tensorflow-ranking NDCGMetric, 20 x 500"] = in_batches(metric, y_true, y_pred)
    return found


def imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="calls of each")
    rounds = parser.parse_args().rounds
    use_one_core()
    rng = np.random.default_rng(0)
    y_true = tf.constant(rng.integers(0, 5, (LISTS, ITEMS)), tf.float32)
    y_pred = tf.constant(rng.normal(size=(LISTS, ITEMS)), tf.float32)
    one = metrics.Evaluator([metrics.NDCG(10)])
    many = metrics.Evaluator(seven())
    one_inside, many_inside = (
        in_graph(metrics.Evaluator([metrics.NDCG(10)])),
        in_graph(metrics.Evaluator(seven())),
    )
    functions = {
        PLAIN: lambda: plain(y_true, y_pred).numpy(),
        "ours, NDCG": lambda: one(y_true, y_pred)["ndcg"].mean().numpy(),
        "ours, NDCG inside XLA": lambda: one_inside(y_true, y_pred)[0].numpy(),
        "ours, NDCG, 20 x 500": in_batches(metrics.NDCG(10), y_true, y_pred),
        "ours, NDCG@1,5,10, MRR, MAP, P@10, ERR": lambda: [
            x.values.numpy() for x in many(y_true, y_pred).values()
        ],
        "ours, these inside XLA": lambda: [x.numpy() for x in many_inside(y_true, y_pred)],
        **peers(y_true, y_pred),
    }
    found = timings(functions, rounds)
    print(machine())
    print(
        "\n| NDCG@10, 10,000 lists x 100 items | ms | x plain | first call s |\n|---|---|---|---|"
    )
    for name, timing in found.items():
        ratio = timing.seconds / found[PLAIN].seconds
        print(f"| {name} | {1e3 * timing.seconds:.1f} | {ratio:.2f} | {timing.first:.1f} |")


if __name__ == "__main__":
    main()
