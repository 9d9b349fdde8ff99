"""Speed of metrics against their peers: NDCG@10 of 10,000 lists of 100 items, and several at once.

    python -m benchmarks.speed.metrics

Peers that are not installed are left out: scikit-learn, keras-rs, and on the second stack
tensorflow-ranking. The floor is NDCG@10 as one would write it in plain TensorFlow under XLA. CPU
milliseconds on one core of this machine, from calls in turn.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import Call, use_one_core
from benchmarks.speed.rows import Peer
from tfrank_sel import metrics

LISTS, ITEMS, BATCH = 10_000, 100, 500
PLAIN = Peer("NDCG@10 in plain XLA, without masks")


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


def in_batches(metric: Any, y_true: tf.Tensor, y_pred: tf.Tensor) -> Call:
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


def in_scikit_learn(y_true: tf.Tensor, y_pred: tf.Tensor) -> Call:
    from sklearn.metrics import ndcg_score

    gains, scores = 2.0 ** y_true.numpy() - 1.0, y_pred.numpy()
    return lambda: ndcg_score(gains, scores, k=10, ignore_ties=True)


def in_keras_rs(y_true: tf.Tensor, y_pred: tf.Tensor) -> Call:
    import keras_rs

    return in_batches(keras_rs.metrics.NDCG(k=10), y_true, y_pred)


def in_tensorflow_ranking(y_true: tf.Tensor, y_pred: tf.Tensor) -> Call:
    import tensorflow_ranking as tfr

    return in_batches(tfr.keras.metrics.NDCGMetric(topn=10), y_true, y_pred)


def found(rounds: int) -> Iterator[rows.Found]:
    rng = np.random.default_rng(0)
    y_true = tf.constant(rng.integers(0, 5, (LISTS, ITEMS)), tf.float32)
    y_pred = tf.constant(rng.normal(size=(LISTS, ITEMS)), tf.float32)
    one, several = metrics.Evaluator([metrics.NDCG(10)]), metrics.Evaluator(seven())
    one_inside, several_inside = in_graph(one), in_graph(several)
    arrays, left_out = rows.installed({"scikit-learn": lambda: in_scikit_learn(y_true, y_pred)})
    batches, missing = rows.installed(
        {
            "keras-rs": lambda: in_keras_rs(y_true, y_pred),
            "tensorflow-ranking": lambda: in_tensorflow_ranking(y_true, y_pred),
        }
    )
    yield from (*left_out, *missing)
    floor = {PLAIN: lambda: plain(y_true, y_pred).numpy()}
    whole = {"NDCG@10": lambda: one(y_true, y_pred)["ndcg_at_10"].mean().numpy()}
    yield from rows.compare(whole, floor | arrays, rounds)
    batched = {"NDCG@10, 20 batches of 500": in_batches(metrics.NDCG(10), y_true, y_pred)}
    yield from rows.compare(batched, floor | batches, rounds)
    names = "NDCG@1,5,10, MRR, MAP, P@10, ERR"
    others = {
        "NDCG@10 inside XLA": lambda: one_inside(y_true, y_pred)[0].numpy(),
        names: lambda: [x.values.numpy() for x in several(y_true, y_pred).values()],
        f"{names} inside XLA": lambda: [x.numpy() for x in several_inside(y_true, y_pred)],
    }
    yield from rows.compare(others, floor, rounds)


def main() -> None:
    arguments = rows.parser(__doc__, rounds=20).parse_args()
    use_one_core()
    rows.show(found(arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
