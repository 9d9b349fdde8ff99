"""The next item of a user, by one encoder and several losses of equal CPU seconds.

    python -m benchmarks.quality.encoders --data s3rec --results results --sets Beauty --seconds 60

Data, splits and rules are those of `benchmarks.quality.leave_one_out`, which has ALS.

The encoder is a `SequenceEncoder` of one block and the last 20 items, trained by Adam in steps of
256 sequences, on one thread. Settings of each loss are a learning rate, and item vectors that start
at random or from `RGFactorizer`. Each is trained for `--seconds` of CPU time, those of that
factorisation included; those of the best validation NDCG@10 are trained anew, with all items but
those of the test, as often as `--seeds`. RG^2 and RG^x have no logits: their items are solved by
`als.ItemSolver` after each epoch. What `--results` holds is not computed again.
"""

import argparse
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = "1"

import keras
import numpy as np
import scipy.sparse as sp
import tensorflow as tf

from benchmarks.quality import leave_one_out
from benchmarks.quality.leave_one_out import FACTORS, SETS, Split, judged, nearest, stored
from benchmarks.quality.recommendation import arguments, over_seeds
from tfrank_sel import losses, models
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

LENGTH, BATCH, NEGATIVES, ALPHA = 20, 256, 256, 0.0025
GRID = [{"rate": 0.003, "from ALS": start} for start in (0, 1)]
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
# a loss of the embedding of the items, and their frequencies
Make = Callable[[keras.layers.Embedding, np.ndarray], Loss]


def by_successors(of: Split) -> Callable[[], np.ndarray]:
    """The items that followed the last item most often."""
    inputs, targets = of.train.windows(LENGTH)
    pairs = inputs[inputs > 0] - 1, targets[inputs > 0] - 1
    size = of.matrix.shape[1]
    return nearest(of, sp.csr_matrix((np.ones(len(pairs[0])), pairs), (size, size)))


