"""Training of a candidate, stopped when validation NDCG no longer rises."""

import collections
import dataclasses
import functools
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import data, models
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import MeanLogs, Workers
from tfrank_sel.models.transfer import members_of
from tfrank_sel.pipelines import classes
from tfrank_sel.pipelines.backup import Backup, Resumption, variables_of
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.epochs import Epoch, Stopwatch, Validation
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.prepared import PreparedLists as PreparedLists, parts_of

MANY_ITEMS = 200_000  # from which on to compile for a shape more is worth less padding
STEPS_AT_A_TIME = 8  # between which Keras' Python does not run


class StartError(ValueError):
    """A model that does not fit, so that no training can start from it."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """How training with one loss went.

    Args:
        loss: Name of the loss.
        epochs: Number of epochs run.
        validation_ndcg: Best validation NDCG@10.
        seconds_per_step: Mean time of a training step, the first epoch (which compiles) left out
            if there are more.
        lists_per_second: Lists trained on in that time.
        items_per_second: Documents trained on in that time; padding does not count.
        history: Loss and metrics of each epoch, by name.
    """

    loss: str
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]

    def __str__(self) -> str:
        best = f"best validation NDCG@10 {self.validation_ndcg:.4f}"
        return f"{self.loss}: {self.epochs} epochs, {best}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and how it went.

    Args:
        candidate: What was trained.
        model: The model, with the weights of its best epochs.
        members: The models that it is of, one for each loss.
        fits: How training went, with each loss.
    """

    candidate: Candidate
    model: keras.Model
    members: Sequence[keras.Model]
    fits: Sequence[Fit]

    @property
    def scores(self) -> Scorer:
        """The function of features and mask that scores lists by the model."""
        return functools.partial(_scores, self.model)

    def figures(self) -> dict[str, Any]:
        """Returns the name of the model and all figures."""
        return {"model": self.model.name, "fits": [dataclasses.asdict(fit) for fit in self.fits]}


def each_once(trained: Mapping[str, Trained]) -> list[tuple[str, Fit, keras.losses.Loss]]:
    """Returns each fit and its loss, by the first name under which it was trained."""
    found: list[tuple[str, Fit, keras.losses.Loss]] = []
    for name, one in trained.items():
        for fit, loss in zip(one.fits, one.candidate.losses, strict=True):
            if all(fit is not other for _, other, _ in found):
                found.append((name, fit, loss))
    return found


def train(
    candidate: Candidate,
    preparation: models.Preparation,
    lists: PreparedLists,
    settings: Settings,
    logs: str | os.PathLike[str] | None,
    on_epoch: Callable[[Epoch], None],
    before: Sequence[Trained] = (),
    backup: Path | None = None,
    start: keras.Model | None = None,
    on_backup: Callable[[], None] | None = None,
) -> Trained:
    """Trains a candidate: a model with each of its losses.

    Args:
        candidate: What to train.
        preparation: Layer that prepares the features; its models share it.
        lists: What to learn from, and what decides when to stop. All of its workers call `train`
            with the same arguments.
        settings: How to train.
        logs: Folder of TensorBoard logs; each loss gets one in it. Only the chief needs one.
        on_epoch: Called after each epoch. An exception raised in it stops training.
        before: What was trained on the same lists with the same settings. What would be trained
            again, from the same seed, is taken from there, unless there is a `start`.
        backup: Folder that keeps the state of training after each epoch, and models that are done.
            A training of the same candidate, lists and settings that was interrupted resumes from
            it, and ends with the same weights as without the interruption. The chief writes it.
        start: A model from which the weights start, as in `models.warm_start`: what an earlier
            call returned for as many losses, in the same order.
        on_backup: Called when something was written to `backup`.

    Returns:
        The model, the `models.Ensemble` of all if there are several losses, and how it went.

    Raises:
        ValueError: If `backup` is that of another training.
        StartError: If `start` does not fit.
    """
    count = len(candidate.losses)
    starts = [None] * count if start is None else _starts(start, count)
    known = [
        next((one for one in before if start is None and _has(one.candidate, candidate, i)), None)
        for i in range(count)
    ]
    members, fits = [], []
    for number, loss in enumerate(candidate.losses):
        if (one := known[number]) is not None:
            members.append(one.members[number])
            fits.append(one.fits[number])
            continue
        keras.utils.set_random_seed(settings.seed + number)
        model = candidate.make_model(preparation, settings, **candidate.arguments)
        if isinstance(model, models.Prepared):  # of which a part is trained, and so built
            model.build(lists.shapes)
        log = None if logs is None else os.path.join(logs, loss.name)
        chief = lists.workers.is_chief
        kept = None if backup is None else Backup(backup / f"{loss.name}.npz", on_backup, chief)
        watch = Stopwatch(on_epoch, loss.name, number + 1, count, known[number + 1 :].count(None))
        fits.append(_fit(model, loss, lists, settings, log, watch, kept, starts[number]))
        members.append(model)
    model = members[0] if len(members) == 1 else _joined(members)
    if not model.built:
        model.build(lists.shapes)
    return Trained(candidate, model, members, fits)


def _starts(start: keras.Model, count: int) -> Sequence[keras.Model]:
    """The models that a model trained before is of, one for each loss."""
    found = [start] if count == 1 else members_of(start)
    if len(found) != count:
        raise StartError(
            f"`start` must be of as many models as there are losses, {count}. "
            f"Received: {start.name!r}, of {len(found)}"
        )
    return found


def _has(one: Candidate, other: Candidate, number: int) -> bool:
    """Whether two candidates train the same model with the same loss in a place."""
    same_model = one.make_model is other.make_model and one.arguments == other.arguments
    if not same_model or number >= len(one.losses):
        return False
    a, b = one.losses[number], other.losses[number]
    return type(a) is type(b) and a.get_config() == b.get_config()


