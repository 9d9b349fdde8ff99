"""Comparison and fusion of runs, such as files of TREC, which `tfrank_sel.trec` computes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrank_sel import roads

if TYPE_CHECKING:
    from tfrank_sel.metrics.base import ListwiseMetric
    from tfrank_sel.trec import Comparison  # type: ignore[import-not-found,unused-ignore]


def compare(
    runs: Mapping[str, Any],
    qrels: Any,
    metrics: Sequence["ListwiseMetric"],
    *,
    slices: Mapping[str, Any] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> "Comparison":
    """Compares each pair of runs on the same queries.

    A difference has a 95 % interval by paired bootstrap, and p values of the paired randomisation
    and t tests. Holm's correction of a test is over all metrics and pairs of runs; the slices
    together are a second family of tests.

    The queries are those of the judgements. A query that is missing in a run has the value of an
    empty ranking; queries without judgements are ignored, and documents without judgements have
    relevance 0, as do those with a negative one. Lists are in ascending order of the document
    identifiers, and scores are compared in float32. The metric sets the order of tied scores, and
    whether a query without a relevant document counts: by default as 0. Queries that count have the
    same weight.

    Args:
        runs: Two runs or more, by name. A run is the path of a TREC file; scores by query and
            document; a frame of pandas or polars with the columns `query_id`, `doc_id` and `score`;
            or an iterable of objects with these attributes, such as those of ir_datasets.
        qrels: The judgements, in one of these forms, with `relevance` instead of `score`.
        metrics: The metrics, with unique names. `metrics.trec_eval` has those of trec_eval.
            For `BPref`, documents without judgements are left out.
        slices: The slice of each query, such as its type; not `"all"`. Each slice is also compared
            alone; queries without a slice are only among all.
        resamples: Number of resamples of the bootstrap and of the randomisation test.
        seed: Seed of both.

    Returns:
        The differences of the second run of each pair from the first, as values, a table in
        Markdown, JSON and a picture.

    Raises:
        ValueError: If there are fewer than two runs, no metric, two metrics of one name, a run
            without a query of the judgements, no query that counts, or a slice `"all"`, or if a
            source is malformed.

    Example:
        ```python
        qrels = {"1": {"a": 1, "b": 0}, "2": {"a": 0, "b": 1}}
        old = {"1": {"a": 1.0, "b": 2.0}, "2": {"a": 1.0, "b": 2.0}}
        new = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0, "b": 2.0}}
        [mrr] = metrics.compare({"old": old, "new": new}, qrels, [metrics.MRR()]).differences
        ```

    Reference:
        [Smucker et al., A comparison of statistical significance tests for information retrieval
        evaluation, 2007](https://doi.org/10.1145/1321440.1321528).
    """
    options = {"slices": slices, "resamples": resamples, "seed": seed}
    return roads.load("trec", "`metrics.compare`").compare(runs, qrels, metrics, **options)


def reciprocal_rank_fusion(runs: Sequence[Any], k: float = 60.0) -> dict[str, dict[str, float]]:
    """Fuses runs by the sum of `1 / (k + rank)` over the runs that retrieve a document.

    Args:
        runs: The runs, in the forms of `metrics.compare`. Tied documents rank by ascending
            identifier.
        k: The larger `k`, the less the first ranks differ; at least 0.

    Returns:
        The fused score of each document, by query and document.

    Example:
        ```python
        metrics.reciprocal_rank_fusion([{"q": {"a": 2, "b": 1}}, {"q": {"b": 5}}], k=1.0)
        ```

    Reference:
        [Cormack et al., Reciprocal rank fusion outperforms Condorcet and individual rank learning
        methods, 2009](https://doi.org/10.1145/1571941.1572114).
    """
    return roads.load("trec", "`metrics.reciprocal_rank_fusion`").reciprocal_rank_fusion(runs, k)


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
        ```python
        metrics.comb_sum([{"q": {"a": 3, "b": 1, "c": 2}}, {"q": {"b": 5}}])
        ```

    Reference:
        [Fox and Shaw, Combination of multiple searches, 1994](
        https://trec.nist.gov/pubs/trec2/papers/txt/23.txt).
    """
    return roads.load("trec", "`metrics.comb_sum`").comb_sum(runs, weights)