def of_positions(function: Any) -> Any:
    """A loss of the states that have a target, and of these."""

    def loss(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        there = y_true > 0
        targets = tf.cast(y_true[there], tf.int32)  # Keras casts them to floats
        return tf.reduce_mean(function(tf.boolean_mask(y_pred, there), targets))

    return loss


def binary(negatives: int, calibration: float) -> Make:
    """BCE of an item against negatives; gBCE (Petrov and Macdonald, 2023) if calibrated."""

    def make(items: keras.layers.Embedding, counts: np.ndarray) -> Loss:
        share = negatives / (len(counts) - 1)
        beta = share * (calibration * (1.0 - 1.0 / share) + 1.0 / share)

        @of_positions
        def loss(states: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            vectors, count = items.embeddings, tf.shape(states)[0]
            score = tf.reduce_sum(states * tf.gather(vectors, targets), axis=1)
            shape = [count] if negatives == 1 else [negatives]
            drawn = tf.gather(vectors, tf.random.uniform(shape, 1, len(counts) + 1, tf.int32))
            others = (
                tf.reduce_sum(states * drawn, axis=1, keepdims=True)
                if negatives == 1
                else tf.matmul(states, drawn, transpose_b=True)
            )
            return beta * tf.nn.softplus(-score) + tf.reduce_sum(tf.nn.softplus(others), axis=1)

        return loss

    return make


def sampled(items: keras.layers.Embedding, counts: np.ndarray) -> Loss:
    """TensorFlow's sampled softmax: negatives by frequency, less the logarithms of theirs."""

    @of_positions
    def loss(states: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        labels = tf.cast(targets[:, tf.newaxis] - 1, tf.int64)
        drawn = tf.random.fixed_unigram_candidate_sampler(
            labels, 1, NEGATIVES, True, len(counts), unigrams=np.maximum(counts, 0.5).tolist()
        )
        vectors, zeros = items.embeddings[1:], tf.zeros(len(counts))
        options = NEGATIVES, len(counts), 1, drawn
        return tf.nn.sampled_softmax_loss(vectors, zeros, labels, states, *options)

    return loss


def catalogue(loss: Any) -> Make:
    return lambda items, counts: losses.CatalogueLoss(loss, items)


LOSSES: dict[str, Make] = {
    "RG^x, items solved": catalogue(losses.RGCrossLoss(ALPHA)),
    "softmax, all items": catalogue(losses.SoftmaxLoss()),
    f"softmax, {NEGATIVES} negatives, logQ": sampled,
    f"gBCE, {NEGATIVES} negatives": binary(NEGATIVES, 0.75),
    "BCE, 1 negative": binary(1, 0.0),
    "RG^2, items solved": catalogue(losses.RG2Loss(ALPHA)),
    "smooth top-10, all items": catalogue(losses.SmoothTopKLoss(10)),
}


class Clock(keras.callbacks.Callback):
    """Ends a training after CPU seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.began, self.seconds, self.epochs = time.process_time(), seconds, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.epochs += 1.0 / self.params["steps"]
        if time.process_time() - self.began > self.seconds:
            self.model.stop_training = True


def train(
    of: Split, name: str, factors: int, seconds: float, settings: dict[str, float], seed: int
) -> dict[str, float]:
    """Trains an encoder; its quality, seconds and epochs."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    clock = Clock(seconds)
    num_items = of.matrix.shape[1]
    encoder = models.SequenceEncoder(num_items, factors, num_blocks=1, max_length=LENGTH)
    if settings["from ALS"]:
        start = als.RGFactorizer(
            als.RGCross(0.02),
            factors,
            regularization=0.6,
            sweeps=FACTORS[factors],
            num_threads=1,
            seed=seed,
        ).fit(of.matrix)
        encoder.items.set_weights([np.pad(start.item_factors_, [(1, 0), (0, 0)])])
    inputs, targets = of.train.windows(LENGTH)
    counts = np.bincount(targets[targets > 0], minlength=num_items + 1)[1:]
    solvers = [als.ItemSolver(inputs, targets, num_threads=1)] if name.startswith("RG") else []
    optimizer = keras.optimizers.Adam(settings["rate"])
    encoder.compile(optimizer, LOSSES[name](encoder.items, counts))
    encoder.fit(
        inputs, targets, batch_size=BATCH, epochs=1000, verbose=0, callbacks=[*solvers, clock]
    )
    spent, states = time.process_time() - clock.began, []
    for rows in np.array_split(of.train.histories(LENGTH), max(1, len(of.target.indptr) // 1024)):
        states.append(np.asarray(encoder.predict_on_batch(rows)[:, -1], np.float32))
    vectors = np.ascontiguousarray(encoder.items.get_weights()[0][1:])
    best, _ = retrieval.best(np.concatenate(states), vectors, leave_one_out.K, of.matrix)
    return {
        **retrieval.ranking_quality(best, of.target),
        "seconds": spent,
        "epochs": clock.epochs,
    }


def rows(
    data: Callable[[int], Split], results: pathlib.Path, options: argparse.Namespace
) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Each loss, its settings, and its results by seed; `data(2)` is for validation."""
    results.mkdir(parents=True, exist_ok=True)
    successors = "successors of the last item"
    path = results / f"{successors}.json"
    yield successors, "", [stored(path, lambda: judged(data(1), by_successors))]

    def found(name: str, last: int, settings: dict[str, float], seed: int = 0) -> dict[str, float]:
        size = options.factors, options.seconds
        key = " ".join(map(str, (name, last, *size, *settings.values(), seed)))
        path = results / f"{key}.json"
        return stored(path, lambda: train(data(last), name, *size, settings, seed))

    for name in options.losses:
        of_validation = [found(name, 2, settings)["ndcg@10"] for settings in GRID]
        best = GRID[int(np.argmax(of_validation))]
        runs = [found(name, 1, best, seed) for seed in range(options.seeds)]
        yield name, ", ".join(f"{key} {value:g}" for key, value in best.items()), runs


def main() -> None:
    """Prints the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["Beauty", "Sports"])
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--factors", type=int, choices=FACTORS, default=64)
    parser.add_argument("--seconds", type=float, default=300, help="CPU time of a training")
    parser.add_argument("--seeds", type=int, default=5, help="number of fits of each row")
    options = parser.parse_args()
    for name in options.sets:
        head = [name, "settings", "NDCG@10", "Recall@10", "CPU s", "epochs"]
        print(f"\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
        data = functools.partial(SETS[name], options.data)
        for model, settings, runs in rows(data, options.results / name, options):
            values = [over_seeds(runs, key) for key in ("ndcg@10", "recall@10")]
            values.append(f"{np.median([run['seconds'] for run in runs]):.0f}")
            values.append(f"{runs[0]['epochs']:.1f}" if "epochs" in runs[0] else "")
            print(f"| {' | '.join((model, settings, *values))} |", flush=True)


if __name__ == "__main__":
    main()
