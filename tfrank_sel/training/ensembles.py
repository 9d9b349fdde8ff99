"""Ensembles of the members of a candidate: their weights, and what smaller ones would gain."""

from collections.abc import Iterable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel.listwise import as_lists
from tfrank_sel.metrics.significance import CONFIDENCE, holm, t_test
from tfrank_sel.models.preparation import standardise
from tfrank_sel.training import networks as training
from tfrank_sel.training.lists import PreparedLists, parts_of


def shares(members: Iterable[int], networks: int) -> dict[int, float]:
    """Returns the weight of each member of an ensemble.

    Half of it is that of networks, and half that of trees, if there are both.

    Args:
        members: The members by their index: first networks, then trees.
        networks: Number of networks of the candidate.

    Example:
        >>> shares([0, 1, 2], networks=1), shares([0, 2], networks=1)
        ({0: 2.0, 1: 1.0, 2: 1.0}, {0: 1.0, 2: 1.0})
    """
    kept = [*members]
    count = sum(i < networks for i in kept)
    of_kind = {True: float(len(kept) - count or 1), False: float(count or 1)}
    return {i: of_kind[i < networks] for i in kept}


def contributions(
    members: Sequence[keras.Model], networks: int, lists: PreparedLists
) -> tuple[Sequence[float | None], Sequence[int]]:
    """Compares the ensemble of several members with smaller ones, by their validation NDCG@10.

    Args:
        members: The members: first networks, then trees.
        networks: Number of networks.
        lists: The lists.

    Returns:
        What each member adds: the NDCG of the ensemble less that of the other members with the same
        weights. And the members of the best smaller ensemble, with weights of its own, if it is
        significantly better than the whole; or else none.
    """
    everyone = shares(range(len(members)), networks)
    without = [{i: x for i, x in everyone.items() if i != left_out} for left_out in everyone]
    smaller = [shares(x, networks) for x in _smaller(len(members), networks)]
    ndcg, weights = _validation_ndcg(members, [everyone, *without, *smaller], lists)
    if not weights.sum():
        return [None] * len(members), ()
    gains = ndcg[1:] - ndcg[0]
    adds, gains = gains[: len(members)], gains[len(members) :]
    p = holm(t_test((gains * weights).T))
    means = np.where(p < 1.0 - CONFIDENCE, gains @ weights, 0.0)
    better = [*smaller[means.argmax()]] if means.max(initial=0.0) > 0.0 else ()
    return (-adds @ weights / weights.sum()).tolist(), better


def _smaller(members: int, networks: int) -> list[tuple[int, ...]]:
    """The smaller ensembles: without one member, one alone, or networks alone.

    Each has a network if there is one, as a configuration asks for.
    """
    everyone = (*range(members),)
    parts = [everyone[:i] + everyone[i + 1 :] for i in everyone]
    parts += [*((i,) for i in everyone), everyone[: networks or 1]]
    return [x for x in dict.fromkeys(parts) if len(x) < members and x[0] < (networks or members)]


def _validation_ndcg(
    members: Sequence[keras.Model], ensembles: Sequence[Mapping[int, float]], lists: PreparedLists
) -> tuple[np.ndarray, np.ndarray]:
    """Measures the validation NDCG@10 of ensembles of some of the members.

    Args:
        members: The members.
        ensembles: The weight of each member, by its index.
        lists: The lists.

    Returns:
        The NDCG of each list that has one, `[ensembles, lists]`, and the weight of the list; both
        empty without validation.
    """
    parts, settings = [parts_of(member)[1] for member in members], lists.settings
    measured = [
        training.batches(part, *lists.of(member), settings.batch_size, settings.seed)[1]
        for member, part in zip(members, parts, strict=True)
    ]
    if measured[0] is None:
        return np.empty([len(ensembles), 0]), np.empty(0)
    evaluate, of_batches = training.evaluator(settings.gain), []
    for batches in zip(*(x[1] for x in measured if x is not None), strict=True):
        _, labels, *weights = batches[0]
        pairs = zip(parts, batches, strict=True)
        scores = [
            standardise(as_lists(part(inputs, training=False)), labels == labels)
            for part, (inputs, *_) in pairs
        ]
        ndcg = []
        for shares_of in ensembles:
            total = tf.add_n([share * scores[i] for i, share in shares_of.items()])
            # what differs by rounding is a tie
            rounded = tf.cast(tf.round(1e5 * total), tf.float32)
            ndcg.append(evaluate(labels, rounded, *weights)["ndcg"])
        of_batches.append(tf.stack([*(x.values for x in ndcg), ndcg[0].weights]).numpy())
    values = np.concatenate(of_batches, axis=1).astype(np.float64)
    values = values[:, values[-1] > 0.0]
    return values[:-1], values[-1]
