"""The next item of a user, by one encoder and several losses of equal CPU seconds.

    python -m benchmarks.quality.encoders --data s3rec --results results --sets Beauty --seconds 60

Data, splits and rules are those of `benchmarks.quality.leave_one_out`, which has ALS.

The encoder is a `SequenceEncoder` of one block and the last 20 items, trained by Adam in steps of
256 sequences of about equal lengths, on one thread, for `--seconds` of CPU time. Each loss has the
settings of `--settings`, by their number in `GRID`, that have the best validation NDCG@10, of which
the table has all; with these it is trained on all items but those of the test, as often as
`--seeds`. Vectors may start from `RGFactorizer`, which is a row of its own and whose seconds are
included. RG^2 and RG^x have no logits: their items start with its norms, and are solved by
`als.ItemSolver` after each epoch. What `--results` holds is not computed again.
"""

import argparse
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = "1"

import keras
import numpy as np
import scipy.sparse as sp
import tensorflow as tf

from benchmarks.quality import leave_one_out
from benchmarks.quality.leave_one_out import FACTORS, SETS, Split, judged, nearest, stored
from benchmarks.quality.recommendation import arguments, by_popularity, by_products, over_seeds
from tfrank_sel import losses, models
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

LENGTH, BATCH, NEGATIVES, ALPHA = 20, 256, 256, 0.0025
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Settings(NamedTuple):
    """How an encoder starts and is trained.

    Attributes:
        norm: Root mean square of the norms of item vectors, for scores that are logits; 0 starts
            from random vectors instead of `RGFactorizer`'s.
        tied: Whether inputs have the vectors of the items, or their own, which start with norm 1.
        rate: Learning rate of Adam.
    """

    norm: float
    tied: bool
    rate: float

    def shown(self, name: str) -> str:
        """Those that matter to a loss."""
        norm = "" if is_solved(name) else f", norm {self.norm:g}"
        start = f"ALS{norm}" if self.norm else "random"
        return f"start {start}, {'tied' if self.tied else 'own inputs'}, rate {self.rate:g}"


# 0.5 is about the norm of Keras' first vectors
GRID = Settings(1.0, False, 0.001), Settings(0.5, True, 0.001), Settings(0.0, True, 0.003)
# a loss of the embedding of the items, and their frequencies
Make = Callable[[keras.layers.Embedding, np.ndarray], Loss]


def by_successors(of: Split) -> Callable[[], np.ndarray]:
    """The items that followed the last item most often."""
    inputs, targets = of.train.windows(LENGTH)
    pairs = inputs[inputs > 0] - 1, targets[inputs > 0] - 1
    size = of.matrix.shape[1]
    return nearest(of, sp.csr_matrix((np.ones(len(pairs[0])), pairs), (size, size)))


def factorized(of: Split, factors: int, seed: int) -> als.RGFactorizer:
    """RG^x without the order of items, with the settings of the best validation in its table."""
    model = als.RGFactorizer(
        als.RGCross(0.02),
        factors,
        regularization=0.6,
        sweeps=FACTORS[factors],
        num_threads=1,
        seed=seed,
    )
    return model.fit(of.matrix)


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


def is_solved(name: str) -> bool:
    """Whether a loss has no logits, and `als.ItemSolver` solves its items."""
    return name.startswith("RG")


