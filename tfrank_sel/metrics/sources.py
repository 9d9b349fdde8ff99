"""Readers of runs and judgements: TREC files, frames, dictionaries, and iterables of records."""

import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from tfrank_sel.metrics import trec


@runtime_checkable
class Frame(Protocol):
    """A frame with named columns, of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""

    def __getitem__(self, name: str) -> Any:
        """The values of a column."""


def run(source: Any) -> trec.Run:
    """Reads a run.

    Args:
        source: The path of a TREC file; scores by query and document; a frame with the columns
            `query_id`, `doc_id` and `score`; or an iterable of objects with these attributes, such
            as those of ir_datasets.

    Returns:
        The score of each retrieved document, by query and document.

    Raises:
        ValueError: If the file is malformed, a score is not finite, a column is missing, or a query
            has a document twice.

    Example:
        >>> import collections
        >>> Scored = collections.namedtuple("Scored", "query_id doc_id score")
        >>> run([Scored("q", "a", 2.5), Scored("q", "b", 1)])
        {'q': {'a': 2.5, 'b': 1.0}}
    """
    if isinstance(source, str | os.PathLike):
        return trec.read_run(os.fspath(source))
    return _nested(source, "score")


def qrels(source: Any) -> trec.Qrels:
    """Reads judgements, as `run` does, with `relevance` instead of `score`."""
    if isinstance(source, str | os.PathLike):
        return trec.read_qrels(os.fspath(source))
    return _nested(source, "relevance")


def _nested(source: Any, value: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for query, document, number in _records(source, value):
        if not isinstance(number, numbers.Real) or not math.isfinite(number):
            raise ValueError(
                f"`{value}` must be a finite number. Received: {number!r}, query {query}, "
                f"document {document}"
            )
        documents = found.setdefault(str(query), {})
        if str(document) in documents:
            raise ValueError(f"Query {query} has document {document} more than once.")
        documents[str(document)] = float(number)
    return found


def _records(source: Any, value: str) -> Iterator[tuple[Any, Any, Any]]:
    names = ("query_id", "doc_id", value)
    if isinstance(source, Mapping):
        for query, documents in source.items():
            if not isinstance(documents, Mapping):
                raise ValueError(
                    f"Expected a dictionary of documents of query {query}. Received: {documents!r}"
                )
            yield from ((query, document, number) for document, number in documents.items())
    elif isinstance(source, Frame):
        if missing := [name for name in names if name not in source.columns]:
            raise ValueError(f"The frame lacks {missing}. Received columns: {list(source.columns)}")
        yield from zip(*(source[name] for name in names), strict=True)
    elif isinstance(source, Iterable):
        for record in source:
            try:
                yield record.query_id, record.doc_id, getattr(record, value)
            except AttributeError as error:
                raise ValueError(
                    f"Expected records with {', '.join(names)}. Received: {record!r}"
                ) from error
    else:
        raise ValueError(
            "Expected a path, a dictionary, a frame or an iterable of records. "
            f"Received: {type(source).__name__}"
        )