def _joined(members: Sequence[keras.Model]) -> keras.Model:
    """Several models as one, which prepares features once if the members take them alike."""
    preparations, networks = zip(*map(parts_of, members), strict=True)
    known = [found and found.get_config() for found in preparations]
    if known[0] is None or any(config != known[0] for config in known):
        return models.Ensemble(members)
    ensemble = models.Ensemble(networks)
    return models.Prepared(preparations[0], ensemble, name=ensemble.name)


def _fit(
    model: keras.Model,
    loss: keras.losses.Loss,
    lists: PreparedLists,
    settings: Settings,
    log: str | None,
    watch: Stopwatch,
    backup: Backup | None,
    start: keras.Model | None,
) -> Fit:
    """Trains a model, its network alone if it is prepared, and keeps the best epoch's weights."""
    _, trained = parts_of(model)
    learned, held_out = lists.of(model)
    known = backup.record if backup else {}
    epochs = known.get("epochs", 0)
    workers = lists.workers
    batches, measured, steps = _batches(trained, learned, held_out, settings, epochs, workers)
    if not trained.built:
        inputs, *_ = measured.element_spec
        trained(tf.nest.map_structure(lambda x: keras.Input(x.shape[1:], dtype=x.dtype), inputs))
    if backup and "fit" in known:
        backup.restore(variables_of(trained, loss))
        return Fit(**known["fit"])
    if start is not None:
        try:
            models.warm_start(model, start)
        except ValueError as error:
            raise StartError(str(error)) from error
    trained.compile(
        optimizer=workers.in_step(classes.optimizer(settings, settings.epochs * steps)),
        loss=loss,
        steps_per_execution=STEPS_AT_A_TIME,
        # the loss compiles itself; to compile the step, too, for each shape, takes longer on a CPU
        # than it saves in tens of thousands of steps
        jit_compile=False,
    )
    if known and log:
        shutil.rmtree(log, ignore_errors=True)  # written again from the history
    history = keras.callbacks.History()
    trained.fit(
        batches,  # without an end, as to begin takes as long as some steps
        epochs=settings.epochs,
        initial_epoch=epochs,
        steps_per_epoch=steps,
        callbacks=_callbacks(measured, loss, settings, log, watch, history, backup, workers),
        shuffle=False,  # the lists are shuffled
        verbose=0,
    )
    fit = _described(loss, history, watch, settings, learned)
    if backup:
        backup.save({"fit": dataclasses.asdict(fit)}, variables_of(trained, loss))
    return fit


def _callbacks(
    measured: tf.data.Dataset,
    loss: keras.losses.Loss,
    settings: Settings,
    log: str | None,
    watch: Stopwatch,
    history: keras.callbacks.History,
    backup: Backup | None,
    workers: Workers,
) -> list[keras.callbacks.Callback]:
    """The callbacks of a training, each before those that need what it does."""
    board = keras.callbacks.TensorBoard(log) if log else keras.callbacks.Callback()
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg", mode="max", patience=settings.patience, restore_best_weights=True
    )
    return [
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        *([MeanLogs(workers)] if workers.count > 1 else []),
        Validation(measured, loss, workers),
        watch,
        board,
        stopping,
        history,
        *([Resumption(backup, loss, watch, history, stopping, board)] if backup else []),
    ]


def _described(
    loss: keras.losses.Loss,
    history: keras.callbacks.History,
    watch: Stopwatch,
    settings: Settings,
    learned: Cache,
) -> Fit:
    per_step, size = watch.seconds_per_step(), settings.batch_size
    found = {name: [float(x) for x in values] for name, values in history.history.items()}
    return Fit(
        loss.name,
        epochs=len(found["val_ndcg"]),
        validation_ndcg=max(found["val_ndcg"]),
        seconds_per_step=per_step,
        lists_per_second=size / per_step,
        items_per_second=size / per_step * float(learned.sizes.mean()),
        history=found,
    )


def _batches(
    model: keras.Model,
    learned: Cache,
    held_out: Cache,
    settings: Settings,
    epochs: int,
    workers: Workers,
) -> tuple[tf.data.Dataset, tf.data.Dataset, int]:
    """Batches to learn from after so many epochs, and to measure on, and the steps of an epoch."""
    sizes = collections.Counter([*learned.sizes.tolist(), *held_out.sizes.tolist()])
    buckets = 4 if learned.sizes.sum() > MANY_ITEMS else 2
    edges = batching.bucket_edges(sizes, buckets, min_lists=settings.batch_size)
    size, shard = settings.batch_size, (workers.index, workers.count)
    shuffled = functools.partial(learned.batches, size, edges, seed=settings.seed, shard=shard)
    steps = int(shuffled().cardinality())
    # Keras does not cut off the last of an epoch's executions
    seen = epochs * math.ceil(steps / STEPS_AT_A_TIME) * STEPS_AT_A_TIME
    batches = shuffled(first_pass=seen // steps).repeat().skip(seen % steps)
    measured = held_out.batches(size, edges, shard=shard)
    if not getattr(model, "takes_mask", False):
        batches, measured = batches.map(_without_mask), measured.map(_without_mask)
    return batches, measured, steps


def _without_mask(inputs: dict[str, tf.Tensor], *others: tf.Tensor) -> Any:
    return inputs[data.FeatureSpec.features], *others


def _scores(model: keras.Model, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    takes_mask = getattr(model, "takes_mask", False)
    return model(inputs if takes_mask else inputs[data.FeatureSpec.features], training=False)
