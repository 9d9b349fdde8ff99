"""Runs and judgements: evaluation as by trec_eval, and fusion."""

import itertools
import math
import numbers
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.arguments import AtLeast0, Positive, check_arguments, number_array
from tfrank_sel.data import formats, table
from tfrank_sel.data.trec import read_qrels, read_run
from tfrank_sel.errors import refusal

if TYPE_CHECKING:
    from tfrank_sel.metrics import ListwiseMetric

Array = NDArray[np.float64]
Qrels = Mapping[str, Mapping[str, float]]
Run = Mapping[str, Mapping[str, float]]

MEASURES = ("map", "Rprec", "bpref", "recip_rank", "ndcg", "ERR", "RBP")
CUT = ("P", "recall", "ndcg_cut", "map_cut", "success", "ERR")
_MOST = sys.float_info.max
# of a batch, for bounded memory
QUERIES_AT_ONCE, ITEMS_AT_ONCE, PAIRS_AT_ONCE = 2**10, 2**21, 2**23


@check_arguments
def measures(
    names: Sequence[str], relevance_level: Positive | None = 1.0
) -> list["ListwiseMetric"]:
    """Makes metrics from their names in trec_eval.

    Args:
        names: `map`, `Rprec`, `bpref`, `recip_rank`, `ndcg`, `ERR`, `RBP`, and with cut-offs, such
            as `P.5,10` (the default cut-offs are those of trec_eval): `P`, `recall`, `ndcg_cut`,
            `map_cut`, `success`, `ERR`. `RBP` takes the persistence: `RBP.0.5`.
        relevance_level: Minimum label of a relevant document.

    Returns:
        The metrics, with names such as `P_5`, in float64.

    Raises:
        TypeError: If `names` is no list of names.
        ValueError: If a name is not one of these.

    Example:
        >>> [metric.name for metric in measures(["map", "P.5,10"])]
        ['map', 'P_5', 'P_10']
    """
    metrics: dict[str, ListwiseMetric] = {}
    for name in names:
        for metric in _measures(name, relevance_level):
            metrics.setdefault(metric.name, metric)
    return list(metrics.values())


def evaluate(
    qrels: Qrels, run: Run, metrics: Sequence["ListwiseMetric"], complete: bool = False
) -> dict[str, dict[str, float]]:
    """Evaluates a run, query by query.

    Args:
        qrels: Relevance by query and document.
        run: Score by query and document.
        metrics: The metrics, as `measures` makes them.
        complete: Whether a query of `qrels` that is missing in `run` counts as one without results,
            as with trec_eval's option `-c`. Otherwise it is left out, as are queries of `run`
            without judgements.

    Returns:
        The value of each query, by metric and query, in the order of `qrels`.

    Raises:
        TypeError: If `metrics` is no list of metrics.
        ValueError: If `qrels` or `run` is not of this form, or two metrics have the same name.

    Example:
        >>> qrels, run = {"q": {"a": 1, "b": 0}}, {"q": {"a": 0.5, "b": 0.5}}
        >>> evaluate(qrels, run, measures(["recip_rank"]))
        {'recip_rank': {'q': 0.5}}
    """
    for name, source in (("qrels", qrels), ("run", run)):
        of_queries = source.values() if isinstance(source, Mapping) else [source]
        kinds = {type(x) for x in of_queries}
        if odd := [x.__name__ for x in kinds if not issubclass(x, Mapping)]:
            expected = f"`{name}` must be dictionaries by query, as `{name}_of` returns them"
            raise refusal(expected, *odd)
    queries = [query for query in qrels if complete or query in run]
    return {
        name: dict(zip(queries, values.tolist(), strict=True))
        for name, (values, _) in list_values(qrels, run, metrics, queries).items()
    }


def list_values(
    qrels: Qrels, run: Run, metrics: Sequence["ListwiseMetric"], queries: Sequence[str]
) -> dict[str, Array]:
    """Computes the values and the weights of queries, `[2, queries]`, by metric.

    Args:
        qrels: Relevance by query and document.
        run: Score by query and document. A query that is missing has no results.
        metrics: The metrics.
        queries: Queries of `qrels`.
    """
    from tfrank_sel.metrics import Evaluator

    measured = Evaluator(metrics).metrics
    results = {metric.name: np.zeros([2, len(queries)]) for metric in measured}
    # the other measures treat documents without judgements as irrelevant
    for judged_only in (False, True):
        chosen = [metric for metric in measured if metric.judged_only == judged_only]
        evaluator = Evaluator(chosen)
        most = [len(qrels[x]) + (0 if judged_only else len(run.get(x, ()))) for x in queries]
        in_pairs = any(metric.compares_pairs for metric in chosen)
        for batch in _batches(most, in_pairs) if chosen else ():
            some = [queries[i] for i in batch]
            for name, values in evaluator(*_pad_queries(qrels, run, some, judged_only)).items():
                results[name][:, batch] = values
    return results


