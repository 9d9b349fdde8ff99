"""Speed of the data path: reading, writing, parsing of text, and training input.

    python -m benchmarks.speed.data [--only readers writers texts steps]
    python -m benchmarks.speed.data --wall

Makes 608 lists of 40 to 200 items with 136 features each (drawn at random); times are of one core
of this machine, from passes in turn.

* Readers: in batches of 32 lists, padded to 200 items, from TFRecords with a feature a number, as
  users of tensorflow-ranking have them, as `ExampleListWithContext` of packed floats, and in the
  packed layout of training records, against reading the bytes alone. `data.batches` is the whole
  pipeline.
* Writers: the packed layout, compared with joining the same bytes.
* Texts: LETOR, compared with scikit-learn and XGBoost.
* Steps of training an MLP on batches of the pipeline, against the same step on tensors in memory.

With `--wall`, only training, by the clock on the wall and on all cores it may use. What is not
installed is left out, and said so; tensorflow-ranking is there with the extra `tfr`.
"""

import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.interleaved import Call, use_one_core
from benchmarks.speed.rows import Peer
from tfrank_sel import data, losses, models
from tfrank_sel.data import FeatureSpec, ListFeatures, elwc, letor, packed, parsing, writing

BATCH, WIDTH, NUM_FEATURES = 32, 200, 136
LONGER = 4  # starting a dataset takes time, so that whole pipelines read more lists
SPEC = FeatureSpec(num_features=NUM_FEATURES)
NAMES = [f"feature_{i}" for i in range(1, NUM_FEATURES + 1)]
A_LIST = "µs a list"
LABEL = {"relevance": tf.io.FixedLenFeature([1], tf.float32, [-1.0])}
ITEMS = LABEL | {name: tf.io.FixedLenFeature([1], tf.float32, [0.0]) for name in NAMES}


def made(count: int) -> list[data.ItemList]:
    rng = np.random.default_rng(0)
    return [
        data.ItemList(
            query_id=f"q{query}",
            labels=rng.integers(0, 5, size).astype(np.float32),
            features=rng.normal(size=[size, NUM_FEATURES]).astype(np.float32),
            doc_ids=tuple(f"q{query}d{item}" for item in range(size)),
        )
        for query, size in enumerate(rng.integers(40, WIDTH + 1, count))
    ]


def scalar_item(label: float, features: np.ndarray) -> bytes:
    example = tf.train.Example()
    for name, value in zip(["relevance", *NAMES], [label, *features.tolist()], strict=True):
        example.features.feature[name].float_list.value.append(value)
    return writing.field(1, example.SerializeToString())


def write(folder: pathlib.Path, lists: list[data.ItemList]) -> tuple[str, str, str]:
    """Writes the lists as scalars, as ELWC of packed floats, and in the packed layout."""
    paths = tuple(str(folder / f"{name}.tfrecord") for name in ("scalar", "elwc", "packed"))
    writers = [tf.io.TFRecordWriter(path) for path in paths]
    for x in lists:
        rows = zip(x.labels, x.features, strict=True)
        writers[0].write(b"".join(scalar_item(*row) for row in rows))
        writers[1].write(elwc.serialize(x.features, SPEC, labels=x.labels))
        writers[2].write(packed.serialize(x.features, SPEC, labels=x.labels))
    for writer in writers:
        writer.close()
    return paths


