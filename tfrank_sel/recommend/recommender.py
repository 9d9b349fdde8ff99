"""A recommender of two stages: candidates of several retrievers, ordered by boosted trees."""

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from tfrank_sel.arguments import Count, Cutoff, Natural, OpenShare
from tfrank_sel.data import Sequences
from tfrank_sel.errors import received, refusal
from tfrank_sel.recommend import pairs, ranking
from tfrank_sel.recommend.candidates import Factors, Neighbours, Popular, Source, Successors
from tfrank_sel.recommend.scores import Array, Matrix, Sums, weigh
from tfrank_sel.serialization import Configurable, register


@register
class Recommender(Configurable):
    """Recommends items to users by what they took: candidates first, then their order.

    Retrievers give candidates, some hundred for each user. Their scores, and ranks by these, are
    the features of a pair of a user and an item. Boosted trees order the candidates. They are
    taught by what came later: retrievers learn of the earlier interactions, and the trees which
    candidates were taken next. Then the retrievers learn of all interactions, to serve. So no
    feature of a pair has seen whether it was taken.

    All that is needed of a user is his history, so that one who is new gets recommendations, too;
    one without a history gets popular items.

    Args:
        sources: The retrievers, each of another class.
        later: Share of the latest interactions by which the trees are taught. If None, it is the
            last item of each user, and others' later items are seen.
        loss: Loss of the trees, such as `losses.RGCrossLoss()`, with TensorFlow. LightGBM's
            `lambdarank`, without TensorFlow, if None.
        num_trees: Number of trees.
        repeats: Whether items that a user has are recommended again.
        num_threads: Number of threads; the number of processors if None.
        seed: Seed of the trees.

    Raises:
        ValueError: If an argument is out of range.

    Attributes:
        taken_: The interactions of the fit, `data.Sequences`.
        sources_: The retrievers that are fitted, by the names of their classes.
        trees_: The `lightgbm.Booster`.

    Example:
        >>> rows = [{"user": u, "item": (u + t) % 9, "time": t} for u in range(60) for t in range(5)]
        >>> recommender = Recommender([Successors(), Popular()], num_trees=10).fit(rows)
        >>> items, scores = recommender.recommend([3, 8], k=1)  # who took 3 to 7, and 8 to 3
        >>> items.tolist()
        [['8'], ['4']]
    """

    taken_: Sequences
    sources_: dict[str, Source]
    trees_: Any

    def __init__(
        self,
        sources: Sequence[Source] = (Factors(), Successors(), Neighbours(), Popular()),
        later: OpenShare | None = None,
        loss: Any = None,
        num_trees: Count = 120,
        repeats: bool = False,
        num_threads: Cutoff = None,
        seed: Natural = 0,
    ) -> None:
        self.sources = tuple(sources)
        if len({*map(type, self.sources)}) < len(self.sources) or not any(
            source.count for source in self.sources
        ):
            raise refusal(
                "`sources` must be of different classes, and one must have candidates",
                ", ".join(map(repr, self.sources)) or "none",
            )
        self.later = later
        self.loss = loss
        self.num_trees = num_trees
        self.repeats = repeats
        self.num_threads = num_threads
        self.seed = seed

    def fit(
        self,
        taken: Any,
        *,
        user: str = "user",
        item: str = "item",
        time: str = "time",
        format: str | None = None,
    ) -> Self:
        """Learns of interactions.

        Args:
            taken: A table with a row for each interaction, or its file or files, as in
                `data.Sequences.read`; or `data.Sequences`.
            user: Column of the users' ids.
            item: Column of the items' ids.
            time: Column of the times.
            format: As in `data.read`.

        Raises:
            InputError: As `data.Sequences.read`.
            ValueError: If no user has a candidate that he took later.
        """
        columns = {"user": user, "item": item, "time": time, "format": format}
        taken = taken if isinstance(taken, Sequences) else Sequences.read(taken, **columns)
        trees = self._teach(taken)
        # all at once: a call that fails before changes nothing
        self.taken_, self.trees_, self.sources_ = taken, trees, self._fit_sources(taken)
        return self

    def recommend(
        self, users: Any = None, k: Count = 10, *, histories: Any = None, exclude: Any = None
    ) -> tuple[Array, Array]:
        """Returns the best items of some users, and their scores.

        Args:
            users: Ids of the users; all of the histories if None. One that is not there has an
                empty history.
            k: Number of items.
            histories: What users took, as in `fit`, in place of the interactions of the fit. Items
                that these do not have are left out.
            exclude: A table of pairs of `user` and `item` that are not recommended, or of `item`
                alone, for all users.

        Returns:
            Ids of items, texts `[users, k]`, the empty text if there are no more candidates, and
            their scores, float32, then -inf. Scores of a user can be compared with each other.

        Raises:
            AttributeError: If the recommender is not fitted.
            InputError: If a table or an id is none.
        """
        taken = self._histories(users, histories)
        ids, scores = self.rank(taken, k, self._out(taken, exclude))
        return np.append(self.taken_.item_ids, "")[ids], scores

    def rank(
        self, histories: Sequences, k: int, out: Matrix | None = None
    ) -> tuple[Array, Array]:
        """Returns the best items of histories by index, -1 without more, and their scores.

        Args:
            histories: The items that each user took, numbered as in the fit.
            k: Number of items.
            out: CSR matrix `[users, items]` of what is left out; as `repeats` says if None.
        """
        shape = len(histories.user_ids), k
        ids, best = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
        out = self._seen(histories) if out is None else out
        for rows, block in pairs.blocks(self.sources_, histories, out):
            if len(block.items):
                scores = self._score(block)
                ranked = ranking.sort(block.users, block.items, scores, ids[rows].shape)
                ids[rows], best[rows] = ranked
        return ids, best

    def _teach(self, taken: Sequences) -> Any:
        """Trees, taught by what came after the interactions of which retrievers have learned."""
        if self.later is None:
            past, later = taken.leave_one_out()
        else:
            past, later = taken.split(float(np.quantile(taken.times, 1.0 - self.later)))
        sources = self._fit_sources(past)
        users = np.unique(later.users)
        past, target = past.take(users), weigh(later.take(users))
        features, labels, sizes = [], [], []
        for rows, block in pairs.blocks(sources, past, self._seen(past)):
            label = Sums(target[rows]).at(block.users, block.items) > 0.0
            counts = np.bincount(block.users, label, rows.stop - rows.start)
            kept = counts[block.users] > 0
            features.append(block.features[kept])
            labels.append(label[kept])
            sizes.append(np.bincount(block.users[kept]))
        sizes = np.concatenate(sizes) if sizes else np.empty(0, int)
        return ranking.train(
            np.concatenate(features),
            np.concatenate(labels).astype(np.float32),
            sizes[sizes > 0],
            pairs.names(sources, past.take(np.empty(0, int))),
            self.loss,
            self.num_trees,
            self.seed,
            self._threads,
        )

    def _fit_sources(self, taken: Sequences) -> dict[str, Source]:
        return {type(x).__name__: x.fit(taken, self._threads) for x in self.sources}

    def _score(self, block: pairs.Pairs) -> Array:
        return np.asarray(self.trees_.predict(block.features, num_threads=self._threads), "f4")

    def _seen(self, histories: Sequences) -> Matrix:
        """The items of the histories, which are left out, unless they may be repeated."""
        seen = weigh(histories)
        return sp.csr_matrix(seen.shape, dtype=seen.dtype) if self.repeats else seen

    @property
    def _threads(self) -> int:
        return self.num_threads or os.cpu_count() or 1
