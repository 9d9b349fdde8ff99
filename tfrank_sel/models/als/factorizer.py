"""Matrix factorisation by alternating least squares over RG and square losses."""

import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import artefacts
from tfrank_sel.arguments import AtLeast0, Count, Cutoff, Natural, Positive, StrPath
from tfrank_sel.distribution import Group, SingleProcess
from tfrank_sel.errors import received, refusal
from tfrank_sel.models.als import ids, progress, retrieval, tuning
from tfrank_sel.models.als.interactions import Interactions, as_matrix, merge, read
from tfrank_sel.models.als.objectives import (
    RG2,
    Objective,
    activity_weights,
    base_weights,
    random_factors,
)
from tfrank_sel.models.als.retrieval import Explanation, explain_score
from tfrank_sel.models.als.solver import Solver
from tfrank_sel.serialization import Configurable, register

if TYPE_CHECKING:
    from tfrank_sel.models.als.nearest import ItemIndex
    from tfrank_sel.models.scorers import TwoTower

Array: TypeAlias = NDArray[np.floating]
Path: TypeAlias = StrPath
# The kind and the files of a saved model.
_KIND, _CONFIG, _ARRAYS = "RGFactorizer", "config.json", "arrays.npz"
_UNSEARCHED = 0.6  # regularization that is neither given nor chosen
_HELD_OUT = 0.1  # share of the interactions by which it is chosen
_MOST_EXACT, _CG_STEPS = 128, 3  # factors of exact solutions by default, and steps above


