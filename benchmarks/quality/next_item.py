"""A held-out item of a user as its class, of up to 41,000: softmax, top-k and RG losses.

    python -m benchmarks.quality.next_item --data DATA --results results --seconds 8

DATA has `gowalla_public.npz` and `yelp2018_public.npz`, the splits of NGCF and LightGCN. They have
no times, so that a class is not the next item, but any: a row is an item of a user, and what is
known of it are at most 50 of his other items. Top-k accuracy is the probability that an item drawn
from the user's test items is among the `k` first items that he has not in training.

A state is the sum of the vectors of the known items, by the root of their number, times a matrix.
Its logits are its products with the same item vectors, for all items (`CatalogueLoss`); whole
catalogues start from one short factorisation. Adam trains on one thread for `--seconds` of CPU
time, compilation not included. One training row in ten validates the learning rate, by top-5
accuracy, with the first seed. Accuracies are those of 3,000 users.

Sets of 1,000 classes are those of the most popular items, with all rows, an eighth, or 40 % of the
labels replaced by one of the five items whose users are most similar. Validation has such labels,
too. What `--results` holds is not computed again.
"""

import argparse
import dataclasses
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
from keras import ops
from numpy.typing import NDArray
from scipy.special import logsumexp

from benchmarks.quality.leave_one_out import stored
from benchmarks.quality.recommendation import arguments, over_seeds
from tfrank_sel import losses
from tfrank_sel.models import als
from tfrank_sel.models.als import retrieval

Array = NDArray[Any]

FACTORS, BATCH, KNOWN = 64, 256, 50
JUDGED = 3000  # users
TOPS = (1, 5, 20)
CHOSEN_BY = 5
CLASSES, SIMILAR = 1000, 5
RATES, RATES_FROM_START = (0.003, 0.01), (0.0002, 0.001)
SCALES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
LOSSES: dict[str, losses.ListwiseLoss] = {
    "SoftmaxLoss": losses.SoftmaxLoss(),
    "SmoothTopKLoss(5)": losses.SmoothTopKLoss(5),
    "TopKCrossEntropyLoss([1, 5])": losses.TopKCrossEntropyLoss([1, 5]),
    "RGCrossLoss(0.05)": losses.RGCrossLoss(0.05),
}
START = "(RG^x by ALS, the start)"


@dataclasses.dataclass(frozen=True)
class Set:
    """What a row of the table is about.

    Args:
        file: Its name in DATA.
        classes: Number of most popular items that are kept; all if `None`.
        share: Of the training rows.
        noise: Share of the labels that are replaced by similar items.
    """

    file: str
    classes: int | None = None
    share: float = 1.0
    noise: float = 0.0


YELP = "yelp2018_public.npz"
SETS = {
    "Gowalla": Set("gowalla_public.npz"),
    "Yelp2018": Set(YELP),
    "1,000 classes": Set(YELP, CLASSES),
    "an eighth of the rows": Set(YELP, CLASSES, share=0.125),
    "40 % similar class": Set(YELP, CLASSES, noise=0.4),
}


def _matrix(users: Array, items: Array, shape: tuple[int, int]) -> Any:
    return sp.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape)