def _batches(sizes: Sequence[int], in_pairs: bool) -> Iterator[list[int]]:
    """Indices of queries of like sizes, in batches of a bounded number of items, or of pairs."""
    batch: list[int] = []
    for i in sorted(range(len(sizes)), key=sizes.__getitem__):
        size = sizes[i]  # the largest of the batch
        most = PAIRS_AT_ONCE // max(size**2, 1) if in_pairs else ITEMS_AT_ONCE // max(size, 1)
        if batch and len(batch) >= min(most, QUERIES_AT_ONCE):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _measures(name: str, relevance_level: float | None) -> list["ListwiseMetric"]:
    from tfrank_sel.metrics import ERR, RBP, ties, trec_eval

    family, dot, argument = name.partition(".")
    options: dict[str, Any] = {"ties": ties.REVERSED, "dtype": "float64"}
    if family == "RBP":
        persistence = _persistence(name, argument) if dot else 0.8
        options |= {"name": name.replace(".", "_", 1), "relevance_level": relevance_level}
        return [RBP(persistence, **options)]
    if family not in (CUT if dot else (*MEASURES, *CUT)):
        raise refusal(
            f"Expected a measure of {', '.join(MEASURES)}, or of {', '.join(CUT)} with cut-offs "
            "such as P.5,10",
            name,
        )
    if family == "ERR" and not dot:
        return [ERR(name="ERR", **options)]
    cutoffs = _cutoffs(name, argument) if dot else []
    if family == "ERR":
        return [ERR(k, name=f"ERR_{k}", **options) for k in cutoffs]
    chosen: dict[str, Any] = {"cutoffs": cutoffs} if dot else {}
    metrics = trec_eval(**chosen, relevance_level=relevance_level, dtype="float64")
    return [x for x in metrics if family in (x.name, x.name.rpartition("_")[0])]


def _persistence(name: str, argument: str) -> float:
    try:
        return float(argument)
    except ValueError as error:
        raise refusal("Expected a number after `RBP.`", name) from error


def _cutoffs(name: str, argument: str) -> list[int]:
    parts = argument.split(",")
    if not all(x.isdecimal() and int(x) > 0 for x in parts):
        raise refusal("Expected positive integers after the dot", name)
    return [int(x) for x in parts]


def _pad_queries(
    qrels: Qrels, run: Run, queries: Sequence[str], judged_only: bool
) -> tuple[Array, Array]:
    """Labels and scores of documents by ascending identifier, `[queries, documents]`.

    A document that was not retrieved has score -inf. A negative relevance means no judgement.
    Padding has label NaN. Scores are those of float32; in a list with one beyond its range, ranks.
    """
    found_labels, found_scores, sizes = list[float](), list[float](), list[int]()
    for query in queries:
        judged, retrieved = qrels[query], run.get(query, {})
        if judged_only:
            documents = sorted(x for x, y in judged.items() if y >= 0)
        else:
            documents = sorted({**judged, **retrieved})
        found_labels.extend(map(judged.get, documents, itertools.repeat(0.0)))
        found_scores.extend(map(retrieved.get, documents, itertools.repeat(-math.inf)))
        sizes.append(len(documents))
    width = max(2, *sizes)  # lists of one item would raise a warning
    is_document = np.arange(width) < np.array(sizes)[:, np.newaxis]
    labels, scores = np.full([2, *is_document.shape], math.nan)
    labels[is_document] = np.maximum(number_array("qrels", found_labels), 0.0)
    scores[is_document] = number_array("run", found_scores)
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32).astype(np.float64)
    for i in np.flatnonzero(np.any(np.isinf(rounded) & np.isfinite(scores), axis=1)):
        is_ranked = np.isfinite(scores[i])
        distinct = np.where(np.isinf(rounded[i]), scores[i], rounded[i])[is_ranked]
        rounded[i, is_ranked] = np.unique(distinct, return_inverse=True)[1]
    return labels, rounded


def run_of(source: Any) -> Run:
    """Reads a run.

    Args:
        source: The path of a TREC file; scores by query and document; a table in memory with
            columns `query_id`, `doc_id` and `score`: a pandas or polars frame, an Arrow table, a
            mapping of columns or a list of dicts; or an iterable of objects with these attributes,
            such as those of ir_datasets. Ids become texts as in all tables: 12.0 is `12`.

    Returns:
        The score of each retrieved document, by query and document.

    Raises:
        ImportError: If a table is given without pyarrow.
        ValueError: If the file is malformed, an id is missing, a score is not finite, a column is
            missing, or a query has a document twice.

    Example:
        >>> import collections
        >>> Scored = collections.namedtuple("Scored", "query_id doc_id score")
        >>> run_of([Scored("q", "a", 2.5), Scored("q", "b", 1)])
        {'q': {'a': 2.5, 'b': 1.0}}
    """
    if isinstance(source, str | os.PathLike):
        return read_run(os.fspath(source))
    return _nest(source, "score")