def batches(inputs: np.ndarray, targets: np.ndarray, seed: int | None = None) -> tf.data.Dataset:
    """Windows of about equal lengths, without the padding that all have; shuffled with a seed."""
    lengths, random = np.count_nonzero(inputs, axis=1), np.random.default_rng(seed)

    def arrays() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = random.permutation(len(inputs))
        order = order[np.argsort(lengths[order], kind="stable")]
        starts = np.arange(0, len(order), BATCH)
        for start in starts if seed is None else random.permutation(starts):
            rows = order[start : start + BATCH]
            first = LENGTH - lengths[rows].max()
            yield inputs[rows, first:], targets[rows, first:]

    kinds = (tf.TensorSpec([None, None], tf.int32),) * 2
    data = tf.data.Dataset.from_generator(arrays, output_signature=kinds)
    return data.apply(tf.data.experimental.assert_cardinality(-(-len(inputs) // BATCH)))


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
    of: Split, name: str, factors: int, seconds: float, settings: Settings, seed: int
) -> dict[str, float]:
    """Trains an encoder; its quality, seconds and epochs."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    clock = Clock(seconds)
    num_items = of.matrix.shape[1]
    encoder = models.SequenceEncoder(
        num_items, factors, num_blocks=1, max_length=LENGTH, tied=settings.tied
    )
    if settings.norm:
        vectors = factorized(of, factors, seed).item_factors_
        unit = vectors / np.sqrt(np.mean(np.sum(vectors**2, axis=1)))
        vectors, unit = (np.pad(x, [(1, 0), (0, 0)]) for x in (vectors, unit))
        encoder.items_of_inputs.set_weights([unit])
        encoder.items.set_weights([vectors if is_solved(name) else settings.norm * unit])
    inputs, targets = of.train.windows(LENGTH)
    counts = np.bincount(targets[targets > 0], minlength=num_items + 1)[1:]
    solvers = [als.ItemSolver(batches(inputs, targets), num_threads=1)] if is_solved(name) else []
    encoder.compile(keras.optimizers.Adam(settings.rate), LOSSES[name](encoder.items, counts))
    encoder.fit(batches(inputs, targets, seed), epochs=1000, verbose=0, callbacks=[*solvers, clock])
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
) -> Iterator[tuple[str, str, str, list[dict[str, float]]]]:
    """Each model, its settings, those of validation (`data(2)`), and its results by seed."""
    results.mkdir(parents=True, exist_ok=True)

    def by_als(of: Split, seed: int) -> Callable[[], np.ndarray]:
        model = factorized(of, options.factors, seed)
        return by_products(of.matrix, model.user_factors_, model.item_factors_)

    for name, fit, seeds in (
        ("popularity", lambda of, _: by_popularity(of.matrix), 1),
        ("successors of the last item", lambda of, _: by_successors(of), 1),
        (f"RG^x by ALS, K = {options.factors}", by_als, options.seeds),
    ):

        def made(seed: int, fit: Any = fit) -> dict[str, float]:
            return judged(data(1), lambda of: fit(of, seed))

        paths = [results / f"{name} {seed}.json" for seed in range(seeds)]
        yield name, "", "", [stored(x, functools.partial(made, i)) for i, x in enumerate(paths)]

    def trained(name: str, last: int, settings: Settings, seed: int = 0) -> dict[str, float]:
        sizes = options.factors, options.seconds
        path = results / f"{' '.join(map(str, (name, last, *sizes, *settings, seed)))}.json"
        return stored(path, lambda: train(data(last), name, *sizes, settings, seed))

    for name in options.losses:
        tried = [GRID[number] for number in options.settings]
        judgements = {x: trained(name, 2, x)["ndcg@10"] for x in tried if len(tried) > 1}
        best = max(tried, key=lambda x: judgements.get(x, 0.0))
        shown = ", ".join(f"{x:.4f}" for x in judgements.values())
        runs = [trained(name, 1, best, seed) for seed in range(options.seeds)]
        yield name, best.shown(name), shown, runs


def main() -> None:
    """Prints the tables."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["Beauty", "Sports"])
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--factors", type=int, choices=FACTORS, default=256)
    parser.add_argument("--settings", nargs="+", type=int, default=range(len(GRID)))
    parser.add_argument("--seconds", type=float, default=90.0, help="CPU time of a training")
    parser.add_argument("--seeds", type=int, default=3, help="number of fits of each row")
    options = parser.parse_args()
    for name in options.sets:
        head = [name, "settings", "validation", "NDCG@10", "Recall@10", "CPU s", "epochs"]
        print(f"\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
        data = functools.partial(SETS[name], options.data)
        for model, *cells, runs in rows(data, options.results / name, options):
            values = [over_seeds(runs, key) for key in ("ndcg@10", "recall@10")]
            values.append(f"{np.median([run['seconds'] for run in runs]):.0f}")
            values.append(f"{runs[0]['epochs']:.1f}" if "epochs" in runs[0] else "")
            print(f"| {' | '.join((model, *cells, *values))} |", flush=True)


if __name__ == "__main__":
    main()