class Data:
    """The rows to learn from, and the users to judge by validation or test items."""

    def __init__(self, folder: pathlib.Path, of: Set) -> None:
        random = np.random.default_rng(0)
        with np.load(folder / of.file) as arrays:
            users, items, *others = (
                arrays[f"{part}_{side}"].astype(int)
                for part in ("train", "test")
                for side in ("user", "item")
            )
        shape = users.max() + 1, max(items.max(), others[1].max()) + 1
        train, test = (_matrix(*pairs, shape) for pairs in ((users, items), others))
        if of.classes:
            popular = np.sort(np.argsort(-np.bincount(items), kind="stable")[: of.classes])
            train, test = train[:, popular], test[:, popular]
            active = np.diff(train.indptr) > 2
            train, test = train[active], test[active]
        users, items = train.nonzero()
        labels = self._noisy(items, train, of, random)
        held_out = random.random(len(users)) < 0.1
        validation = _matrix(users[held_out], labels[held_out], train.shape)
        self.matrix = _matrix(users[~held_out], items[~held_out], train.shape)
        kept = ~held_out & (random.random(len(users)) < of.share)
        self.users, self.items, self.labels = users[kept], items[kept], labels[kept]
        self.known = np.zeros([train.shape[0], KNOWN], np.int32)
        for user, own in enumerate(np.split(self.matrix.indices, self.matrix.indptr[1:-1])):
            drawn = random.permutation(own)[:KNOWN]
            self.known[user, : len(drawn)] = drawn + 1
        self.judged = random.permutation(np.flatnonzero(np.diff(test.indptr)))[:JUDGED]
        self.seen = self.matrix[self.judged]
        self.relevant = {"validation": validation[self.judged], "test": test[self.judged]}

    @staticmethod
    def _noisy(items: Array, train: Any, of: Set, random: np.random.Generator) -> Array:
        """Draws a share of the labels anew."""
        if not of.noise:
            return items
        norms = np.sqrt(train.sum(axis=0).A1)
        cosines = (train.T @ train).toarray() / norms / norms[:, np.newaxis]
        similar = np.argsort(-cosines, axis=1)[:, 1 : SIMILAR + 1]
        drawn = similar[items, random.integers(SIMILAR, size=len(items))]
        return np.where(random.random(len(items)) < of.noise, drawn, items)

    def inputs(self, rows: Array) -> Array:
        """What is known of each row: the numbers of other items of the user, 0 for padding."""
        known = self.known[self.users[rows]]
        return np.where(known == self.items[rows, np.newaxis] + 1, 0, known)

    def batches(self, seed: int) -> Iterator[tuple[Array, Array]]:
        random = np.random.default_rng(seed)
        while True:
            rows = random.integers(len(self.users), size=BATCH)
            yield self.inputs(rows), self.labels[rows] + 1


class Known(keras.Model):
    """The state of a user from the numbers of items."""

    def __init__(self, num_items: int) -> None:
        super().__init__()
        scale = keras.initializers.RandomNormal(stddev=0.1)
        self.items = keras.layers.Embedding(num_items + 1, FACTORS, scale, mask_zero=True)
        self.dropout = keras.layers.Dropout(0.2)
        self.matrix = keras.layers.Dense(FACTORS, use_bias=False, kernel_initializer="identity")

    def pooled(self, numbers: Any) -> Any:
        there = ops.cast(numbers > 0, "float32")[..., None]
        count = ops.maximum(ops.sum(there, axis=1), 1.0)
        return ops.sum(self.items(numbers) * there, axis=1) / ops.sqrt(count)

    def call(self, numbers: Any, training: bool = False) -> Any:
        return self.matrix(self.dropout(self.pooled(numbers), training=training))


def start(model: Known, data: Data) -> None:
    """Gives a model the item vectors of a factorisation, and the matrix that fits its users.

    The matrix has the scale of the best cross-entropy, which Adam takes long to find.
    """
    factorizer = als.RGFactorizer(
        als.RGCross(0.05),
        FACTORS,
        regularization=0.25,
        popularity_exponent=0.5,
        sweeps=4,
        num_threads=1,
    ).fit(data.matrix)
    model.items.set_weights([np.pad(factorizer.item_factors_, [(1, 0), (0, 0)])])
    pooled = np.concatenate([model.pooled(x) for x in np.array_split(data.known, 50)])
    matrix = np.linalg.lstsq(pooled, factorizer.user_factors_)[0]
    model.matrix.set_weights([matrix])
    rows = np.random.default_rng(0).integers(len(data.users), size=2 * BATCH)
    logits = model.predict_on_batch(data.inputs(rows)) @ factorizer.item_factors_.T
    gains = logits[np.arange(len(rows)), data.labels[rows]].mean()
    scale = min(SCALES, key=lambda x: logsumexp(x * logits, axis=1).mean() - x * gains)
    model.matrix.set_weights([scale * matrix])


