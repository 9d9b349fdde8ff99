"""Retrievers of candidates: a factorisation, successors, neighbours and popularity."""

import abc
import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from tfrank_sel.arguments import (
    AtLeast0,
    Count,
    Cutoff,
    Natural,
    OpenShare,
    Positive,
    Rate,
    check_arguments,
)
from tfrank_sel.data import Sequences
from tfrank_sel.models.als import RGCross, RGFactorizer
from tfrank_sel.models.als.objectives import Objective
from tfrank_sel.models.als.solver import Solver
from tfrank_sel.recommend.scores import (
    Array,
    Matrix,
    Products,
    Scores,
    Sums,
    System,
    Values,
    multiply,
    solve,
    weigh,
)
from tfrank_sel.serialization import Frozen, register

_BLOCK = 256  # items at a time
_COUNTED = 0.5  # exponent of a user's number of items, by which his regularization grows


class Source(Frozen, abc.ABC):
    """A retriever: what it learns of sequences scores the items by a history alone.

    Args:
        count: Number of candidates of a user; 0 if the scores are features only.
    """

    count: Natural = 100
    learned: ClassVar[Mapping[str, Any]] = {}

    def fit(self, taken: Sequences, num_threads: int = 1) -> Self:
        """Returns a copy that has learned of sequences.

        Args:
            taken: The items that each user took.
            num_threads: Number of threads.
        """
        return self.restore(self.learn(taken, num_threads))

    def restore(self, learned: Mapping[str, Any]) -> Self:
        """Returns a copy that has learned what `learned` holds."""
        fitted = copy.copy(self)
        object.__setattr__(fitted, "learned", learned)
        return fitted

    @check_arguments
    def candidates(
        self, histories: Sequences, k: Cutoff = None, out: Matrix | None = None
    ) -> tuple[Array, Array]:
        """Returns the best items for each history.

        Args:
            histories: The items that each user took, numbered as in the fit.
            k: Number of items; `count` if None.
            out: CSR matrix `[users, items]` of items to leave out; those of the history if None.

        Returns:
            Indices of items, int32 `[users, k]`, -1 if no item is left, and their scores, float32.
        """
        first = next(iter(self.scores(histories).values()))
        return first.best(self.count if k is None else k, weigh(histories) if out is None else out)

    @abc.abstractmethod
    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Returns what is learned, as arrays and CSR matrices by name."""

    @abc.abstractmethod
    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns scores by name, the first of which chooses candidates; all are features."""


@register
class Factors(Source):
    """Items of the largest products with a user's vector, by `als.RGFactorizer`.

    The vector of a user is the exact solution for the items of his history, so that he need not be
    one of the fit. Other scores are the cosines of an item's vector with that of the last item, and
    with the sum of the unit vectors of the items of the history, of which later ones weigh more.

    Args:
        count: As in `Source`.
        objective: Loss of the factorisation.
        num_factors: Length of the vectors.
        regularization: As in `als.RGFactorizer`.
        decay: Factor of an item's weight for each item after it.
        sweeps: Number of sweeps.
        seed: Seed of the first vectors.
    """

    count: Natural = 100
    objective: Objective = RGCross(alpha=0.02)
    num_factors: Count = 256
    regularization: Positive = 0.6
    decay: Rate = 0.7
    sweeps: Count = 15
    seed: Natural = 0

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Factorises the pairs of users and items."""
        matrix = incidence(taken)
        model = RGFactorizer(
            self.objective,
            self.num_factors,
            self.regularization,
            _COUNTED,
            sweeps=self.sweeps,
            num_threads=num_threads,
            seed=self.seed,
        ).fit(matrix)
        items = model.item_factors_
        of_users, of_items = np.ones(matrix.shape[0]), np.ones(matrix.shape[1])
        ridges, weights = (of_users, of_items), (of_users, of_items)
        solver = Solver(
            matrix, self.objective, *ridges, *weights, None, num_threads, str(items.dtype)
        )
        shared, _ = solver.shared(*solver.user_terms(items), items)
        norms = np.linalg.norm(shared.factors, axis=1, keepdims=True)
        return {
            "items": shared.factors,
            "eigenvalues": shared.eigenvalues,
            "pull": shared.pull,
            "unit": shared.factors / np.maximum(norms, np.finfo(np.float32).tiny),
        }

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the products with the users' vectors, and cosines."""
        items, unit = self.learned["items"], self.learned["unit"]
        last, recent = (
            multiply(weigh(histories, x, most), unit) for x, most in ((1.0, 1), (self.decay, None))
        )
        return {
            "product": Products(self.vectors(histories), items),
            "cosine_last": Products(last, unit),
            "cosine_recent": Products(recent, unit),
        }

    def vectors(self, histories: Sequences) -> Array:
        """Returns the vector of each user, in the basis of the items' vectors, float64."""
        items, eigenvalues, pull = (self.learned[x] for x in ("items", "eigenvalues", "pull"))
        curvature, slope = sum(self.objective.curvature), sum(self.objective.slope)
        return solve(histories, System(items, eigenvalues, pull, curvature, slope, self.terms))

    def terms(self, counts: Array) -> tuple[Array, Array]:
        """Returns the weight of all items for users of some numbers of items, and their ridge."""
        scales = self.objective.scale(counts, len(self.learned["items"]))
        return scales, self.regularization * np.maximum(counts, 1.0) ** _COUNTED


