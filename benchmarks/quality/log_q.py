"""Effect of the logQ correction on a two-tower model with in-batch negatives.

    python -m benchmarks.quality.log_q --data ml-100k.npz

One interaction in five, drawn with a fixed seed, is held out; all items that the user has not
interacted with otherwise are ranked. Towers are embeddings, compared by cosines. The NDCG@10, and
the share of the ten most popular items among the first ten, are means over users, and over seeds.
`--data` names a file of the arrays `user` and `item`, from 0 on.
"""

import argparse
import os
import pathlib
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel import losses, metrics, models

Array = NDArray[Any]

TEMPERATURE = 0.1
FACTORS = 32
BATCH_SIZE = 1024
EPOCHS = 20
SEEDS = range(3)


def split(path: pathlib.Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The users and items of the interactions to train and to test on."""
    with np.load(path) as stored:
        user, item = (stored[name].astype(np.int32) for name in ("user", "item"))
    held_out = np.random.default_rng(0).random(len(user)) < 0.2
    return (user[~held_out], item[~held_out]), (user[held_out], item[held_out])


def two_tower(num_users: int, num_items: int, is_streaming: bool) -> keras.Model:
    """Cosines of the users and items of a batch, corrected in training if that is asked for."""
    user, item = (keras.Input([], dtype="int32", name=name) for name in ("user", "item"))
    users = keras.layers.Embedding(num_users, FACTORS, name="users")(user)
    items = keras.layers.Embedding(num_items, FACTORS, name="items")(item)
    unit = keras.layers.UnitNormalization()
    cosines = keras.ops.matmul(unit(users), keras.ops.transpose(unit(items)))
    if is_streaming:
        cosines = models.LogQCorrection(num_items, TEMPERATURE)(cosines, item)
    return keras.Model({"user": user, "item": item}, cosines)


def quality(
    scores: Array, train: tuple[Array, Array], test: tuple[Array, Array]
) -> tuple[Any, ...]:
    """NDCG@10 of the held-out items, and the share of the most popular ones among the first ten."""
    labels = np.zeros(scores.shape, np.float32)
    labels[train] = np.nan  # which are not recommended again
    labels[test] = 1.0
    users = np.unique(test[0])
    ndcg = metrics.NDCG(10)(labels[users], scores[users])
    first = np.argsort(np.where(np.isnan(labels), np.inf, -scores), axis=1)[users, :10]
    popular = np.argsort(-np.bincount(train[1], minlength=scores.shape[1]))[:10]
    return float(ndcg), float(np.isin(first, popular).mean())


def scores_of(
    model: keras.Model, loss: losses.InBatchInfoNCELoss, train: tuple[Array, Array], seed: int
) -> Array:
    """The scores of all items for all users after training."""
    user, item = train
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=True)
    rows = tf.data.Dataset.from_tensor_slices(({"user": user, "item": item}, item))
    rows = rows.shuffle(len(user), seed=seed).batch(BATCH_SIZE, drop_remainder=True)
    model.fit(rows, epochs=EPOCHS, verbose=0)
    users, items = (model.get_layer(name).get_weights()[0] for name in ("users", "items"))
    units = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (users, items))
    return next(units) @ next(units).T


def rows(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """The name of each way to rank, and its qualities by seed."""
    train, test = split(path)
    num_users, num_items = (
        int(max(a.max(), b.max())) + 1 for a, b in zip(train, test, strict=True)
    )
    counts = np.bincount(train[1], minlength=num_items)
    popularity = np.tile(counts.astype(np.float32), [num_users, 1])
    yield "popularity", [quality(popularity, train, test)]
    log_q = np.log(np.maximum(counts, 1.0) / counts.sum())
    for name, known, is_streaming in (
        ("`InBatchInfoNCELoss`, no correction", None, False),
        ("`log_q` of counts", log_q, False),
        ("`LogQCorrection`", None, True),
    ):
        found = []
        for seed in SEEDS:
            keras.utils.set_random_seed(seed)
            model = two_tower(num_users, num_items, is_streaming)
            loss = losses.InBatchInfoNCELoss(TEMPERATURE, log_q=known)
            found.append(quality(scores_of(model, loss, train, seed), train, test))
        yield name, found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="File of interactions.")
    print("| | NDCG@10 | ten most popular items among the first ten |\n|---|---|---|")
    for name, found in rows(parser.parse_args().data):
        ndcg, popular = np.mean(found, axis=0)
        deviation = np.std([x for x, _ in found])
        print(f"| {name} | {ndcg:.3f} ± {deviation:.3f} | {100 * popular:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