class Clock(keras.callbacks.Callback):
    """Ends a training after CPU seconds, without those of its first step, which is compiled."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.steps, self.began = seconds, 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        if self.steps == 1:
            self.began = time.process_time()
        if time.process_time() - self.began > self.seconds:
            self.model.stop_training = True


def compiled(loss: losses.CatalogueLoss) -> Any:
    """The loss under XLA, whose scatter into item vectors would be slow."""

    @tf.function(jit_compile=True)
    def of_states(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(y_true, tf.int32)  # Keras casts them to floats
        return loss(numbers, tf.ensure_shape(y_pred, [BATCH, FACTORS]))

    return of_states


class Training:
    """The trainings by one loss, which share their compiled step."""

    def __init__(self, data: Data, name: str, is_whole: bool) -> None:
        keras.utils.set_random_seed(0)
        self.data = data
        self.model = Known(data.matrix.shape[1])
        self.model(data.known[:1])
        if is_whole:
            start(self.model, data)
        self.first = self.model.get_weights()
        self.optimizer = keras.optimizers.Adam()
        if name != START:
            loss = losses.CatalogueLoss(LOSSES[name], self.model.items)
            self.model.compile(self.optimizer, compiled(loss), jit_compile=False)

    def judged(self) -> dict[str, Any]:
        """The accuracies of the model."""
        parts = np.array_split(self.data.known[self.data.judged], 20)
        states = np.concatenate([self.model.predict_on_batch(x) for x in parts])
        vectors = np.ascontiguousarray(self.model.items.get_weights()[0][1:])
        best, _ = retrieval.best(states, vectors, max(TOPS), self.data.seen)
        return {name: accuracies(best, x) for name, x in self.data.relevant.items()}

    def run(self, rate: float, seconds: float, seed: int) -> dict[str, Any]:
        """Trains the model anew: its steps and accuracies."""
        self.model.set_weights(self.first)
        for variable in self.optimizer.variables:
            variable.assign(ops.zeros_like(variable))
        self.optimizer.learning_rate = rate
        clock = Clock(seconds)
        batches = self.data.batches(seed)
        self.model.fit(batches, steps_per_epoch=10**6, verbose=0, callbacks=[clock])
        return {"steps": clock.steps, **self.judged()}


def accuracies(best: Array, relevant: Any) -> list[float]:
    """Top-1, top-5 and top-20 accuracy over the users with a relevant item."""
    counts = np.diff(relevant.indptr)
    shares = (
        retrieval.mark_members(best, relevant).cumsum(axis=1) / np.maximum(counts, 1)[:, np.newaxis]
    )
    return [float(shares[counts > 0, k - 1].mean()) for k in TOPS]


def row(options: argparse.Namespace, of: str, name: str, data: Callable[[], Data]) -> str:
    """A row of the table."""
    made: list[Training] = []

    def run(rate: float, seed: int) -> Any:
        def found() -> Any:
            if not made:
                made.append(Training(data(), name, SETS[of].classes is None))
            return made[0].run(rate, options.seconds, seed) if rate else made[0].judged()

        key = (of, name, f"{options.seconds:g}", rate, seed)
        return stored(options.results / f"{' '.join(map(str, key))}.json", found)

    rates = RATES if SETS[of].classes else RATES_FROM_START
    if name == START:
        rate, runs, cost = 0.0, [run(0.0, 0)], ["", ""]
    else:
        rate = max(rates, key=lambda rate: run(rate, 0)["validation"][TOPS.index(CHOSEN_BY)])
        runs = [run(rate, seed) for seed in range(options.seeds)]
        cost = [f"{rate:g}", f"{runs[0]['steps']:,}"]
    values = [over_seeds([x["test"] for x in runs], i) for i in range(len(TOPS))]
    label = name if name == START else f"`{name}`"
    return f"| {of} | {label} | {' | '.join((*values, *cost))} |"


def main() -> None:
    """Prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--seconds", type=float, default=8, help="CPU time of a training")
    parser.add_argument("--seeds", type=int, default=1, help="number of fits of each row")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    head = ["", "loss", *(f"top-{k}" for k in TOPS), "rate", "steps"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for of in options.sets:
        data = functools.cache(functools.partial(Data, options.data, SETS[of]))
        for name in options.losses if SETS[of].classes else (START, *options.losses):
            print(row(options, of, name, data), flush=True)


if __name__ == "__main__":
    main()
