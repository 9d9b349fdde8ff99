"""Training of a candidate, with early stopping by validation NDCG."""

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data.cache import Cache
from tfrank_sel.data.lists import InputError
from tfrank_sel.distribution import Group, MeanLogs
from tfrank_sel.models.preparation import inputs_of
from tfrank_sel.models.transfer import members_of
from tfrank_sel.pipelines import interrupts
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.ingestion.stored import Scorer
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.learning.callbacks import (
    Backup,
    Epoch,
    Resumption,
    Stopwatch,
    variables_of,
)
from tfrank_sel.pipelines.learning.preparation import PreparedLists as PreparedLists, parts_of
from tfrank_sel.training import networks, trees


class StartError(ValueError):
    """A model for a warm start that does not fit."""


@dataclasses.dataclass(frozen=True)
class Fit:
    """Results of the training with one loss.

    Args:
        loss: Name of the loss; of boosted trees, with `_trees` at its end.
        epochs: Number of epochs, or of boosted trees.
        validation_ndcg: Best validation NDCG@10.
        seconds_per_step: Mean time of a training step, without the first epoch (which compiles) if
            there are more; or of a tree.
        lists_per_second: Throughput in lists.
        items_per_second: Throughput in items, without padding.
        history: Loss and metrics of each epoch, by name; of trees, metrics only.
    """

    loss: str
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]

    @property
    def unit(self) -> str:
        """What `epochs` counts: an epoch or a tree."""
        return "epoch" if "loss" in self.history else "tree"

    def __str__(self) -> str:
        best = f"best validation NDCG@10 {self.validation_ndcg:.4f}"
        return f"{self.loss}: {self.epochs} {self.unit}s, {best}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and its training results.

    Args:
        candidate: The trained candidate.
        model: The model, with the weights of its best epochs.
        members: Its member models, one per loss, and the boosted trees of each.
        fits: Training results of each member.
    """

    candidate: Candidate
    model: keras.Model
    members: Sequence[keras.Model]
    fits: Sequence[Fit]

    @property
    def scores(self) -> Scorer:
        """The scoring function of the model, of features and mask."""
        return functools.partial(_scores, self.model)

    def figures(self) -> dict[str, Any]:
        """Returns the name of the model and all figures."""
        return {"model": self.model.name, "fits": [dataclasses.asdict(fit) for fit in self.fits]}


def each_once(trained: Mapping[str, Trained]) -> list[tuple[str, Fit]]:
    """Returns each fit, by the first name under which it was trained."""
    found: list[tuple[str, Fit]] = []
    for name, one in trained.items():
        found += [(name, fit) for fit in one.fits if all(fit != other for _, other in found)]
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
    """Trains a candidate: one model with each of its losses, and boosted trees if it says so.

    Args:
        candidate: The candidate to train.
        preparation: Layer that prepares the features, shared by its models.
        lists: Training and validation lists. All of its workers call `train` with the same
            arguments.
        settings: Settings of training.
        logs: Folder of TensorBoard logs, with a subfolder for each loss. Only the chief needs it.
        on_epoch: Called after each epoch. An exception raised in it stops training.
        before: A candidate trained on the same lists with the same settings. Models with the same
            loss and seed are reused, unless there is a `start`.
        backup: Folder for the state of training after each epoch, and for finished models. An
            interrupted training of the same candidate, lists and settings resumes from it, and ends
            with the same weights as without the interruption. The chief writes it.
        start: Model for a warm start, as in `models.warm_start`: the result of an earlier call with
            the same number of losses, in the same order. Trees are trained from the start.
        on_backup: Called after each write to `backup`.

    Returns:
        The model (the `models.Ensemble` of all models if there are several, in which the networks
        together weigh as much as the trees), and its training results.

    Raises:
        ValueError: If `backup` belongs to another training.
        StartError: If `start` does not fit.
    """
    count = len(candidate.losses)
    total = len(candidate.all_losses)
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
        if isinstance(model, models.Prepared):  # a part of the model is trained, and thereby built
            model.build(lists.shapes)
        log = None if logs is None else os.path.join(logs, loss.name)
        chief = lists.workers.is_chief
        kept = None if backup is None else Backup(backup / f"{loss.name}.npz", on_backup, chief)
        watch = Stopwatch(on_epoch, loss.name, number + 1, total, known[number + 1 :].count(None))
        fits.append(_fit(model, loss, lists, settings, log, watch, kept, starts[number]))
        members.append(model)
    if candidate.trees:
        for forest, fit in _forests(
            candidate, members[0], preparation, lists, settings, on_epoch, backup, on_backup
        ):
            members.append(forest)
            fits.append(fit)
    model = members[0] if len(members) == 1 else _joined(members, count)
    if not model.built:
        model.build(lists.shapes)
    return Trained(candidate, model, members, fits)


def _forests(
    candidate: Candidate,
    network: keras.Model,
    preparation: models.Preparation,
    lists: PreparedLists,
    settings: Settings,
    on_epoch: Callable[[Epoch], None],
    backup: Path | None,
    on_backup: Callable[[], None] | None,
) -> Iterator[tuple[keras.Model, Fit]]:
    """Trains boosted trees, on the features of the network if it is prepared.

    Only the chief does, whose model is kept.
    """
    assert candidate.trees
    preparation = parts_of(network)[0] or preparation
    learned, held_out = lists.of(models.Prepared(preparation, network))
    if not lists.workers.is_chief:
        return
    total, first = len(candidate.all_losses), len(candidate.losses) + 1
    for member, loss in enumerate(candidate.trees.losses, start=first):
        name = f"{trees.name_of(loss)}_trees"
        kept = None if backup is None else Backup(backup / f"{name}.npz", on_backup)
        if kept and kept.record:
            forest = models.BoostedTrees.from_config(kept.record["trees"])
            forest.build(None)
            kept.restore(forest.weights)
            fit = Fit(**kept.record["fit"])
        else:
            try:
                forest, history, seconds = trees.train(
                    loss,
                    learned,
                    held_out,
                    candidate.trees.parameters,
                    settings.seed + member - 1,
                    functools.partial(_tell, on_epoch, name, member, total),
                    settings.gain,
                )
            except ValueError as error:
                raise InputError("model.trees", str(error)) from error
            fit = _measured(name, history, seconds, len(learned.sizes), learned)
            if kept:
                record = {"fit": dataclasses.asdict(fit), "trees": forest.get_config()}
                kept.save(record, forest.weights)
        yield models.Prepared(preparation, forest), fit


def _tell(
    on_epoch: Callable[[Epoch], None],
    name: str,
    member: int,
    members: int,
    tree: int,
    most: int,
    ndcg: float,
    seconds: float,
) -> None:
    """Reports a tree."""
    interrupts.check()
    left = seconds * (most * (members - member + 1) - tree)
    on_epoch(Epoch(name, tree, most, ndcg, member, members, left, "tree"))


def _starts(start: keras.Model, count: int) -> Sequence[keras.Model]:
    """The networks of an earlier model, without its trees."""
    found = [x for x in members_of(start) if not isinstance(parts_of(x)[1], models.BoostedTrees)]
    if len(found) != count:
        raise StartError(
            f"`start` must be of as many networks as there are losses, {count}. "
            f"Received: {start.name!r}, of {len(found)}"
        )
    return found


def _has(one: Candidate, other: Candidate, number: int) -> bool:
    """Whether two candidates train the same model with the same loss at an index."""
    same_model = one.make_model is other.make_model and one.arguments == other.arguments
    if not same_model or number >= len(one.losses):
        return False
    a, b = one.losses[number], other.losses[number]
    return type(a) is type(b) and a.get_config() == b.get_config()


def _joined(members: Sequence[keras.Model], count: int) -> keras.Model:
    """Joins models, of which the first `count` are networks and the others trees.

    Features are prepared once if all have equal preparations.
    """
    preparations, parts = zip(*map(parts_of, members), strict=True)
    known = [found and found.get_config() for found in preparations]
    if known[0] is None or any(config != known[0] for config in known):
        return trees.ensemble(members[:count], members[count:])
    ensemble = trees.ensemble(parts[:count], parts[count:])
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
    """Trains a model (only its network if prepared), and restores the best epoch's weights."""
    _, trained = parts_of(model)
    learned, held_out = lists.of(model)
    known = backup.record if backup else {}
    epochs = known.get("epochs", 0)
    workers = lists.workers
    batches, measured, steps = networks.batches(
        trained,
        learned,
        held_out,
        settings.batch_size,
        settings.seed,
        epochs=epochs,
        workers=workers,
    )
    networks.build(trained, batches)
    if backup and "fit" in known:
        backup.restore(variables_of(trained, loss))
        return Fit(**known["fit"])
    if start is not None:
        try:
            models.warm_start(model, start)
        except ValueError as error:
            raise StartError(str(error)) from error
    if known and log:
        shutil.rmtree(log, ignore_errors=True)  # rewritten from the history
    history = keras.callbacks.History()
    networks.fit(
        trained,
        loss,
        workers.in_step(instantiate.optimizer(settings, steps)),
        batches,
        steps=steps,
        epochs=settings.epochs,
        initial_epoch=epochs,
        callbacks=_callbacks(measured, loss, settings, log, watch, history, backup, workers),
    )
    values = {name: [float(x) for x in found] for name, found in history.history.items()}
    seconds, size = watch.seconds_per_step(), settings.batch_size
    fit = _measured(loss.name, values, seconds, size, learned)
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
    workers: Group,
) -> list[keras.callbacks.Callback]:
    """The callbacks of a training, in the order of their dependencies."""
    board = keras.callbacks.TensorBoard(log) if log else keras.callbacks.Callback()
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg", mode="max", patience=settings.patience, restore_best_weights=True
    )
    return [
        *([MeanLogs(workers)] if workers.size > 1 else []),
        networks.Validation(measured, loss, workers, settings.gain),
        watch,
        board,
        stopping,
        history,
        *([Resumption(backup, loss, watch, history, stopping, board)] if backup else []),
    ]


def _measured(
    name: str,
    history: Mapping[str, list[float]],
    seconds_per_step: float,
    lists_per_step: int,
    learned: Cache,
) -> Fit:
    values = history["val_ndcg"]
    return Fit(
        name,
        epochs=len(values),
        validation_ndcg=max(values),
        seconds_per_step=seconds_per_step,
        lists_per_second=lists_per_step / seconds_per_step,
        items_per_second=lists_per_step / seconds_per_step * float(learned.sizes.mean()),
        history=history,
    )


def _scores(model: keras.Model, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    return model(inputs_of(model, inputs), training=False)
