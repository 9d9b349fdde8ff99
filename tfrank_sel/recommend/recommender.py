"""A recommender of two stages: candidates of several retrievers, ordered by boosted trees."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp

from tfrank_sel import artefacts
from tfrank_sel.arguments import Count, Cutoff, Natural, OpenShare, StrPath, check_arguments
from tfrank_sel.data import Sequences, arrays, formats
from tfrank_sel.data.sequences import find
from tfrank_sel.errors import refusal
from tfrank_sel.models.als.factorizer import Learned
from tfrank_sel.recommend import answers, pairs, ranking, storage
from tfrank_sel.recommend.candidates import Factors, Neighbours, Popular, Source, Successors
from tfrank_sel.recommend.columns import ItemColumns, UserColumns
from tfrank_sel.recommend.evaluation import TWO_STAGES, Evaluation, cover, measure, relevance
from tfrank_sel.recommend.scores import Array, Matrix, Sums, weigh
from tfrank_sel.serialization import Configurable, register

_KIND = "Recommender"
_MOST = 10_000  # items of a list that LightGBM takes
_SEQUENCES = ("user_ids", "item_ids", "users", "items", "times")
_COLUMNS: Mapping[str, Source] = {"items": ItemColumns(), "users": UserColumns()}
_USER, _PAIR = {"user": "user"}, {"user": "user", "item": "item"}


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
        >>> taken = [(user, (user + t) % 9, t) for user in range(60) for t in range(5)]
        >>> rows = [dict(zip(("user", "item", "time"), x)) for x in taken]
        >>> recommender = Recommender([Successors(), Popular()], num_trees=10).fit(rows)
        >>> items, scores = recommender.recommend([3, 8], k=1)  # who took 3 to 7, and 8 to 3
        >>> items.tolist()
        [['8'], ['4']]
    """

    taken_: Sequences = cast(Any, Learned())
    sources_: dict[str, Source] = cast(Any, Learned())
    trees_: Any = cast(Any, Learned())

    def __init__(
        self,
        sources: Sequence[Source] = (Factors(), Successors(), Neighbours(), Popular()),
        later: OpenShare | None = None,
        loss: Any = None,
        num_trees: Count = 160,
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
        if (count := sum(source.count for source in self.sources)) > _MOST:
            raise refusal(f"`sources` must have at most {_MOST} candidates, as LightGBM", count)
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
        items: Any = None,
        users: Any = None,
        format: str | None = None,
    ) -> Self:
        """Learns of interactions.

        Args:
            taken: A table with a row for each interaction, or its file or files, as in
                `data.Sequences.read`; or `data.Sequences`.
            user: Column of the users' ids.
            item: Column of the items' ids.
            time: Column of the times.
            items: A table with a row for each item, whose other columns are features: numbers,
                truth values and texts. The ids are in a column of the same name as that of `taken`.
            users: The same of users.
            format: Format of all files, as in `data.read`.

        Raises:
            InputError: As `data.Sequences.read`, also of `items` and `users`.
            ValueError: If no user has a candidate that he took later.
        """
        if not isinstance(taken, Sequences):
            taken = Sequences.read(taken, user=user, item=item, time=time, format=format)
        sources = _of_classes(self.sources)
        if items is not None:
            sources["items"] = ItemColumns.read(items, "item", item, format)
        if users is not None:
            sources["users"] = UserColumns.read(users, "user", user, format)
        trees, fitted = self._teach(sources, taken), self._fit_sources(sources, taken)
        # all at once: a call that fails before changes nothing
        self.taken_, self.trees_, self.sources_ = taken, trees, fitted
        return self

    @check_arguments
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
        ids, scores = self.rank(taken, k, *self._exclusions(taken, exclude))
        return np.append(self.taken_.item_ids, "")[ids], scores

    @check_arguments
    def rank(
        self,
        histories: Sequences,
        k: Count,
        out: Matrix | None = None,
        common: Matrix | None = None,
    ) -> tuple[Array, Array]:
        """Returns the best items of histories by index, -1 without more, and their scores.

        Args:
            histories: The items that each user took, numbered as in the fit.
            k: Number of items.
            out: CSR matrix `[users, items]` of what is left out; as `repeats` says if None.
            common: CSR matrix `[1, items]` of what is left out for all users; nothing if None.
        """
        shape = len(histories.user_ids), k
        ids, best = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
        out = self._seen(histories) if out is None else out
        for rows, block in pairs.blocks(self.sources_, histories, out, common):
            ids[rows], best[rows] = self._sort(block, ids[rows].shape)
        return ids, best

    @check_arguments
    def evaluate(
        self, later: Any, k: Count = 10, *, histories: Any = None, seed: Natural = 0
    ) -> Evaluation:
        """Judges the recommendations, over all items, by what users took later.

        Beside them are those of each retriever alone, of the most popular items, and of what
        followed the last item most often. Items that are not of the fit count as missed.

        Args:
            later: What users took later, a table with columns `user`, `item` and `time`, its file
                or `data.Sequences`; without `repeats`, what they did not have counts.
            k: Number of items.
            histories: What they took before, as in `recommend`.
            seed: Seed of the intervals, which are of a bootstrap over users.

        Raises:
            AttributeError: If the recommender is not fitted.
            InputError: If a table is none.
            ValueError: If no user has an item.
        """
        later = later if isinstance(later, Sequences) else Sequences.read(later)
        later = later.take(np.unique(later.users))
        before = self.taken_ if histories is None else self._read(histories)
        before = before.of_users(later.user_ids)
        out = self._seen(before)
        relevant = relevance(later, out, self.taken_.item_ids)
        names = [name for name, source in self.sources_.items() if source.count]
        nobody = before.take(np.empty(0, int))
        alone = {
            "popularity": (Popular().fit(self.taken_), "all"),
            "successors of the last item": (Successors(reach=1).fit(self.taken_), "next"),
        }
        for name in names:
            alone[name] = self.sources_[name], next(iter(self.sources_[name].scores(nobody)))
        ranked = {TWO_STAGES: np.empty((len(before.user_ids), k), np.int32)}
        ranked |= {name: ranked[TWO_STAGES].copy() for name in alone}
        covered = []
        for rows, block in pairs.blocks(self.sources_, before, out):
            ranked[TWO_STAGES][rows] = self._sort(block, ranked[TWO_STAGES][rows].shape)[0]
            part = before.take(np.arange(rows.start, rows.stop))
            for name, (source, view) in alone.items():
                ranked[name][rows], _ = source.scores(part)[view].best(k, out[rows])
            is_taken = Sums(relevant[rows]).at(block.users, block.items) > 0.0
            covered.append(block.origins[is_taken])
        counts = np.bincount(self.taken_.items - 1, minlength=len(self.taken_.item_ids))
        return Evaluation(
            k,
            tuple(measure(ranked, relevant, weigh(before), counts, k, seed)),
            tuple(cover(np.concatenate(covered), relevant.nnz, names)),
        )

    def learned_arrays(self) -> dict[str, Any]:
        """Returns all that the fit made but the trees: arrays and CSR matrices, by name."""
        arrays = {f"taken/{name}": getattr(self.taken_, name) for name in _SEQUENCES}
        for name, source in self.sources_.items():
            arrays |= {f"{name}/{key}": value for key, value in source.learned.items()}
        return arrays

    def save(self, path: StrPath) -> None:
        """Writes a folder, atomically.

        Raises:
            AttributeError: If the recommender is not fitted.
            FileExistsError: If `path` exists.
        """
        arrays = self.learned_arrays()
        names = {"sources": [*self.sources_], "arrays": [*arrays]}
        config = {"recommender": self.get_config(), **names}
        with artefacts.folder(Path(path), _KIND) as written:
            storage.write(written, config, [*arrays.values()], self.trees_)

    @check_arguments
    def write(self, path: StrPath, k: Count = 10, *, verbose: bool = False) -> None:
        """Writes the best items of all users of the fit into a Parquet file.

        Its columns are `user`, `rank`, from 1, `item` and `score`. If the call is interrupted, the
        folder `.NAME.partial` next to the file is kept, and the same call goes on there; a call
        with another recommender or `k` starts again. Memory is that of some thousand users.

        Args:
            path: The file; it must not exist.
            k: Number of items of each user.
            verbose: Whether to show a progress bar, with the time left.

        Raises:
            AttributeError: If the recommender is not fitted.
            FileExistsError: If `path` exists.
            InputError: If another process is writing it.
            OSError: If it cannot be written, or a part is damaged.
            ValueError: If a part is no Parquet file.
        """
        answers.write(self, Path(path), k, verbose)

    @check_arguments
    def export(
        self, path: StrPath, k: Count = 10, *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Writes a SavedModel that answers as `recommend`, without Python.

        Its signature `serving_default` takes `user`, strings `[batch_size]`. Users of the fit have
        their histories, and others none. The signature `recommend` takes, too:

        * `history`: ids of items in order of time, strings `[batch_size, length]`, padded with
          `""`. It takes the place of what a user has in the fit, unless it is all `""`.
        * `exclude`: ids of items that are not recommended, strings `[batch_size, count]`, padded
          with `""`.

        Both return `items`, strings `[batch_size, k]`, and `scores`, float32; `""`, with the lowest
        finite float32, where there are no more candidates. The manifest is as in `export.export`.

        Args:
            path: Folder to write; it must not exist.
            k: Number of items to return.
            metadata: Additional JSON-ready content of the manifest, such as metrics.

        Raises:
            AttributeError: If the recommender is not fitted.
            FileExistsError: If `path` exists, or another process is exporting to it.
            ImportError: If TensorFlow is not installed.
            ValueError: If a retriever has scores of another class than those of this package.
        """
        from tfrank_sel.recommend import graph

        graph.export(self, path, k, metadata)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Reads a folder written by `save`.

        Raises:
            OSError: If a file is missing or cannot be read.
            ValueError: If a file is not as it was written; the error names it.
        """
        import lightgbm

        path = Path(path)
        artefacts.check(path, _KIND)
        file = path / storage.CONFIG
        with artefacts.name_file_in_errors(file, "the configuration of a recommender"):
            config = json.loads(file.read_text(encoding="utf-8"))
            loaded = cls.from_config(config["recommender"])
            sources = {**_of_classes(loaded.sources), **_COLUMNS}
            sources = {name: sources[name] for name in config["sources"]}
        file = path / storage.ARRAYS
        with artefacts.name_file_in_errors(file, "the arrays of this recommender"):
            arrays = dict(zip(config["arrays"], storage.read_arrays(file), strict=True))
            loaded.taken_ = Sequences(**{x: arrays[f"taken/{x}"] for x in _SEQUENCES})
            loaded.sources_ = {}
            for name, source in sources.items():
                start = f"{name}/"
                learned = {
                    x.removeprefix(start): y for x, y in arrays.items() if x.startswith(start)
                }
                loaded.sources_[name] = source.restore(learned)
        file = path / storage.TREES
        with artefacts.name_file_in_errors(file, "the trees of this recommender"):
            loaded.trees_ = lightgbm.Booster(model_str=file.read_text(encoding="utf-8"))
        return loaded

    def lessons(
        self, sources: Mapping[str, Source], taken: Sequences
    ) -> Iterator[tuple[pairs.Pairs, Array]]:
        """Yields candidates by what came first, and which of them users took later.

        Args:
            sources: Retrievers by name, which learn of what came first.
            taken: All that users took.
        """
        if self.later is None:
            past, later = taken.leave_one_out()
        else:
            past, later = taken.split(float(np.quantile(taken.times, 1.0 - self.later)))
        fitted = self._fit_sources(sources, past)
        users = np.unique(later.users)
        past, target = past.take(users), weigh(later.take(users))
        for rows, block in pairs.blocks(fitted, past, self._seen(past)):
            yield block, Sums(target[rows]).at(block.users, block.items) > 0.0

    def _teach(self, sources: Mapping[str, Source], taken: Sequences) -> Any:
        """Trees, taught by the lists in which something was taken."""
        lists = []
        for block, is_taken in self.lessons(sources, taken):
            kept = np.bincount(block.users, is_taken)[block.users] > 0.0
            sizes = np.unique(block.users[kept], return_counts=True)[1]
            lists.append((block.features[kept], is_taken[kept].astype(np.float32), sizes))
        if not sum(len(sizes) for *_, sizes in lists):
            raise refusal(
                "users must take later what is among their candidates, to teach their order",
                f"{len(taken.users)} interactions of {len(taken.user_ids)} users",
            )
        features, labels, sizes = map(np.concatenate, zip(*lists, strict=True))
        how = self.loss, self.num_trees, self.seed, self._threads
        return ranking.train(features, labels, sizes, *how)

    def _fit_sources(self, sources: Mapping[str, Source], taken: Sequences) -> dict[str, Source]:
        return {name: source.fit(taken, self._threads) for name, source in sources.items()}

    def _histories(self, users: Any, histories: Any) -> Sequences:
        """The histories of some users, with the items of the fit."""
        taken = self.taken_ if histories is None else self._read(histories)
        if users is None:
            return taken
        names = [users] if np.ndim(users) == 0 else users
        return taken.of_users(formats.table({"user": names}, _USER, place="`users`")["user"])

    def _read(self, taken: Any) -> Sequences:
        taken = taken if isinstance(taken, Sequences) else Sequences.read(taken)
        return taken.of_items(self.taken_.item_ids)

    def _seen(self, histories: Sequences) -> Matrix:
        """The items of the histories, which are not recommended; none with `repeats`."""
        own = weigh(histories)
        return sp.csr_matrix(own.shape, dtype=own.dtype) if self.repeats else own

    def _exclusions(self, histories: Sequences, exclude: Any) -> tuple[Matrix, Matrix | None]:
        """What is not recommended to each user, and to all: `out` and `common` of `rank`."""
        out = self._seen(histories)
        if exclude is None:
            return out, None
        table = formats.table(exclude, _PAIR, optional=("user",), place="`exclude`")
        items = find(table["item"], histories.item_ids)
        is_for_all = "user" not in table.roles
        user_ids, rows = arrays.encode(histories.user_ids)  # a user may be there twice
        users = np.zeros(len(items), int) if is_for_all else find(table["user"], user_ids)
        kept = (users >= 0) & (items >= 0)
        ones = np.ones(kept.sum(), np.float32)
        shape = 1 if is_for_all else len(user_ids), len(histories.item_ids)
        more: Matrix = sp.csr_matrix((ones, (users[kept], items[kept])), shape)
        return (out, more) if is_for_all else (out + more[rows], None)

    def _sort(self, block: pairs.Pairs, shape: tuple[int, int]) -> tuple[Array, Array]:
        """The best candidates of each user, and their scores."""
        if not len(block.items):  # of which LightGBM makes an error
            return np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
        scores = self.trees_.predict(block.features, num_threads=self._threads)
        return ranking.sort(block.users, block.items, scores.astype(np.float32), shape)

    @property
    def _threads(self) -> int:
        return self.num_threads or os.cpu_count() or 1


def _of_classes(sources: Sequence[Source]) -> dict[str, Source]:
    """Retrievers by the names of their classes."""
    return {type(source).__name__: source for source in sources}