def passes(path: str, lists: int, read: Callable[[tf.Tensor], Any]) -> Call:
    """Reads as many lists as the file holds, over and over: starting a dataset is not counted."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # work done in another's turn
    dataset = tf.data.TFRecordDataset(path).repeat().batch(BATCH).map(read)
    batches = iter(dataset.with_options(options))

    def call() -> None:
        for _ in range(lists // BATCH):
            next(batches)

    return call


def pipeline(path: str, lists: int, edges: list[int]) -> Call:
    dataset = data.batches([path], SPEC, batch_size=BATCH, bucket_edges=edges, repeat=True)
    return lambda: [0 for _ in dataset.take(lists // BATCH)]


def readers(folder: pathlib.Path, lists: list[data.ItemList], rounds: int) -> Iterator[rows.Found]:
    scalar, in_elwc, records = write(folder, lists)
    features, count = ListFeatures(ITEMS), len(lists)

    def tensorflow_ranking() -> Callable[[tf.Tensor], Any]:
        import tensorflow_ranking as tfr

        return tfr.data.make_parsing_fn(tfr.data.ELWC, WIDTH, None, ITEMS)

    parsers, left_out = rows.installed({"tensorflow-ranking": tensorflow_ranking})
    yield from left_out
    peers = {peer: passes(scalar, count, parse) for peer, parse in parsers.items()}
    ours = {
        "ELWC, 136 scalar features": (
            scalar,
            lambda x: parsing.parse_elwc(x, features, list_size=WIDTH),
        ),
        "ELWC, packed": (in_elwc, lambda x: elwc.parse(x, SPEC, list_size=WIDTH)),
        "training records": (records, lambda x: packed.parse(x, SPEC, list_size=WIDTH)),
    }
    for case, (path, parse) in ours.items():
        floor = {Peer("reading the bytes"): passes(path, count, lambda x: x)}
        call = passes(path, count, parse)
        yield from rows.compare({case: call}, peers | floor, rounds, A_LIST, count)
    wholes = {
        "`data.batches` in one bucket": pipeline(records, LONGER * count, [WIDTH]),
        "`data.batches` in four": pipeline(records, LONGER * count, [80, 120, 160, WIDTH]),
    }
    peers = {peer: passes(scalar, LONGER * count, parse) for peer, parse in parsers.items()}
    yield from rows.compare(wholes, peers, rounds, A_LIST, LONGER * count)


def writers(_: pathlib.Path, lists: list[data.ItemList], rounds: int) -> Iterator[rows.Found]:
    ids = [[x.encode() for x in one.doc_ids] for one in lists]

    def joined() -> None:
        for x, y in zip(lists, ids, strict=True):
            b"".join([x.features.tobytes(), x.labels.tobytes(), *y])

    def written(with_ids: bool) -> Call:
        def call() -> None:
            for x, y in zip(lists, ids, strict=True):
                packed.serialize(
                    x.features,
                    SPEC,
                    labels=x.labels,
                    doc_ids=y if with_ids else None,
                    query_id=b"q",
                )

        return call

    ours = {
        "writing training records": written(False),
        "writing training records with doc ids": written(True),
    }
    yield from rows.compare(ours, {Peer("joining the bytes"): joined}, rounds, A_LIST, len(lists))


def texts(folder: pathlib.Path, lists: list[data.ItemList], rounds: int) -> Iterator[rows.Found]:
    """Readers of text like that of MSLR: no comments, numbers of up to seven digits."""
    path = folder / "lists.txt"
    with path.open("w") as file:
        for query, one in enumerate(lists[:250]):
            for label, row in zip(one.labels, one.features.tolist(), strict=True):
                words = " ".join(f"{i}:{x:g}" for i, x in enumerate(row, start=1))
                file.write(f"{label:g} qid:{query} {words} \n")

    def scikit_learn() -> Call:
        from sklearn.datasets import load_svmlight_file

        return lambda: load_svmlight_file(str(path), query_id=True)[0].toarray()

    def xgboost() -> Call:
        from xgboost import DMatrix

        return lambda: DMatrix(f"{path}?format=libsvm", nthread=1)

    peers, left_out = rows.installed({"scikit-learn": scikit_learn, "xgboost": xgboost})
    yield from left_out
    ours = {"LETOR text, `letor.read`": lambda: [0 for _ in letor.read(path, NUM_FEATURES)]}
    yield from rows.compare(ours, peers, rounds, "ms a MB", path.stat().st_size / 1e6)


def steps(
    folder: pathlib.Path,
    lists: list[data.ItemList],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[rows.Found]:
    """Steps of training, with all lists padded to one size."""
    *_, records = write(folder, lists)
    dataset = data.batches([records], SPEC, batch_size=BATCH, bucket_edges=[WIDTH], repeat=True)
    at_hand, loss, count = list(dataset.take(8)), losses.SoftmaxLoss(), 40

    def training(hidden_units: Sequence[int]) -> Callable[[Callable[[], Any]], Call]:
        model = models.Scorer([0.0] * NUM_FEATURES, [1.0] * NUM_FEATURES, hidden_units)
        optimizer = keras.optimizers.Adam()

        @tf.function
        def step(features: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                value = loss(labels, model(features, training=True))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))

        return lambda batches: lambda: [step(*batch) for batch in batches()]

    for hidden_units in ([128, 64, 32], [512, 256, 128]):
        trained = training(hidden_units)
        ours = trained(lambda: dataset.take(count))
        floor = trained(lambda: itertools.islice(itertools.cycle(at_hand), count))
        yield from rows.compare(
            {f"training on `data.batches`, hidden units {hidden_units}": ours},
            {Peer("tensors at hand"): floor},
            rounds,
            A_LIST,
            count * BATCH,
            clock,
        )


PARTS = {part.__name__: part for part in (readers, writers, texts, steps)}


def main() -> None:
    parser = rows.parser(__doc__, rounds=5)
    parser.add_argument("--lists", type=int, default=608)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--wall", action="store_true", help="only training, on all cores")
    arguments = parser.parse_args()
    lists, rounds = made(arguments.lists - arguments.lists % BATCH), arguments.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if arguments.wall:
            rows.show(steps(folder, lists, rounds, time.perf_counter), arguments.json)
            return
        use_one_core()
        parts = (PARTS[part](folder, lists, rounds) for part in arguments.only)
        rows.show(itertools.chain.from_iterable(parts), arguments.json)


if __name__ == "__main__":
    main()
