"""Speed of a training step of the default network, compared with a bare Keras MLP.

    python -m benchmarks.speed.training_step [--stream 10000 100000]

The network is that of `models.ListScorer`, compiled by `learning.training`, with `RGCrossLoss`.
The floor is an MLP of the same widths and dropout on the same prepared features, a row a document:
mean squared error, Adam, no lists. Both run eight steps at a time, on batches in memory, and with
their input: lists from `data.cache.Cache` in a new order each pass, against documents of
arrays in memory. CPU time of one core of this machine, from calls in turn.

`--stream` adds an epoch of `fit` on as many lists, read from disk, against as many steps on one
batch in memory: the time, and the peak memory of the process.
"""

import functools
import itertools
import pathlib
import tempfile
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from benchmarks.speed import memory, rows
from benchmarks.speed.interleaved import Call, use_one_core
from benchmarks.speed.rows import Peer, Row
from tfrank_sel import losses, models
from tfrank_sel.data.cache import Cache
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.lists import PreparedLists
from tfrank_sel.training.networks import STEPS_AT_A_TIME

ONE_LOSS = Candidate(losses.RGCrossLoss())
SETTINGS = Settings(epochs=1)
SHAPES = ((40, 46), (128, 136))  # list size, number of features
STREAMED = (20, 20)
AT_HAND = 8  # batches
FLOOR = Peer("bare Keras MLP")
ONE_BATCH = Peer("one batch in memory")


def bare(width: int, settings: Settings) -> keras.Model:
    """The MLP that one would write by hand for rows of as many prepared features."""
    hidden = (
        (keras.layers.Dense(units, activation="relu"), models.Dropout(settings.dropout))
        for units in settings.hidden_units
    )
    model = keras.Sequential([*itertools.chain.from_iterable(hidden), keras.layers.Dense(1)])
    model.build([None, width])
    model.compile(
        keras.optimizers.Adam(settings.learning_rate),
        "mse",
        steps_per_execution=STEPS_AT_A_TIME,
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def made(
    list_size: int, num_features: int, lists: int, batch_size: int = SETTINGS.batch_size
) -> tf.data.Dataset:
    """Batches of seeded features and grades, made as they are read."""
    shape = [batch_size, list_size]

    def batch(number: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.random.stateless_normal([*shape, num_features], [0, number])
        grades = tf.random.stateless_uniform(shape, [1, number], maxval=5, dtype=tf.int32)
        inputs = {"features": features, "mask": tf.ones(shape, tf.bool)}
        return inputs, tf.cast(grades, tf.float32)

    return tf.data.Dataset.range(lists // batch_size).map(batch)


def network(
    list_size: int, num_features: int, lists: int, folder: pathlib.Path
) -> tuple[keras.Model, Cache]:
    """Trains a network for an epoch, so that it is compiled as a user's; and what it reads."""
    batches = made(list_size, num_features, lists)
    inputs, _ = next(iter(batches))
    preparation = models.Preparation(*models.moments(inputs["features"]), within_list=True)
    prepared = PreparedLists(batches, batches.take(1), SETTINGS, folder / "prepared")
    hooks = Hooks(logs=folder / "logs")
    trained = fitting.train(ONE_LOSS, preparation, prepared, hooks)
    return trained.model.network, prepared.of(trained.model)[0]


def steps(model: keras.Model, batches: tf.data.Dataset, executions: int) -> Call:
    """A call of training steps, as `fit` takes them."""
    model.make_train_function()
    iterator = iter(batches)

    def call() -> None:
        for _ in range(executions):
            model.train_function(iterator)

    return call


def documents(cache: Cache) -> tuple[np.ndarray, np.ndarray]:
    """Prepared features `[documents, width]` and grades `[documents, 1]` of all lists."""
    features, labels = (np.fromfile(cache.folder / x, np.float32) for x in ("features", "labels"))
    return features.reshape([len(labels), -1]), labels[:, np.newaxis]


def drawn(features: np.ndarray, labels: np.ndarray, batch_size: int) -> tf.data.Dataset:
    """Batches of documents drawn from arrays, as Keras gathers them, without an end."""
    x, y = tf.constant(features), tf.constant(labels)

    def batch(_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = tf.random.uniform([batch_size], maxval=len(labels), dtype=tf.int32)
        return tf.gather(x, chosen), tf.gather(y, chosen)

    return tf.data.Dataset.range(1).repeat().map(batch).prefetch(2)


def at_hand(batches: tf.data.Dataset) -> tf.data.Dataset:
    """The first batches, over and over, from memory."""
    return batches.take(AT_HAND).cache().repeat()


def found(lists: int, executions: int, rounds: int) -> Iterator[rows.Found]:
    size = SETTINGS.batch_size
    for list_size, num_features in SHAPES:
        with tempfile.TemporaryDirectory() as name:
            model, cache = network(list_size, num_features, lists, pathlib.Path(name))
            features, labels = documents(cache)
            mlp = bare(features.shape[1], SETTINGS)
            ours = cache.batches(size, [list_size], seed=0).repeat()
            theirs = drawn(features, labels, size * list_size)
            count = executions * STEPS_AT_A_TIME * size * list_size
            for told, of in (("", at_hand), (", with its input", lambda batches: batches)):
                case = f"a step, [{size}, {list_size}, {num_features}]{told}"
                calls = {case: steps(model, of(ours), executions)}
                floor = {FLOOR: steps(mlp, of(theirs), executions)}
                yield from rows.compare(calls, floor, rounds, "µs a document", count)


def streamed(lists: int) -> Iterator[rows.Found]:
    """An epoch of `fit` on lists from disk, compared with as many steps on one batch in memory."""
    size, (list_size, num_features) = SETTINGS.batch_size, STREAMED
    peaks: dict[tf.data.Dataset, float] = {}
    with tempfile.TemporaryDirectory() as name:
        model, cache = network(list_size, num_features, lists, pathlib.Path(name))
        batches = cache.batches(size, [list_size], seed=0)
        one, count = batches.take(1).cache(), int(batches.cardinality())

        def epoch(of: tf.data.Dataset) -> None:
            memory.start_peak()
            model.fit(of.repeat(), steps_per_epoch=count, shuffle=False, verbose=0)
            peaks[of] = memory.peak()

        case = f"{lists:,} lists from disk, [{size}, {list_size}, {num_features}]"
        ours = {f"an epoch of {case}": functools.partial(epoch, batches)}
        theirs = {ONE_BATCH: functools.partial(epoch, one)}
        yield from rows.compare(ours, theirs, 1, "µs a document", count * size * list_size)
        yield Row(f"peak memory, {case}", ONE_BATCH, peaks[batches], peaks[one], "MiB")


def main() -> None:
    parser = rows.parser(__doc__, rounds=5)
    parser.add_argument("--lists", type=int, default=256, help="lists to learn from")
    parser.add_argument("--executions", type=int, default=8, help="of eight steps, in a call")
    parser.add_argument("--stream", type=int, nargs="*", default=[], help="lists on disk")
    arguments = parser.parse_args()
    use_one_core()
    steps_found = found(arguments.lists, arguments.executions, arguments.rounds)
    epochs_found = itertools.chain.from_iterable(map(streamed, arguments.stream))
    rows.show(itertools.chain(steps_found, epochs_found), arguments.json)


if __name__ == "__main__":
    main()
