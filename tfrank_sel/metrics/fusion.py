"""Fusion of runs into one run."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tfrank_sel.metrics import sources


def reciprocal_rank_fusion(runs: Sequence[Any], k: float = 60.0) -> dict[str, dict[str, float]]:
    """Fuses runs by the sum of `1 / (k + rank)` over the runs that retrieve a document.

    Args:
        runs: The runs, in the forms of `metrics.compare`. Tied documents rank by ascending
            identifier.
        k: The larger `k`, the less the first ranks differ.

    Returns:
        The fused score of each document, by query and document.

    Example:
        >>> metrics.reciprocal_rank_fusion([{"q": {"a": 2, "b": 1}}, {"q": {"b": 5}}], k=1.0)
        {'q': {'a': 0.5, 'b': 0.8333333333333333}}

    Reference:
        [Cormack et al., Reciprocal rank fusion outperforms Condorcet and individual rank learning
        methods, 2009](https://doi.org/10.1145/1571941.1572114).
    """
    if not k >= 0.0:
        raise ValueError(f"`k` must be at least 0. Received: k={k}")
    return _summed(
        (query, document, 1.0 / (k + rank))
        for run in runs
        for query, scores in sources.run(run).items()
        for rank, document in enumerate(sorted(scores, key=lambda x: (-scores[x], x)), start=1)
    )


def comb_sum(
    runs: Sequence[Any], weights: Sequence[float] | None = None
) -> dict[str, dict[str, float]]:
    """Fuses runs by the sum of their scores, after scaling to 0 to 1 in each query and run.

    Args:
        runs: The runs, in the forms of `metrics.compare`. If all scores of a query in a run are
            equal, they become 1. A document that a run does not retrieve has 0 there.
        weights: Weight of each run, of at least 0; 1 if `None`.

    Returns:
        The fused score of each document, by query and document.

    Raises:
        ValueError: If there is not one finite weight of at least 0 for each run.

    Example:
        >>> metrics.comb_sum([{"q": {"a": 3, "b": 1, "c": 2}}, {"q": {"b": 5}}])
        {'q': {'a': 1.0, 'b': 1.0, 'c': 0.5}}

    Reference:
        [Fox and Shaw, Combination of multiple searches, 1994](
        https://trec.nist.gov/pubs/trec2/papers/txt/23.txt).
    """
    given = [1.0] * len(runs) if weights is None else list(weights)
    if len(given) != len(runs) or not all(0.0 <= x < math.inf for x in given):
        raise ValueError(
            "`weights` must have one finite number of at least 0 per run. "
            f"Received: weights={given}, for {len(runs)} runs"
        )
    return _summed(
        (query, document, weight * ((score - low) / span if span else 1.0))
        for run, weight in zip(runs, given, strict=True)
        for query, scores in sources.run(run).items()
        for low, span in [(min(scores.values()), max(scores.values()) - min(scores.values()))]
        for document, score in scores.items()
    )


def _summed(parts: Iterable[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    fused: dict[str, dict[str, float]] = {}
    for query, document, part in parts:
        documents = fused.setdefault(query, {})
        documents[document] = documents.get(document, 0.0) + part
    return fused
