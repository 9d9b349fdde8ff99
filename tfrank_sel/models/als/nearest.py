"""Approximate retrieval of the best items; requires the extra `ann`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.errors import refusal, require_extra
from tfrank_sel.models.als.retrieval import Array, Ids, mark_members

with require_extra("`ItemIndex`", "ann", "faiss-cpu"):
    import faiss

# The default probes at least this many cells.
_FEWEST_PROBES = 8


class ItemIndex:
    """Approximate search for the items of the highest scores, in clusters of items.

    k-means divides the items into clusters. The search computes the scores of the items in the
    `probes` clusters whose centres have the highest scores, and no others. More probes find more
    of the best items, and take longer; as many probes as clusters find all of them. Scores are
    exact, in float32.

    Args:
        items: Factors of all items, `[num_items, num_factors]`.
        num_clusters: Number of clusters; `sqrt(num_items)`, rounded, if `None`.
        probes: Number of clusters to search; if `None`, a tenth of them, but at least 8 or all.

    Raises:
        ValueError: If the items are not a matrix, or a number is out of range.

    Attributes:
        probes: Number of clusters to search, which may be changed.

    Example:
        >>> from tfrank_sel.models.als import RGFactorizer
        >>> from tfrank_sel.models.als.nearest import ItemIndex
        >>> model = RGFactorizer(num_factors=2).fit((np.arange(50) % 9, np.arange(50) % 8))
        >>> index = ItemIndex(model.item_factors_, num_clusters=2, probes=2)
        >>> ids, scores = model.recommend([0, 1], k=3, index=index)
        >>> ids.shape
        (2, 3)

    Reference:
        [The Faiss library, 2024](https://arxiv.org/abs/2401.08281).
    """

    def __init__(
        self, items: ArrayLike, num_clusters: int | None = None, probes: int | None = None
    ) -> None:
        factors = np.ascontiguousarray(items, np.float32)
        if factors.ndim != 2 or not len(factors):
            raise refusal("`items` must be a matrix with rows", f"shape {factors.shape}")
        if num_clusters is None:
            num_clusters = max(1, round(len(factors) ** 0.5))
        if probes is None:
            probes = min(num_clusters, max(_FEWEST_PROBES, -(-num_clusters // 10)))
        if not 1 <= probes <= num_clusters <= len(factors):
            raise refusal(
                "`num_clusters` must be from 1 to the number of items, and `probes` from 1 to "
                "`num_clusters`",
                f"num_clusters={num_clusters}, probes={probes}, {len(factors)} items",
            )
        self.num_items, self.probes = len(factors), probes
        centres = faiss.IndexFlatIP(factors.shape[1])
        self._index = faiss.IndexIVFFlat(
            centres, factors.shape[1], num_clusters, faiss.METRIC_INNER_PRODUCT
        )
        self._index.cp.min_points_per_centroid = 1  # it would warn of small clusters
        self._index.train(factors)
        self._index.add(factors)

    def best(
        self, users: Array, k: int, seen: Any = None, num_threads: int = 1
    ) -> tuple[Ids, Array]:
        """Returns the items found of the highest scores of each user, as `retrieval.best`.

        Args:
            users: Factors of the users, `[count, num_factors]`.
            k: Number of items to return; positive.
            seen: CSR matrix `[count, num_items]` of the items to leave out; none if `None`.
            num_threads: Number of threads.

        Raises:
            ValueError: If `k` is not positive.
        """
        if k < 1:
            raise refusal("`k` must be positive", k=k)
        queries = np.ascontiguousarray(users, np.float32)
        counts = np.zeros(len(users), int) if seen is None else np.diff(seen.indptr)
        ids = np.full((len(users), k), -1, np.int32)
        scores = np.full((len(users), k), -np.inf, np.float32)
        faiss.omp_set_num_threads(num_threads)
        self._index.nprobe = self.probes
        # as many as could be seen are found in addition, for users of similar counts together
        sizes = np.minimum(k + np.exp2(np.ceil(np.log2(counts + 1))).astype(int), self.num_items)
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            candidates, candidate_scores = self._index.search(queries[rows], int(size))[::-1]
            candidates = candidates.astype(np.int32)
            is_out = candidates < 0
            if seen is not None:
                is_out |= mark_members(candidates, seen[rows])
            first = np.argsort(is_out, axis=1, kind="stable")[:, :k]
            is_out = np.take_along_axis(is_out, first, axis=1)
            width = first.shape[1]
            ids[rows, :width] = np.where(is_out, -1, np.take_along_axis(candidates, first, axis=1))
            scores[rows, :width] = np.where(
                is_out, -np.inf, np.take_along_axis(candidate_scores, first, axis=1)
            )
        return ids, scores
