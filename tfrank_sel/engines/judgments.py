"""Files of judgments: of Quepid, of OpenSearch's Search Relevance Workbench, and TREC qrels.

Quepid 8.6: the CSV of a book has a column of ratings for each judge (judgements_controller.rb),
that of a case has `rating` (ratings_controller.rb); the JSON of a book has `query_doc_pairs`
(_book.json.jbuilder), that of a case `queries` (_query.json.jbuilder). The workbench of OpenSearch
3.1: `judgmentRatings` (Judgment.java), as it imports them or in the answer to a search.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrank_sel import kept
from tfrank_sel.data import arrays, formats
from tfrank_sel.data.formats.text import CsvReader
from tfrank_sel.data.lists import InputError
from tfrank_sel.data.table import TEXT, is_invalid, shown
from tfrank_sel.metrics.trec import FileError, read_qrels
from tfrank_sel.refusals import received

_PAIR = ("query", "docid")  # columns of Quepid's CSV
_FORMULA = tuple(f" {x}" for x in "-=+@")  # Quepid puts a blank before these


class Judgment(NamedTuple):
    """The ratings of a document for a query, by one or several judges.

    Args:
        query: The query, its text but in qrels.
        document: The identifier of the document.
        ratings: The ratings.
    """

    query: str
    document: str
    ratings: tuple[float, ...]


def read(paths: Sequence[str]) -> list[Judgment]:
    """Reads files by suffix: `.csv` and `.json` as described in this module, others as qrels.

    A document that is listed several times for a query, in one or several files, has all of the
    ratings. Documents without a rating are left out.

    Raises:
        InputError: If a file is no such file, or has no rating.
    """
    by_pair: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for path in paths:
        if path.lower().endswith(CsvReader.suffixes):
            entries = [*_of_csv(path)]
        elif path.lower().endswith(".json"):
            entries = [*_of_json(path)]
        else:
            entries = [*_of_qrels(path)]
        if not entries:
            raise InputError(path, received("expected a judgment", "none"))
        for query, document, rating in entries:
            by_pair[query, document].append(rating)
    return [Judgment(query, document, tuple(x)) for (query, document), x in by_pair.items()]


def agreement(judgments: Iterable[Judgment]) -> float:
    """Returns Krippendorff's alpha of ratings as intervals: 1 for equal, 0 for random ratings.

    NaN without a document of two ratings, or if all ratings are equal.

    Example:
        >>> both = [Judgment("q", "a", (1.0, 1.0)), Judgment("q", "b", (3.0, 2.0))]
        >>> round(agreement(both), 4)
        0.7273
    """
    several = [np.array(x.ratings) for x in judgments if len(x.ratings) > 1]
    ratings = np.concatenate(several) if several else np.zeros(1)
    # the sum over pairs of their squared differences, which is 2 n**2 variances
    observed = sum(len(x) ** 2 * x.var() / (len(x) - 1) for x in several) / len(ratings)
    expected = ratings.var() * len(ratings) / max(len(ratings) - 1, 1)
    return float(1.0 - observed / expected) if expected else float("nan")


def _of_csv(path: str) -> Iterator[tuple[str, str, float]]:
    names = formats.names([path])
    if tuple(names[:2]) != _PAIR:
        expected = f"expected the columns {', '.join(_PAIR)}, and one of ratings for each judge"
        raise InputError(path, received(expected, ", ".join(names)))
    for place, row in formats.dicts([path], names):
        ratings = [x for x in (arrays.text(row[judge]) for judge in names[2:]) if x]
        if ratings:
            query, document = (_text(place, row[name]) for name in _PAIR)
            query = query[1:] if query.startswith(_FORMULA) else query
            yield from ((query, document, _number(place, x)) for x in ratings)


def _of_json(path: str) -> Iterator[tuple[str, str, float]]:
    with kept.reading(path, "judgments of Quepid or the Search Relevance Workbench"):
        content = kept.read_json(path)
        yield from _entries(path, content)


def _entries(path: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    if "query_doc_pairs" in content:
        for pair in content["query_doc_pairs"]:
            for x in pair.get("judgements", ()):
                if x["rating"] is not None and not x.get("unrateable"):
                    ids = _text(path, pair["query_text"]), _text(path, pair["doc_id"])
                    yield *ids, _number(path, x["rating"])
    elif "queries" in content:
        for query in content["queries"]:
            for document, rating in query["ratings"].items():
                if rating is not None:
                    ids = _text(path, query["query"]), _text(path, document)
                    yield *ids, _number(path, rating)
    elif "hits" in content:
        for hit in content["hits"]["hits"]:
            yield from _entries(path, hit["_source"])
    else:
        for query in content["judgmentRatings"]:
            for x in query["ratings"]:
                ids = _text(path, query["query"]), _text(path, x["docId"])
                yield *ids, _number(path, x["rating"])


def _of_qrels(path: str) -> Iterator[tuple[str, str, float]]:
    try:
        for query, documents in read_qrels(path).items():
            # a negative relevance means no judgement
            yield from ((query, x, float(y)) for x, y in documents.items() if y >= 0)
    except FileError as error:
        line, _, problem = str(error).removeprefix(path).partition(": ")
        raise InputError(path + line, problem) from error


def _text(place: str, identifier: Any) -> str:
    text = arrays.text(identifier)
    if not text or is_invalid(text):
        expected = f"a query and a document must be {TEXT}"
        raise InputError(place, received(expected, shown(identifier)))
    return text


def _number(place: str, rating: Any) -> float:
    try:
        number = float(rating)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0.0 <= number < float("inf"):
        raise InputError(place, received("a rating must be a number of 0 or more", repr(rating)))
    return number


def table(judgments: Sequence[Judgment]) -> Any:
    """Returns an Arrow table of `query_id`, `doc_id` and `relevance`, the mean of the ratings."""
    columns = {
        "query_id": [x.query for x in judgments],
        "doc_id": [x.document for x in judgments],
        "relevance": [float(np.mean(x.ratings)) for x in judgments],
    }
    return arrays.arrow().table(columns)
