"""Quality of recommendations by what users took later, beside that of each retriever alone."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tfrank_sel.data import Sequences
from tfrank_sel.data.sequences import find
from tfrank_sel.errors import refusal
from tfrank_sel.metrics import significance
from tfrank_sel.models.als import retrieval
from tfrank_sel.recommend.scores import Array, Matrix, weigh

FEW = 3  # items of a history, and users of an item, below which it is told apart
_USERS = 20  # that an interval needs
TWO_STAGES = "two stages"


class Interval(NamedTuple):
    """A mean over users, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})"


class Quality(NamedTuple):
    """The quality of a model for a group of users.

    Attributes:
        group: The group.
        users: Number of its users who took an item later.
        model: The model.
        ndcg: NDCG@k.
        recall: Recall@k.
        gain: NDCG@k of the two stages less that of the model.
    """

    group: str
    users: int
    model: str
    ndcg: Interval
    recall: Interval
    gain: Interval


class Coverage(NamedTuple):
    """What a retriever has among the candidates of what users took later.

    Attributes:
        source: The retriever, or `all`.
        share: Share of the items taken later that are among its candidates.
        adds: Share that no other retriever has.
    """

    source: str
    share: float
    adds: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Quality of recommendations, over all items, by what users took later.

    Args:
        k: Number of items.
        qualities: The quality of each model for each group of users.
        coverages: The share of items taken later that each retriever has among its candidates,
            which limits the quality of the two stages.
    """

    k: int
    qualities: tuple[Quality, ...]
    coverages: tuple[Coverage, ...]

    def __getitem__(self, model: str) -> Quality:
        """Returns the quality of a model for all users."""
        return next(quality for quality in self.qualities if quality.model == model)

    @property
    def gain(self) -> tuple[Interval, str]:
        """The NDCG@k of the two stages less that of the best other model, and this model."""
        others = (x for x in self.qualities if x.group == "all" and x.model != TWO_STAGES)
        best = max(others, key=lambda x: x.ndcg.mean)
        return best.gain, best.model

    def record(self) -> dict[str, Any]:
        """Returns all values, JSON-ready."""

        def cells(row: Any) -> dict[str, Any]:
            named = row._asdict().items()
            return {x: y._asdict() if isinstance(y, Interval) else y for x, y in named}

        rows = {"qualities": self.qualities, "coverages": self.coverages}
        return {"k": self.k, **{name: [*map(cells, x)] for name, x in rows.items()}}

    def __str__(self) -> str:
        heads = "users", "", "model", f"NDCG@{self.k} (95 %)", f"Recall@{self.k} (95 %)"
        lines = [f"| {' | '.join(heads)} | NDCG of two stages less this |", "|---" * 6 + "|"]
        for x in self.qualities:
            gain = "" if x.model == TWO_STAGES else f"{x.gain}"
            cells = x.group, f"{x.users:,}", x.model, f"{x.ndcg}", f"{x.recall}", gain
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "| candidates of | have of what was taken | alone |", "|---" * 3 + "|"]
        lines += [f"| {x.source} | {x.share:.1%} | {x.adds:.1%} |" for x in self.coverages]
        return "\n".join(lines)


def relevance(later: Sequences, out: Matrix, item_ids: Array) -> Matrix:
    """Returns what users took later, CSR `[users, items]`.

    Args:
        later: What each user took later.
        out: CSR matrix `[users, items]` of what is left out.
        item_ids: Ids of the items of the fit; others of `later` follow these.

    Raises:
        ValueError: If nothing is left.
    """
    new = later.item_ids[find(later.item_ids, item_ids) < 0]
    taken = weigh(later.of_items(np.append(item_ids, new)))
    wide = sp.csr_matrix((out.data, out.indices, out.indptr), taken.shape)
    relevant = sp.csr_matrix(taken - taken.multiply(wide > 0.0))
    relevant.eliminate_zeros()
    if not relevant.nnz:
        raise refusal("`later` must have items that users did not have before", "none")
    return relevant


def measure(
    ranked: Mapping[str, Array],
    relevant: Matrix,
    histories: Matrix,
    counts: Array,
    k: int,
    seed: int,
) -> Iterator[Quality]:
    """Yields the quality of models for groups of users.

    Args:
        ranked: The best items of each user by model, `[users, k]`; the first is the two stages.
        relevant: CSR matrix `[users, items]` of what users took later; items that are not of the
            fit come last.
        histories: CSR matrix `[users, items]` of what they took before.
        counts: Number of interactions of each item in the fit.
        k: Number of items.
        seed: Seed of the intervals; fewer than 20 users have those of all that is possible.
    """
    is_rare = np.append(counts < FEW, np.ones(relevant.shape[1] - len(counts), bool))
    has_few = sp.diags((histories.getnnz(axis=1) < FEW).astype(np.float32))
    groups = {
        "all": relevant,
        f"with fewer than {FEW} items before": sp.csr_matrix(has_few @ relevant),
        f"of items taken fewer than {FEW} times": sp.csr_matrix(relevant @ sp.diags(is_rare * 1.0)),
    }
    for group, taken in groups.items():
        taken.eliminate_zeros()
        if not taken.nnz:
            continue
        each = [retrieval.user_qualities(ids, taken) for ids in ranked.values()]
        ndcg, recall = (
            np.stack([x[f"{name}@{k}"] for x in each], 1) for name in ("ndcg", "recall")
        )
        keys = np.flatnonzero(taken.getnnz(axis=1)).astype(np.uint64)
        values = np.concatenate([ndcg, recall, ndcg[:, :1] - ndcg], axis=1)
        sums = significance.resample(keys, values, seed=seed)
        ends = sums.interval()
        if len(keys) < _USERS:
            most = np.ones(values.shape[1])
            ends = np.repeat([0.0, -1.0], [2 * len(ranked), len(ranked)]), most
        cells = np.stack([sums.mean(), *ends], axis=1).reshape(3, len(ranked), 3)
        for i, model in enumerate(ranked):
            intervals = (Interval(*map(float, cells[kind, i])) for kind in range(3))
            yield Quality(group, len(keys), model, *intervals)


def cover(origins: Array, total: float, names: list[str]) -> Iterator[Coverage]:
    """Yields the coverage of each retriever, and that of all.

    Args:
        origins: Which retrievers have each of the candidates that were taken, `[candidates,
            retrievers]`.
        total: Number of items that were taken.
        names: Names of the retrievers.
    """
    yield Coverage("all", len(origins) / total, 0.0)
    alone = origins.sum(axis=1) == 1
    for i, name in enumerate(names):
        yield Coverage(name, origins[:, i].sum() / total, origins[alone, i].sum() / total)