def qrels_of(source: Any) -> Qrels:
    """Reads judgements, as `run_of` does, with `relevance` instead of `score`."""
    if isinstance(source, str | os.PathLike):
        return read_qrels(os.fspath(source))
    return _nest(source, "relevance")


def _nest(source: Any, value: str) -> dict[str, dict[str, float]]:
    records: dict[str, dict[str, float]] = {}
    for query, document, number in zip(*_columns(source, value), strict=True):
        documents = records.setdefault(query, {})
        if document in documents:
            raise ValueError(f"Query {query} has document {document} more than once.")
        documents[document] = float(number)
    return records


def _columns(source: Any, value: str) -> list[list[Any]]:
    """Queries, documents and numbers."""
    roles = {"query": "query_id", "item": "doc_id", value: value}
    is_columns = isinstance(source, Mapping) and source.keys() >= set(roles.values())
    is_dicts = isinstance(source, list) and source and isinstance(source[0], Mapping)
    table_name = f"the {value}s"
    if is_columns or is_dicts or hasattr(source, "columns"):
        rows = formats.table(source, roles, place=table_name)
        return [rows[role].tolist() for role in roles]
    queries, documents, values = columns = list[Any](), list[Any](), list[Any]()
    if isinstance(source, Mapping):
        for query, found in source.items():
            if not isinstance(found, Mapping):
                raise refusal(f"Expected a dictionary of documents of query {query}", repr(found))
            queries += [query] * len(found)
            documents += found.keys()
            values += found.values()
    elif isinstance(source, Iterable):
        for record in source:
            try:
                queries.append(record.query_id)
                documents.append(record.doc_id)
                values.append(getattr(record, value))
            except AttributeError as error:
                expected = f"Expected records with {', '.join(roles.values())}"
                raise refusal(expected, repr(record)) from error
    else:
        expected = "Expected a path, a dictionary, a table or an iterable of records"
        raise refusal(expected, type(source).__name__)
    # comparisons do not round integers, which may be too large for a float
    if not {*map(type, values)} <= {int, float} or not all(-_MOST <= x <= _MOST for x in values):
        for query, document, number in zip(*columns, strict=True):
            is_real = isinstance(number, numbers.Real)
            if not is_real or not -_MOST <= number <= _MOST:
                raise refusal(
                    f"`{value}` must be a finite number",
                    f"{number!r}, query {query}, document {document}",
                )
    texts = (
        _identifiers(table_name, x, y) for x, y in zip(roles.values(), columns[:2], strict=False)
    )
    return [*texts, values]


def _identifiers(table_name: str, name: str, values: list[Any]) -> list[str]:
    # what is printable has no half of a surrogate pair
    if {*map(type, values)} <= {str} and all(values) and "".join(values).isprintable():
        return values
    return [table.identifier(table_name, name, x) for x in values]


@check_arguments
def reciprocal_rank_fusion(runs: Sequence[Any], k: AtLeast0 = 60.0) -> dict[str, dict[str, float]]:
    """Fuses runs, as `metrics.reciprocal_rank_fusion`.

    Example:
        >>> reciprocal_rank_fusion([{"q": {"a": 2, "b": 1}}, {"q": {"b": 5}}], k=1.0)
        {'q': {'a': 0.5, 'b': 0.8333333333333333}}
    """
    return _sum_parts(
        (query, document, 1.0 / (k + rank))
        for run in runs
        for query, scores in run_of(run).items()
        for rank, document in enumerate(sorted(scores, key=lambda x: (-scores[x], x)), start=1)
    )


@check_arguments
def comb_sum(
    runs: Sequence[Any], weights: Sequence[AtLeast0] | None = None
) -> dict[str, dict[str, float]]:
    """Fuses runs, as `metrics.comb_sum`.

    Example:
        >>> comb_sum([{"q": {"a": 3, "b": 1, "c": 2}}, {"q": {"b": 5}}])
        {'q': {'a': 1.0, 'b': 1.0, 'c': 0.5}}
    """
    given = [1.0] * len(runs) if weights is None else [float(x) for x in weights]
    if len(given) != len(runs):
        raise refusal(
            "`weights` must have one number per run",
            f"weights={given}, for {len(runs)} runs",
        )
    return _sum_parts(
        (query, document, weight * ((score - low) / span if span else 1.0))
        for run, weight in zip(runs, given, strict=True)
        for query, scores in run_of(run).items()
        for low, span in [(min(scores.values()), max(scores.values()) - min(scores.values()))]
        for document, score in scores.items()
    )


def _sum_parts(parts: Iterable[tuple[str, str, float]]) -> dict[str, dict[str, float]]:
    fused: dict[str, dict[str, float]] = {}
    for query, document, part in parts:
        documents = fused.setdefault(query, {})
        documents[document] = documents.get(document, 0.0) + part
    return fused
