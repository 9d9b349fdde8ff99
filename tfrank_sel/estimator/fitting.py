"""Training of the model of an estimator, in memory and on a scratch folder."""

import contextlib
import dataclasses
import pathlib
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.arguments import Checked, Count, Natural, OpenShare, Positive, Rate
from tfrank_sel.data.cache import Cache
from tfrank_sel.estimator.lists import Lists, padded
from tfrank_sel.features import Feature
from tfrank_sel.training import networks, trees

History = dict[str, list[float]]
TREES = 100  # if no lists are held out


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    """Settings of training and of the network: see `Ranker`.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a number is out of range.
    """

    hidden_units: Sequence[int]
    dropout: Rate
    num_heads: Natural
    epochs: Count
    patience: Count
    batch_size: Count
    learning_rate: Positive
    averaging: Rate
    weight_decay: Rate
    validation_fraction: OpenShare | None
    members: Count | None
    verbose: int


PARAMETERS = tuple(field.name for field in dataclasses.fields(Settings))


def train(
    learned: Lists,
    held_out: Lists | None,
    features: Mapping[str, Feature] | None,
    losses: Mapping[str, keras.losses.Loss | str],
    settings: Settings,
    seed: int,
) -> tuple[models.Prepared, dict[str, History]]:
    """Trains a model with each loss, and returns the model of all and how training went.

    Args:
        learned: Lists to learn from, with labels.
        held_out: Lists that decide when to stop; None to train for all epochs.
        features: Type of each feature; None if all are numbers that are never missing.
        losses: The loss of each network, or `LAMBDARANK` of boosted trees, by name.
        settings: How to train.
        seed: Seed of weights, order and dropout; the seed of the next model is one more.
    """
    if features is None:
        mean, variance = models.moments(learned.matrices.numbers)
        preparation = models.Preparation(mean, variance, within_list=True)
    else:
        batches = ((inputs,) for _, inputs, _ in learned.batches())
        preparation = models.Preparation.of(batches, features)
    members: list[keras.Model] = []
    forests: list[keras.Model] = []
    histories: dict[str, History] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cache = Cache.write(_prepared(learned, preparation), folder / "learned")
        measured = None
        if held_out is not None:
            measured = Cache.write(_prepared(held_out, preparation), folder / "held_out")
        for number, (name, loss) in enumerate(losses.items(), start=seed):
            began = time.perf_counter()
            if isinstance(loss, str):
                most = {trees.MOST: TREES} if measured is None else {}
                forest, histories[name], _ = trees.train(loss, cache, measured, most, number)
                forests.append(forest)
            else:
                with _seeded(number):
                    network = models.Perceptron(
                        settings.hidden_units,
                        settings.dropout,
                        settings.num_heads,
                        preparation.embeddings,
                    )
                    histories[name] = _fit(network, loss, cache, measured, settings, seed)
                members.append(network)
            if settings.verbose:
                print(_line(name, histories[name], time.perf_counter() - began))
    both = [*members, *forests]
    scorer = both[0] if len(both) == 1 else trees.ensemble(members, forests)
    model = models.Prepared(preparation, scorer, name="list_scorer")
    _, inputs, _ = next(learned.batches())
    model.build({name: (None, None, *x.shape[2:]) for name, x in inputs.items()})
    return model, histories


def _line(name: str, history: History, seconds: float) -> str:
    """What is told of the training of a member."""
    found = history.get("val_ndcg")
    best = f"best validation NDCG@10 {max(found):.4f}, " if found else ""
    return f"{name}: {best}{seconds:.1f} s"


def _prepared(lists: Lists, preparation: models.Preparation) -> Iterator[tuple[Any, ...]]:
    """Yields batches as a cache takes them."""
    prepare = tf.function(preparation, reduce_retracing=True)
    for rows, inputs, mask in lists.batches():
        others = [x for x in (lists.labels, lists.weights) if x is not None]
        yield prepare(inputs), *(padded(x[rows], mask, 0.0) for x in others)


def _fit(
    network: keras.Model,
    loss: keras.losses.Loss,
    learned: Cache,
    held_out: Cache | None,
    settings: Settings,
    seed: int,
) -> History:
    """Trains a network, and keeps the weights of its best epoch."""
    dataset, measured, steps = networks.batches(
        network, learned, held_out, settings.batch_size, seed
    )
    networks.build(network, dataset)
    optimizer = keras.optimizers.Adam(
        settings.learning_rate,
        weight_decay=networks.decay_per_step(settings.weight_decay, settings.learning_rate, steps),
        use_ema=True,
        ema_momentum=settings.averaging,
    )
    history = keras.callbacks.History()
    callbacks: list[keras.callbacks.Callback] = [history]
    if measured is not None:
        stopping = keras.callbacks.EarlyStopping(
            "val_ndcg", mode="max", patience=settings.patience, restore_best_weights=True
        )
        callbacks = [networks.Validation(measured, loss), stopping, history]
    networks.fit(
        network,
        loss,
        optimizer,
        dataset,
        steps=steps,
        epochs=settings.epochs,
        callbacks=callbacks,
        verbose=settings.verbose,
    )
    return {name: [float(x) for x in values] for name, values in history.history.items()}


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds Keras, and leaves the random numbers of Python and NumPy as they were."""
    states = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