class Learned:
    """An attribute that `fit` sets, with an error for those who read it before."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: object, owner: type) -> Any:
        if model is None:
            return self
        expected = f"`{self.name}` must be set by `fit` or `load` first"
        raise AttributeError(received(expected, f"{owner.__name__} that is not fitted"))


def _learned_array() -> Any:
    return Learned()


@register
class RGFactorizer(Configurable):
    """Matrix factorisation that minimises a quadratic ranking loss by alternating least squares.

    Scores are inner products `o_ui = p_u . q_i`, and a sweep minimises

    ```
    J = sum_u w_u * L_u(o_u) + 1/2 * sum_u lam * n_u**nu * |p_u|**2
        + 1/2 * sum_i lam * n_i**nu * |q_i|**2
    ```

    exactly over the users' factors and then over the items' factors, where `n` counts positives (at
    least 1), `lam` is `regularization`, `nu` is `count_exponent`, and `L_u` is the objective:
    `RG2`, `RGCross` or `WeightedSquare`. No step increases `J`, except for rounding, and there is
    no learning rate. The same data, seed and number of threads give the same factors.

    Args:
        objective: The loss of a user.
        num_factors: Length of the factors. Time and memory of a sweep grow with it, and more
            factors need fewer sweeps, such as 12, 8 and 4 for 64, 256 and 1,024.
        regularization: `lam`, not negative. If `None`, `fit` chooses 0.2, 0.6, 2, 6 or 20 by the
            NDCG@10 of held-out interactions, and tells it beside that of the most popular items.
            That takes about five times the time of the fit. With fewer than 100 held-out
            interactions, with several processes, and in other methods, `None` is 0.6.
        count_exponent: `nu`: 0 for a plain ridge, 1 for one in proportion to the positives.
        popularity_exponent: The base weight of an item is proportional to its number of positives
            to this power; 0 for equal weights.
        activity_exponent: `w_u` is proportional to the user's number of positives to minus this
            power, with mean 1 over positives; 0 for equal weights.
        sweeps: Maximum number of sweeps of `fit`.
        patience: Number of sweeps without a better validation NDCG after which `fit` stops early
            and restores the best factors; no early stopping if `None`.
        cg_steps: Preconditioned conjugate gradient steps per row, from its current value; 0 for
            exact solutions. If `None`, 3 above 128 factors, and exact solutions otherwise.
        initial_scale: Standard deviation of the initial factors; positive.
        num_threads: Number of threads; the number of processors if `None`.
        dtype: The dtype of the factors, float32 or float64.
        seed: Seed of the initial factors; at least 0.

    Raises:
        ValueError: If an argument is out of range.

    Attributes:
        user_factors_: `[num_users, num_factors]`.
        item_factors_: `[num_items, num_factors]`.
        regularization_: `lam`, given or chosen.
        seen_: The interactions of the fit, a SciPy CSR matrix `[num_users, num_items]` of gains.
        user_ids_: Ids of the users of a frame, by index; None if all methods take indices.
        item_ids_: Ids of its items.
        history_: Values after each sweep of `fit`: `objective`, `logit_norm` and, with validation,
            `ndcg@10`, `recall@10` and `mrr@10`.

    Example:
        >>> from tfrank_sel.models.als import RGFactorizer
        >>> users, items = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 2])
        >>> model = RGFactorizer(num_factors=2, regularization=0.01).fit((users, items))
        >>> ids, scores = model.recommend([2], k=1, filter_seen=False)
        >>> ids.tolist()
        [[2]]

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    user_factors_: Array = _learned_array()
    item_factors_: Array = _learned_array()
    seen_: Any = _learned_array()
    history_: list[dict[str, float]]
    _numberings: ids.Pair = (None, None)

    def __init__(
        self,
        objective: Objective = RG2(alpha=0.05),  # noqa: B008, a frozen value
        num_factors: Count = 64,
        regularization: AtLeast0 | None = None,
        count_exponent: float = 0.5,
        popularity_exponent: float = 0.0,
        activity_exponent: float = 0.0,
        sweeps: Count = 15,
        patience: Cutoff = None,
        cg_steps: Natural | None = None,
        initial_scale: Positive = 0.1,
        num_threads: Cutoff = None,
        dtype: str = "float32",
        seed: Natural = 0,
    ) -> None:
        if dtype not in ("float32", "float64"):
            raise refusal("`dtype` must be float32 or float64", f"dtype={dtype}")
        self.objective = objective
        self.num_factors = num_factors
        self.regularization = regularization
        self.regularization_ = _UNSEARCHED if regularization is None else regularization
        self.count_exponent = count_exponent
        self.popularity_exponent = popularity_exponent
        self.activity_exponent = activity_exponent
        self.sweeps = sweeps
        self.patience = patience
        self.cg_steps = cg_steps
        self.initial_scale = initial_scale
        self.num_threads = num_threads
        self.dtype = dtype
        self.seed = seed

    def fit(
        self,
        interactions: Any,
        validation: Any = None,
        *,
        user: str = "user",
        item: str = "item",
        list_weights: ArrayLike | None = None,
        factors: tuple[ArrayLike, ArrayLike] | None = None,
        verbose: bool = False,
        log_dir: Path | None = None,
        group: Group = SingleProcess(),  # noqa: B008, it has no state
    ) -> Self:
        """Factorises interactions from the start; warns if all item vectors are parallel or 0.

        A `regularization` of `None` is chosen first, by `validation` or, without it, by a tenth of
        the interactions: the latest of a frame with a column `time`, else random ones.

        Args:
            interactions: Positives: a table of ids, as in `interactions.read`, such as a frame with
                columns `user`, `item` and maybe `gain` and `time`; or indices, as in `as_matrix`.
            validation: Held-out positives of the same users and items, of the same kind; those of
                others are left out with a warning.
            user: Name of the column of users, in a frame.
            item: Name of the column of items.
            list_weights: Weight of each user's loss, in addition to `activity_exponent`; 1 if
                `None`.
            factors: The users' and the items' factors to start from; random ones if `None`.
            verbose: Whether to show progress.
            log_dir: Folder for TensorBoard, if any.
            group: The processes that fit together, if there are several. Each calls `fit` with the
                interactions, the validation, the weights and the factors of its own users, numbered
                from 0, and all items. At the end it has the factors of its own users and all items.
                Factors do not depend on the number of processes, except for rounding.

        Raises:
            ValueError: If interactions are malformed, shapes do not match, a system is singular, or
                more than half of the validation is of other users or items.
        """
        # of the regularization that is searched alone, the latest are held out
        timed = self.regularization is None and validation is None
        taken = read(interactions, timed=timed, user=user, item=item)
        known_ids = taken.numberings
        if known_ids[0] is not None and not isinstance(group, SingleProcess):
            raise refusal("Interactions of several processes must be indices", "a frame")
        matrix = as_matrix(taken)
        num_items = int(group.gather_rows(np.array([matrix.shape[1]])).max())
        matrix.resize(matrix.shape[0], num_items)
        if validation is not None:
            validation = read(validation, known_ids, timed=False, user=user, item=item)
            validation = as_matrix(validation.among(known_ids), matrix.shape)
        held_out = validation
        strength = self.regularization
        if strength is None and isinstance(group, SingleProcess):
            strength = self._choose_regularization(taken, matrix, held_out, list_weights)
        elif strength is None:
            strength = _UNSEARCHED
        first_user = group.gather_rows(np.array([matrix.shape[0]]))[: group.rank].sum()
        if factors is not None:  # which a sweep changes in place
            factors = np.array(factors[0], self.dtype), np.array(factors[1], self.dtype)
        users, all_items = self._factors(matrix.shape, factors, first_user)
        solver = self._solver(matrix, list_weights, group, strength)
        items = all_items[group.block(num_items)]
        history: list[dict[str, float]] = []
        best = (users, items)
        if group.rank > 0:
            verbose, log_dir = False, None
        rows = len(users) + len(items)
        with progress.Reporter(self.sweeps, rows, verbose, log_dir) as report:
            solver.on_rows = report.advance
            for sweep in range(self.sweeps):
                solver.sweep(users, items)
                history.append(progress.epoch_metrics(solver, users, items, matrix, held_out))
                report(sweep, history[-1])
                if self.patience is None or held_out is None:
                    continue
                since = sweep - int(np.argmax([values["ndcg@10"] for values in history]))
                if since == 0:
                    best = users.copy(), items.copy()
                elif since >= self.patience:
                    break
        if self.patience is not None and held_out is not None:
            users, items = best
        items = group.gather_rows(items)
        if group.rank == 0:
            progress.warn_if_collapsed(items)
        self._learn(users, items, matrix, known_ids, regularization_=strength, history_=history)
        self._columns = user, item
        return self

    def partial_fit(
        self,
        interactions: Any,
        sweeps: int = 1,
        *,
        user: str | None = None,
        item: str | None = None,
        list_weights: ArrayLike | None = None,
    ) -> Self:
        """Adds interactions, and refits the users and items that have some of them.

        They are refitted to all of their interactions; a new gain replaces the old one of a pair.
        Others keep their vectors. New users and items start from random factors.

        Args:
            interactions: Positives, of the same kind as those of the fit.
            sweeps: Number of sweeps.
            user: As in `fit`; that of the fit if `None`.
            item: As `user`.
            list_weights: Weight of each user's loss, in addition to `activity_exponent`; 1 if
                `None`.

        Raises:
            ValueError: If shapes do not match, or if a system is singular.
        """
        is_fitted = hasattr(self, "seen_")
        known_ids = self._numberings if is_fitted else None
        of_fit = getattr(self, "_columns", ("user", "item"))
        user, item = (x or y for x, y in zip((user, item), of_fit, strict=True))
        taken = read(interactions, known_ids, timed=False, user=user, item=item)
        factors, sizes = None, self.seen_.shape if is_fitted else (0, 0)
        matrix = taken.matrix(fitted=sizes)
        counts = [np.diff(matrix.indptr), np.bincount(matrix.indices)]
        if is_fitted:
            matrix = merge(self.seen_, matrix)
            old, new = (self.user_factors_, self.item_factors_), self._random(matrix.shape)
            factors = [np.concatenate([old[x], new[x][len(old[x]) :]]) for x in (0, 1)]
        matrix.eliminate_zeros()
        users, items = self._factors(matrix.shape, factors)
        solver = self._solver(matrix, list_weights, SingleProcess(), self.regularization_)
        rest = [np.setdiff1d(np.arange(n), x.nonzero()) for n, x in zip(sizes, counts, strict=True)]
        old_users, old_items = users[rest[0]], items[rest[1]]
        for _ in range(sweeps):
            solver.renew_users(users, items)
            users[rest[0]] = old_users
            solver.renew_items(users, items)
            items[rest[1]] = old_items
        self._learn(users, items, matrix, taken.numberings)
        return self

    def recommend(
        self,
        users: ArrayLike,
        k: int = 10,
        filter_seen: bool = True,
        items: ArrayLike | None = None,
        index: "ItemIndex | None" = None,
    ) -> tuple[NDArray[Any], Array]:
        """Returns the best items of some users, `[len(users), k]`, and their scores.

        If fewer than `k` items are left, the rest is -1 (or the empty text, if ids are texts) with
        score -inf. For a single user, both have shape `[k]`.

        Args:
            users: Indices, or ids, of the users, or of one user.
            k: Number of items; positive.
            filter_seen: Whether to leave out the items that the user had in the interactions of the
                fit.
            items: Indices, or ids, of the items to choose from; all if `None`.
            index: A `nearest.ItemIndex` of the item factors, which finds most of the best items in
                less time; all items are compared if `None`.

        Raises:
            AttributeError: If the model is not fitted, as in all methods that need its vectors.
            ValueError: If `k` is not positive, an index is out of range, a user has no
                interactions, or both `items` and `index` are given.
        """
        users = self._rows(0, "users", users)
        retrieval.check_known(np.atleast_1d(users), self.user_factors_)
        rows, factors, threads = np.atleast_1d(users), self.item_factors_, self._threads
        seen = self.seen_[rows] if filter_seen else None
        if index is None:
            if items is not None:
                items = self._rows(1, "items", items)
            result = retrieval.best_among(
                items, self.user_factors_[rows], factors, k, seen, threads
            )
        elif items is None and index.num_items == len(factors):
            result = index.best(self.user_factors_[rows], k, seen, threads)
        else:
            raise refusal(
                f"`index` must be of the {len(factors)} items, and excludes `items`",
                f"{index.num_items} items in `index`, items={items!r}",
            )
        best = ids.ids_at(result[0], self._numberings[1])
        return (best, result[1]) if users.ndim else (best[0], result[1][0])

    def similar_items(self, items: ArrayLike, k: int = 10) -> tuple[NDArray[Any], Array]:
        """Returns the items most similar to some items, without these, and their cosines.

        Args:
            items: Indices, or ids, of the items, or of one item.
            k: Number of items; positive.

        Raises:
            ValueError: If `k` is not positive, or an index is out of range.
        """
        similar, cosines = retrieval.most_similar(
            self._rows(1, "items", items), self.item_factors_, k
        )
        return ids.ids_at(similar, self._numberings[1]), cosines

    def similar_users(self, users: ArrayLike, k: int = 10) -> tuple[NDArray[Any], Array]:
        """Returns the users most similar to some users, as `similar_items`."""
        similar, cosines = retrieval.most_similar(
            self._rows(0, "users", users), self.user_factors_, k
        )
        return ids.ids_at(similar, self._numberings[0]), cosines

    def explain(self, user: int | str, item: int | str) -> Explanation:
        """Divides the score of an item into contributions of the items that the user took.

        The user's vector is the exact one for the current items and no `list_weights`.

        Raises:
            ValueError: If an index is out of range.
        """
        user, item = int(self._rows(0, "user", user)), int(self._rows(1, "item", item))
        counts, exponent = np.diff(self.seen_.indptr), self.activity_exponent
        weight = activity_weights(counts, exponent, SingleProcess())[user]
        counts = np.bincount(self.seen_.indices, minlength=self.seen_.shape[1])
        weights = base_weights(counts, self.popularity_exponent)
        row, factors = self.seen_[user], self.item_factors_
        (ridge,) = self._ridges(np.array([row.nnz]), self.regularization_)
        explanation = explain_score(item, row, self.objective, factors, weights, ridge / weight)
        return explanation._replace(items=ids.ids_at(explanation.items, self._numberings[1]))

    def to_keras(self) -> "TwoTower":
        """Returns a Keras model with these embeddings."""
        from tfrank_sel.models.scorers import TwoTower

        model = TwoTower(len(self.user_factors_), len(self.item_factors_), self.num_factors)
        model.build()
        model.set_weights([self.user_factors_, self.item_factors_])
        return model

    def save(self, path: Path) -> None:
        """Writes a folder with `config.json` and `arrays.npz` atomically.

        Raises:
            FileExistsError: If `path` exists.
        """
        arrays = {name: getattr(self, f"{name}_") for name in ("user_factors", "item_factors")}
        for name, numbering in zip(("user_ids", "item_ids"), self._numberings, strict=True):
            arrays |= ids.to_arrays(name, numbering)
        columns = {"columns": getattr(self, "_columns", ("user", "item"))}
        config = {**self.get_config(), **columns, "regularization": self.regularization_}
        _write(path, config, arrays, self.seen_)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a folder written by `save`.

        Raises:
            OSError: If a file is missing or cannot be read.
            ValueError: If a file is not as it was written; the error names it.
        """
        path = pathlib.Path(path)
        artefacts.check(path, _KIND)
        with artefacts.name_file_in_errors(path / _CONFIG, "the configuration of an RGFactorizer"):
            config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
            config.pop("device", None)  # versions before 0.1.0 had it
            columns = config.pop("columns", ("user", "item"))
            model = cls.from_config(config)
        with artefacts.name_file_in_errors(path / _ARRAYS, "the arrays of this RGFactorizer"):
            pair, numberings, seen = _read(path / _ARRAYS)
            users, items = model._factors(seen.shape, pair)
        model._learn(users, items, seen, numberings)
        model._columns = tuple(columns)
        return model

    @property
    def user_ids_(self) -> NDArray[Any] | None:
        """Ids of the users of a frame, by index; None if all methods take indices."""
        numbering = self._numberings[0]
        return None if numbering is None else numbering.ids

    @property
    def item_ids_(self) -> NDArray[Any] | None:
        """Ids of the items, as `user_ids_`."""
        numbering = self._numberings[1]
        return None if numbering is None else numbering.ids

    def _rows(self, side: int, name: str, wanted: ArrayLike) -> NDArray[np.int64]:
        """The indices of users (0) or items (1), given by their ids if they have some."""
        factors = self.item_factors_ if side else self.user_factors_
        if (numbering := self._numberings[side]) is None:
            return retrieval.indices(name, wanted, len(factors))
        return numbering.rows(name, wanted)

    @property
    def _cg_steps(self) -> int | None:
        if self.cg_steps is not None:
            return self.cg_steps or None
        return _CG_STEPS if self.num_factors > _MOST_EXACT else None

    @property
    def _threads(self) -> int:
        return self.num_threads or os.cpu_count() or 1

    def _factors(
        self, counts: tuple[int, int], initial: Any = None, first_user: int = 0
    ) -> tuple[Array, Array]:
        """The given factors, of the dtype and the shapes of this model; random ones if `None`."""
        shapes = [(count, self.num_factors) for count in counts]
        if initial is None:
            initial = self._random(counts, first_user)
        users, items = (np.asarray(side, self.dtype, order="C") for side in initial)
        if [users.shape, items.shape] != shapes:
            raise refusal(
                f"Factors must have shapes {shapes[0]} and {shapes[1]}",
                f"{users.shape} and {items.shape}",
            )
        return users, items

    def _learn(
        self, users: Array, items: Array, seen: Any, numberings: ids.Pair, **others: Any
    ) -> None:
        """Takes what was learned, all at once: a call that fails before changes nothing."""
        vars(self).update(
            others, user_factors_=users, item_factors_=items, seen_=seen, _numberings=numberings
        )

    def _random(self, counts: tuple[int, int], first_user: int = 0) -> list[Array]:
        scale, shapes = self.initial_scale, [(count, self.num_factors) for count in counts]
        return random_factors(shapes, scale, self.seed, self.dtype, first_user)

    def _choose_regularization(
        self, taken: Interactions, train: Any, held_out: Any, weights: Any
    ) -> float:
        """The best regularization, if enough interactions are held out."""
        if held_out is None and train.nnz * _HELD_OUT >= tuning.FEWEST:
            train, held_out = taken.divide(_HELD_OUT, np.random.default_rng(self.seed))
        if held_out is None or held_out.nnz < tuning.FEWEST:
            print(
                f"regularization={_UNSEARCHED} is not searched: fewer than {tuning.FEWEST} "
                "interactions can be held out",
                file=sys.stderr,
            )
            return _UNSEARCHED
        return tuning.regularization(self, train, held_out, weights)

    def _solver(
        self,
        matrix: Any,
        list_weights: ArrayLike | None,
        group: Group,
        regularization: float,
        item_weights: NDArray[np.float64] | None = None,
    ) -> Solver:
        num_users, num_items = matrix.shape
        weights = np.ones(num_users) if list_weights is None else np.asarray(list_weights, float)
        is_number = np.isfinite(weights) & (weights >= 0.0)
        if weights.shape != (num_users,) or not is_number.all():
            raise refusal(
                f"`list_weights` must be {num_users} finite weights, not negative",
                f"shape {weights.shape}, such as {weights[~is_number][:1]}",
            )
        weights = weights * activity_weights(np.diff(matrix.indptr), self.activity_exponent, group)
        counts = group.total(np.bincount(matrix.indices, minlength=num_items))
        block = group.block(num_items)
        if item_weights is None:
            item_weights = base_weights(counts, self.popularity_exponent)
        return Solver(
            matrix,
            self.objective,
            self._ridges(np.diff(matrix.indptr), regularization),
            self._ridges(counts[block], regularization),
            list_weights=weights,
            base_weights=item_weights[block],
            cg_steps=self._cg_steps,
            num_threads=self._threads,
            dtype=self.dtype,
            group=group,
        )

    def _ridges(self, counts: NDArray[Any], regularization: float) -> NDArray[np.float64]:
        return regularization * np.maximum(counts, 1.0) ** self.count_exponent


def _write(path: Path, config: dict[str, Any], arrays: dict[str, Any], matrix: Any) -> None:
    parts = {"indptr": matrix.indptr, "indices": matrix.indices, "gains": matrix.data}
    with artefacts.folder(pathlib.Path(path), _KIND) as written:
        (written / _CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
        np.savez(written / _ARRAYS, **arrays, **parts)


def _read(path: Path) -> tuple[tuple[Array, Array], ids.Pair, Any]:
    """Reads the factors, the ids and the matrix."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    gains = arrays["gains"]
    users, items = arrays["user_factors"], arrays["item_factors"]
    parts = gains, arrays["indices"], arrays["indptr"]
    matrix = sp.csr_matrix(parts, shape=(len(users), len(items)))
    matrix.check_format()
    for name, values in (("user_factors", users), ("item_factors", items), ("gains", gains)):
        if not np.isfinite([values.min(initial=0.0), values.max(initial=0.0)]).all():
            raise ValueError(f"{name} that are not finite")
    numberings = ids.from_arrays("user_ids", arrays), ids.from_arrays("item_ids", arrays)
    for numbering, count in zip(numberings, matrix.shape, strict=True):
        if numbering is not None and numbering.ids.shape != (count,):
            raise ValueError(f"ids of shape {numbering.ids.shape} for {count} factors")
    return (users, items), numberings, matrix