@register
class Successors(Source):
    """Items that followed the last items of a history, or came before them, among all users.

    ```
    score(b) = sum_n decay**n sum_g decay**(g - 1) * (count(a_n, g, b) + back * count(b, g, a_n))
    ```

    where `a_n` is the item before the `n` last ones, and `count(a, g, b)` is how often `b` was `g`
    items after `a`. Other scores have one term: how often `b` followed the last item, or came
    before it, and how often it followed the item before that, as next or second; and `share`, the
    first of these by the number of all times that `b` followed an item.

    Args:
        count: As in `Source`.
        decay: Factor for each item between.
        reach: Largest `g`, and number of last items.
        back: Weight of what came before.
    """

    count: Natural = 60
    decay: Positive = 0.5
    reach: Count = 8
    back: AtLeast0 = 0.2

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Counts what follows what."""
        follow = [_follow(taken, gap) for gap in range(1, self.reach + 1)]
        soft: Matrix = sum(self.decay**n * x for n, x in enumerate(follow))
        counts = np.asarray(follow[0].sum(axis=0)).ravel()
        return {
            "soft": sp.csr_matrix(soft + self.back * soft.T),
            "next": follow[0],
            "share": follow[0] @ sp.diags((1.0 / (counts + 1.0)).astype(np.float32)),
            "before": follow[0].T.tocsr(),
            "second": _follow(taken, 2),
        }

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the sums of counts."""
        last = weigh(histories, 1.0, 1)
        previous = weigh(histories, 1.0, 2) - last
        weights = {
            "soft": weigh(histories, self.decay, self.reach),
            "next": last,
            "share": last,
            "before": last,
            "second": previous,
        }
        sums = {name: multiply(x, self.learned[name]) for name, x in weights.items()}
        return {**sums, "previous": multiply(previous, self.learned["next"])}


@register
class Neighbours(Source):
    """Items that the same users took: cosines of co-occurrence with the items of a history.

    ```
    cosine(a, b) = users(a and b) / sqrt((users(a) + 1) * (users(b) + 1))
    ```

    The score is the sum over the history, of which later items weigh more. Others are the cosine
    with the last item, and the sum of plain cosines. The number of pairs that are counted grows
    with the square of the latest items of a user, so that these are bounded, as are the links.

    Args:
        count: As in `Source`.
        decay: Factor of an item's weight for each item after it.
        latest: Number of the last items of each user that are counted.
        links: Number of the largest cosines of each item that are kept.
    """

    count: Natural = 40
    decay: Rate = 0.7
    latest: Count = 100
    links: Count = 500

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Counts the users of pairs of items."""
        matrix = incidence(taken, self.latest)
        scale = sp.diags(1.0 / np.sqrt(matrix.getnnz(axis=0) + 1.0, dtype=np.float32))
        scaled = matrix @ scale
        by_item, itself = scaled.T.tocsr(), sp.csr_matrix(sp.identity(matrix.shape[1]))
        blocks = []
        for first in range(0, matrix.shape[1], _BLOCK):  # since all cosines at once need no bound
            rows = slice(first, first + _BLOCK)
            ids, cosines = Sums(by_item[rows] @ scaled).best(self.links, itself[rows])
            places = (ids >= 0).nonzero()
            shape = len(ids), matrix.shape[1]
            blocks.append(sp.csr_matrix((cosines[places], (places[0], ids[places])), shape))
        return {"cosines": sp.vstack(blocks, "csr")}

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the sums of cosines."""
        kinds = {"recent": (self.decay, None), "last": (1.0, 1), "all": (1.0, None)}
        links = self.learned["cosines"]
        return {name: multiply(weigh(histories, *kind), links) for name, kind in kinds.items()}


@register
class Popular(Source):
    """The items that most users took in the latest interactions.

    Args:
        count: As in `Source`.
        window: Share of the interactions of the fit that are the latest ones.
    """

    count: Natural = 20
    window: OpenShare = 0.1

    def learn(self, taken: Sequences, num_threads: int) -> dict[str, Any]:
        """Counts the interactions with each item."""
        counts = np.bincount(taken.items - 1, minlength=len(taken.item_ids))
        start = np.quantile(taken.times, 1.0 - self.window) if len(taken.times) else 0.0
        late = taken.items[taken.times >= start] - 1
        window = np.bincount(late, minlength=len(counts))
        kinds = {"window": window, "all": counts}
        return {name: np.log1p(x).astype(np.float32)[:, np.newaxis] for name, x in kinds.items()}

    def scores(self, histories: Sequences) -> dict[str, Scores]:
        """Returns the logarithms of counts, and one."""
        return {name: Values(x[:, 0]) for name, x in self.learned.items()}


def incidence(taken: Sequences, latest: int | None = None) -> Matrix:
    """Returns which items each user took, 1 in a CSR matrix `[users, items]`, float32.

    Args:
        taken: The items that each user took.
        latest: Number of the last items of each user that are there; all if None.
    """
    matrix = weigh(taken, most=latest).astype(np.float32)
    matrix.data[:] = 1.0
    return matrix


def _follow(taken: Sequences, gap: int) -> Matrix:
    """How often an item came a number of items after another, CSR `[items, items]`."""
    same = taken.users[gap:] == taken.users[:-gap]
    pairs = taken.items[:-gap][same] - 1, taken.items[gap:][same] - 1
    ones = np.ones(len(pairs[0]), np.float32)
    return sp.csr_matrix((ones, pairs), (len(taken.item_ids),) * 2)
