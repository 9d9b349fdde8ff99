"""Pairs of a user and a candidate: the union of all retrievers, with their scores as features."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tfrank_sel.data import Sequences
from tfrank_sel.recommend.candidates import Source
from tfrank_sel.recommend.scores import Array, Matrix

BLOCK = 512  # users at a time


class Pairs(NamedTuple):
    """Candidates of some users, user by user.

    Attributes:
        users: Index of the user of each candidate, `[pairs]`.
        items: Index of each candidate, in ascending order for a user, `[pairs]`.
        features: Features of each pair, float32 `[pairs, features]`.
        origins: Whether each retriever gave the candidate, `[pairs, retrievers]`.
    """

    users: Array
    items: Array
    features: Array
    origins: Array


def unite(sources: Mapping[str, Source], histories: Sequences, out: Matrix) -> Pairs:
    """Returns the candidates of some users.

    Args:
        sources: Retrievers that are fitted, by name.
        histories: The items that each user took.
        out: CSR matrix `[users, items]` of what is left out.
    """
    scores = {name: source.scores(histories) for name, source in sources.items()}
    num_items = len(histories.item_ids)
    keys = []
    for name, source in sources.items():
        if source.count:
            ids, _ = next(iter(scores[name].values())).best(source.count, out)
            rows, _ = (is_there := ids >= 0).nonzero()
            keys.append(rows * num_items + ids[is_there])
    union = np.unique(np.concatenate(keys))
    users, items = np.divmod(union, num_items)
    columns = [np.log1p(np.diff(histories.offsets)[users])]
    for name, views in scores.items():
        values = [view.at(users, items) for view in views.values()]
        columns += [*values, standing(users, values[0])] if sources[name].count else values
    features = np.stack(columns, axis=1, dtype=np.float32, casting="same_kind")
    origins = np.zeros((len(union), len(keys)), bool)
    for origin, own in zip(origins.T, keys, strict=True):
        origin[np.searchsorted(union, own)] = True
    return Pairs(users, items, features, origins)


def names(sources: Mapping[str, Source], histories: Sequences) -> list[str]:
    """Returns the names of the features of `unite`."""
    columns = ["length"]
    for name, source in sources.items():
        views = [f"{name}.{view}" for view in source.scores(histories)]
        columns += [*views, f"{name}.rank"] if source.count else views
    return columns


def standing(users: Array, scores: Array) -> Array:
    """Returns how many candidates of the same user have a higher score.

    Example:
        >>> standing(np.array([0, 0, 0, 1]), np.array([1.0, 3.0, 3.0, 2.0])).tolist()
        [2, 0, 0, 0]
    """
    order = np.lexsort((-scores, users))
    user, score = users[order], scores[order]
    is_first = np.diff(user, prepend=-1) != 0
    is_new = is_first | (np.diff(score, prepend=np.nan) != 0.0)
    places = np.arange(len(order))
    begins = (np.maximum.accumulate(np.where(x, places, 0)) for x in (is_new, is_first))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = next(begins) - next(begins)
    return ranks


def blocks(
    sources: Mapping[str, Source], histories: Sequences, out: Matrix, common: Matrix | None = None
) -> Iterator[tuple[slice, Pairs]]:
    """Yields the candidates of some users at a time, and which users these are.

    Args:
        sources: As in `unite`.
        histories: As in `unite`.
        out: As in `unite`.
        common: CSR matrix `[1, items]` of what is left out for all users; nothing if None.
    """
    count = len(histories.user_ids)
    for first in range(0, count, BLOCK):
        rows = slice(first, min(first + BLOCK, count))
        taken = histories.take(np.arange(rows.start, rows.stop))
        own = out[rows]
        if common is not None:  # of a block only: those of all users would be users times items
            own = own + sp.csr_matrix(np.ones((own.shape[0], 1))) @ common
        yield rows, unite(sources, taken, own)
