"""Training of the models of a candidate, with early stopping by validation NDCG."""

import contextlib
import dataclasses
import functools
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import MeanLogs
from tfrank_sel.errors import received
from tfrank_sel.models.preparation import inputs_of
from tfrank_sel.models.transfer import members_of
from tfrank_sel.training import ensembles, networks, trees
from tfrank_sel.training.callbacks import (
    Epoch,
    Hooks,
    Resumption,
    Stopwatch,
    epochs_to_come,
    variables_of,
)
from tfrank_sel.training.candidates import Candidate
from tfrank_sel.training.lists import PreparedLists, parts_of
from tfrank_sel.training.settings import patience

NO_HOOKS = Hooks()


class StartError(ValueError):
    """A model for a warm start that does not fit."""


@dataclasses.dataclass(frozen=True)
class MemberFit:
    """Results of the training with one loss.

    Args:
        loss: Name of the loss; of boosted trees, with `_trees` at its end.
        epochs: Number of epochs, or of boosted trees.
        validation_ndcg: Best validation NDCG@10; NaN without validation.
        seconds_per_step: Mean time of a training step, without the first epoch (which compiles) if
            there are more; or of a tree.
        lists_per_second: Throughput in lists.
        items_per_second: Throughput in items, without padding.
        history: Loss and metrics of each epoch, by name; of trees, metrics only.
        adds: Validation NDCG@10 of the ensemble less that of the ensemble without it; None for
            a single model, or without validation.
    """

    loss: str
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]
    # not of the training: two candidates may share a member
    adds: float | None = dataclasses.field(default=None, compare=False)

    @property
    def unit(self) -> str:
        """What `epochs` counts: an epoch or a tree."""
        return "epoch" if "loss" in self.history else "tree"

    def __str__(self) -> str:
        ndcg = self.validation_ndcg
        best = "" if math.isnan(ndcg) else f", best validation NDCG@10 {ndcg:.4f}"
        return f"{self.loss}: {self.epochs} {self.unit}s{best}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and its training results.

    Args:
        candidate: The trained candidate.
        model: The model, with the weights of its best epochs.
        members: Its member models, one per loss, and the boosted trees of each.
        fits: Training results of each member.
        better: Indices of the members of the smaller ensemble, or of the single one, with the best
            validation NDCG@10, if it is significantly better than that of the model; or else none.
    """

    candidate: Candidate
    model: keras.Model
    members: Sequence[keras.Model]
    fits: Sequence[MemberFit]
    better: Sequence[int] = ()

    @property
    def scores(self) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
        """The scoring function of the model, of features and mask."""
        return functools.partial(_scores, self.model)

    def figures(self) -> dict[str, Any]:
        """Returns the name of the model and all figures."""
        fits = [dataclasses.asdict(fit) for fit in self.fits]
        return {"model": self.model.name, "fits": fits, "better": list(self.better)}


def each_once(trained: Mapping[str, Trained]) -> list[tuple[str, MemberFit]]:
    """Returns each fit, by the first name under which it was trained."""
    listed: list[tuple[str, MemberFit]] = []
    for name, result in trained.items():
        listed += [(name, fit) for fit in result.fits if all(fit != other for _, other in listed)]
    return listed


def train(
    candidate: Candidate,
    preparation: models.Preparation,
    lists: PreparedLists,
    hooks: Hooks = NO_HOOKS,
    before: Sequence[Trained] = (),
    start: keras.Model | None = None,
) -> Trained:
    """Trains a candidate: one model with each of its losses, and boosted trees if it says so.

    The random numbers of Python and NumPy are left as they were.

    Args:
        candidate: The candidate to train.
        preparation: Layer that prepares the features, shared by its models.
        lists: Training and validation lists, and settings. All of its workers call `train` with
            the same arguments.
        hooks: What the caller adds.
        before: A candidate trained on the same lists with the same settings. Models with the same
            loss and seed are reused, unless there is a `start`.
        start: Model for a warm start, as in `models.warm_start`: the result of an earlier call with
            the same number of losses, in the same order. Trees are trained from the start.

    Returns:
        The model (the `models.Ensemble` of all models if there are several), and its training
        results.

    Raises:
        ValueError: If a backup belongs to another training.
        StartError: If `start` does not fit.
        trees.TreesError: If LightGBM rejects a parameter or the labels.
    """
    count, settings = len(candidate.losses), lists.settings
    total = len(candidate.all_losses)
    starts = [None] * count if start is None else _starts(start, count)
    earlier = [
        next((x for x in before if start is None and _has(x.candidate, candidate, i)), None)
        for i in range(count)
    ]
    members, fits = [], []
    for number, loss in enumerate(candidate.losses):
        if (result := earlier[number]) is not None:
            members.append(result.members[number])
            fits.append(result.fits[number])
            continue
        make_epoch = functools.partial(Epoch, loss.name, member=number + 1, members=total)
        to_come = earlier[number + 1 :].count(None) + total - count
        watch = Stopwatch(hooks, make_epoch, to_come)
        with _seed(settings.seed + number):
            model = candidate.make_model(preparation, settings, **candidate.arguments)
            if isinstance(model, models.Prepared):  # a part of it is trained, and thereby built
                model.build(lists.shapes)
            fits.append(_fit(model, loss, lists, hooks, watch, starts[number]))
        members.append(model)
        hooks.on_model(fits[-1])
    layer = (parts_of(members[0])[0] if members else None) or preparation
    for forest, fit in _forests(candidate, layer, lists, hooks):
        members.append(forest)
        fits.append(fit)
        hooks.on_model(fit)
    shares = ensembles.shares(range(len(members)), count)
    model = members[0] if len(members) == 1 else _join_models(members, list(shares.values()))
    if not model.built:
        model.build(lists.shapes)
    better: Sequence[int] = ()
    if lists.workers.is_chief and len(members) > 1:
        adds, better = ensembles.contributions(members, count, lists)
        fits = [dataclasses.replace(fit, adds=x) for fit, x in zip(fits, adds, strict=True)]
    return Trained(candidate, model, members, fits, better)


@contextlib.contextmanager
def _seed(seed: int) -> Iterator[None]:
    """Seeds Keras, and leaves the random numbers of Python and NumPy as they were."""
    states = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _forests(
    candidate: Candidate,
    preparation: keras.layers.Layer,
    lists: PreparedLists,
    hooks: Hooks,
) -> Iterator[tuple[keras.Model, MemberFit]]:
    """Trains boosted trees on prepared features.

    Only the chief does, whose model is kept.
    """
    if candidate.trees is None:
        return
    learned, held_out = lists.prepare(preparation)
    if not lists.workers.is_chief:
        return
    data = learned, held_out, candidate.trees.parameters
    binned = functools.cache(functools.partial(trees.Binned, *data))  # not if all trees are kept
    total, first = len(candidate.all_losses), len(candidate.losses) + 1
    members = zip(candidate.trees.names, candidate.trees.losses, strict=True)
    for member, (name, loss) in enumerate(members, start=first):
        kept = hooks.backup_of(name)
        if kept and kept.record:
            forest = models.BoostedTrees.from_config(kept.record["trees"])
            forest.build(None)
            kept.restore(forest.weights)
            fit = MemberFit(**kept.record["fit"])
        else:
            forest, history, seconds = trees.train(
                loss,
                binned(),
                lists.settings.seed + member - 1,
                functools.partial(_tell, hooks, name, member, total, []),
                lists.settings.gain,
            )
            count = len(history.get("val_ndcg", ())) or forest.num_trees
            fit = _member_fit(name, count, history, seconds, len(learned.sizes), learned)
            if kept:
                record = {"fit": dataclasses.asdict(fit), "trees": forest.get_config()}
                kept.save(record, forest.weights)
        yield models.Prepared(preparation, forest), fit


def _tell(
    hooks: Hooks, name: str, member: int, members: int, values: list[float], *of_tree: Any
) -> None:
    """Reports a tree."""
    hooks.on_step()
    tree, most, ndcg, seconds = of_tree
    values.append(ndcg)
    to_come = epochs_to_come(values, most, trees.PATIENCE, members - member)
    hooks.on_epoch(Epoch(name, tree, most, ndcg, member, members, seconds * to_come, "tree"))


def _starts(start: keras.Model, count: int) -> Sequence[keras.Model]:
    """The networks of an earlier model, without its trees."""
    members = [x for x in members_of(start) if not isinstance(parts_of(x)[1], models.BoostedTrees)]
    if len(members) != count:
        expected = f"`start` must be of as many networks as there are losses, {count}"
        raise StartError(received(expected, f"{start.name!r}, of {len(members)}"))
    return members


def _has(trained: Candidate, other: Candidate, number: int) -> bool:
    """Whether two candidates train the same model with the same loss at an index."""
    same_model = trained.make_model is other.make_model and trained.arguments == other.arguments
    if not same_model or number >= len(trained.losses):
        return False
    a, b = trained.losses[number], other.losses[number]
    return type(a) is type(b) and a.get_config() == b.get_config()


def _join_models(members: Sequence[keras.Model], shares: Sequence[float]) -> keras.Model:
    """Joins models. Features are prepared once if all have equal preparations."""
    preparations, parts = zip(*map(parts_of, members), strict=True)
    configs = [preparation and preparation.get_config() for preparation in preparations]
    if configs[0] is None or any(config != configs[0] for config in configs):
        return models.Ensemble(members, shares)
    ensemble = models.Ensemble(parts, shares)
    return models.Prepared(preparations[0], ensemble, name=ensemble.name)


def _fit(
    model: keras.Model,
    loss: keras.losses.Loss,
    lists: PreparedLists,
    hooks: Hooks,
    watch: Stopwatch,
    start: keras.Model | None,
) -> MemberFit:
    """Trains a model (only its network if prepared), and restores the best epoch's weights."""
    _, trained = parts_of(model)
    learned, held_out = lists.of(model)
    workers, settings = lists.workers, lists.settings
    log = None if hooks.logs is None else os.path.join(hooks.logs, loss.name)
    backup = hooks.backup_of(loss.name, workers.is_chief)
    saved = backup.record if backup else {}
    epochs = saved.get("epochs", 0)
    size, seed = settings.batch_size, settings.seed
    batches, measured, steps = networks.batches(
        trained, learned, held_out, size, seed, epochs=epochs, workers=workers
    )
    networks.build(trained, batches)
    if backup and "fit" in saved:
        backup.restore(variables_of(trained, loss))
        return MemberFit(**saved["fit"])
    if start is not None:
        try:
            models.warm_start(model, start)
        except ValueError as error:
            raise StartError(str(error)) from error
    if saved and log:
        # The log is written again from the history.
        shutil.rmtree(log, ignore_errors=True)
    watch.patience = patience(settings, len(learned.sizes))
    board = keras.callbacks.TensorBoard(log) if log else keras.callbacks.Callback()
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg",
        mode="max",
        patience=watch.patience,
        restore_best_weights=True,
    )
    validation = measured and networks.Validation(measured, loss, workers, settings.gain)
    history = keras.callbacks.History()
    networks.fit(
        trained,
        loss,
        workers.in_step(hooks.optimizer(settings, steps)),
        batches,
        steps=steps,
        epochs=settings.epochs,
        initial_epoch=epochs,
        # Each reads what those before it leave.
        callbacks=[
            *([MeanLogs(workers)] if workers.size > 1 else []),
            *([validation] if validation else []),
            watch,
            board,
            *([stopping] if validation else []),
            history,
            *([Resumption(backup, loss, watch, history, stopping, board)] if backup else []),
        ],
        verbose=hooks.verbose,
    )
    values = {name: [float(x) for x in by_epoch] for name, by_epoch in history.history.items()}
    seconds = watch.seconds_per_step()
    fit = _member_fit(loss.name, len(values["loss"]), values, seconds, size, learned)
    if backup:
        backup.save({"fit": dataclasses.asdict(fit)}, variables_of(trained, loss))
    return fit


def _member_fit(
    name: str,
    epochs: int,
    history: Mapping[str, list[float]],
    seconds_per_step: float,
    lists_per_step: int,
    learned: Cache,
) -> MemberFit:
    return MemberFit(
        name,
        epochs=epochs,
        validation_ndcg=max(history.get("val_ndcg", ()), default=math.nan),
        seconds_per_step=seconds_per_step,
        lists_per_second=lists_per_step / seconds_per_step,
        items_per_second=lists_per_step / seconds_per_step * float(learned.sizes.mean()),
        history=history,
    )


def _scores(model: keras.Model, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    return model(inputs_of(model, inputs), training=False)
