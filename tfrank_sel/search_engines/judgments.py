"""Files of judgments: of Quepid, of OpenSearch's Search Relevance Workbench, RankLib, TREC qrels.

Quepid 8.6: the CSV of a book has a column of ratings for each judge (judgements_controller.rb),
that of a case has `rating` (ratings_controller.rb); the JSON of a book has `query_doc_pairs`
(_book.json.jbuilder), that of a case `queries` (_query.json.jbuilder). The workbench of OpenSearch
3.1: `judgmentRatings` (Judgment.java), as it imports them or in the answer to a search. RankLib, as
in the demos of the plugins: lines of `4 qid:1 # 7555 Rambo`, under a heading `# qid:1: rambo`.
"""

import collections
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrank_sel import artefacts
from tfrank_sel.data import InputError, arrays, formats, table as data_table
from tfrank_sel.data.formats.text import fields
from tfrank_sel.data.table import Table, format_value
from tfrank_sel.data.trec import FileError, read_qrels
from tfrank_sel.errors import received

# Quepid's CSV files have these columns.
_PAIR = ("query", "docid")
_FORMULA = tuple(f" {x}" for x in "-=+@")  # Quepid puts a blank before these
_ROLES = {role: role for role in ("query", "item", "judge", "rating")}
_UNKNOWN = "Unknown"  # Quepid's name of a judge without one
_HEADING = re.compile(r"#\s*qid:\s*([^\s:]+)\s*:(.*)")
_WEIGHT = re.compile(r"(?<![0-9])\*[0-9]+$")  # may follow the text: rambo*2; 2*3 is a product
_IS_RANKLIB = re.compile(r"[^\s#]+\s+qid:").match
# a title may follow the document, which is a word, or stands between tabs
_LINE = re.compile(r"(\S+)\s+qid:([^\s#]+)[^#]*#(?:\t\s*([^\t]+)\t|\s*(?:docid\s*=\s*)?(\S+))")
_Rating = tuple[int, Any, Any, str, Any]  # number of the row, query, document, judge, rating


class Judgment(NamedTuple):
    """The ratings of a document for a query, by one or several judges.

    Args:
        query: The query, its text but in qrels.
        document: The identifier of the document.
        ratings: The ratings.
        judges: Who gave each of them.
    """

    query: str
    document: str
    ratings: tuple[float, ...]
    judges: tuple[str, ...]


def read(paths: Sequence[str]) -> list[Judgment]:
    """Reads files by suffix: `.csv`, `.tsv` and `.json` as in this module, others as text.

    A document that is listed several times for a query, in one or several files, has all of the
    ratings. Documents without a rating are left out.

    Raises:
        InputError: If a file is no such file, or has no rating.
    """
    parts: list[Table] = []
    for path in paths:
        name = path.lower()
        if name.endswith((*formats.FORMATS["csv"].suffixes, *formats.FORMATS["tsv"].suffixes)):
            found = [*_of_columns(path)]
        elif name.endswith((".json", ".json.gz")):
            found = [*_of_json(path)]
        else:
            found = [*_of_text(path)]
        if not found:
            raise InputError(path, received("expected a judgment", "none"))
        numbers, *values = zip(*found, strict=True)
        texts = ([arrays.text(x) for x in column] for column in values)
        columns = pa.table(dict(zip(_ROLES, texts, strict=True)))
        parts += data_table.read([(path, np.array(numbers), columns)], _ROLES, {})
    rows = data_table.concatenate(parts)
    by_pair = collections.defaultdict[tuple[str, str], list[tuple[float, str]]](list)
    for query, document, judge, rating in zip(*(rows[x].tolist() for x in _ROLES), strict=True):
        by_pair[query, document].append((rating, judge))
    return [Judgment(*pair, *zip(*given, strict=True)) for pair, given in by_pair.items()]


def agreement(judgments: Iterable[Judgment]) -> float:
    """Returns Krippendorff's alpha of ratings as intervals: 1 for equal, 0 for random ratings.

    NaN without a document of two ratings, or if all ratings are equal.

    Example:
        >>> both = [Judgment("q", "a", (1.0, 1.0), ("x", "y"))]
        >>> both += [Judgment("q", "b", (3.0, 2.0), ("x", "y"))]
        >>> round(agreement(both), 4)
        0.7273
    """
    several = [np.array(x.ratings) for x in judgments if len(x.ratings) > 1]
    ratings = np.concatenate(several) if several else np.zeros(1)
    # the sum over pairs of their squared differences, which is 2 n**2 variances
    observed = sum(len(x) ** 2 * x.var() / (len(x) - 1) for x in several) / len(ratings)
    expected = ratings.var() * len(ratings) / max(len(ratings) - 1, 1)
    return float(1.0 - observed / expected) if expected else float("nan")


def table(judgments: Sequence[Judgment]) -> Any:
    """Returns an Arrow table of `query_id`, `doc_id` and `relevance`, the mean of the ratings."""
    columns = {
        "query_id": [x.query for x in judgments],
        "doc_id": [x.document for x in judgments],
        "relevance": [float(np.mean(x.ratings)) for x in judgments],
    }
    return pa.table(columns)


def _of_columns(path: str) -> Iterator[_Rating]:
    names = formats.names([path])
    if tuple(names[:2]) != _PAIR:
        expected = f"expected the columns {', '.join(_PAIR)}, and one of ratings for each judge"
        raise InputError(path, received(expected, ", ".join(names)))
    for number, (_, row) in enumerate(formats.dicts([path], names), start=1):
        query = row["query"]
        if isinstance(query, str) and query.startswith(_FORMULA):
            query = query[1:]
        for judge in names[2:]:
            if row[judge]:
                yield number, query, row["docid"], judge or _UNKNOWN, row[judge]


def _of_json(path: str) -> Iterator[_Rating]:
    """Ratings, numbered from 1."""
    with artefacts.name_file_in_errors(
        path, "judgments of Quepid or the Search Relevance Workbench"
    ):
        content = json.loads(formats.read_text(path), object_pairs_hook=fields)
        for number, rating in enumerate(_entries(content), start=1):
            yield number, *rating


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str, Any]]:
    if "query_doc_pairs" in content:
        for pair in content["query_doc_pairs"]:
            for x in pair.get("judgements", ()):
                if x["rating"] is not None and not x.get("unrateable"):
                    judge = x.get("user_name") or x.get("user_email") or _UNKNOWN
                    yield pair["query_text"], pair["doc_id"], judge, x["rating"]
    elif "queries" in content:
        for query in content["queries"]:
            for document, rating in query["ratings"].items():
                if rating is not None:
                    yield query["query"], document, _UNKNOWN, rating
    elif "hits" in content:
        for hit in content["hits"]["hits"]:
            yield from _entries(hit["_source"])
    else:
        for query in content["judgmentRatings"]:
            for x in query["ratings"]:
                yield query["query"], x["docId"], _UNKNOWN, x["rating"]


def _of_text(path: str) -> Iterator[_Rating]:
    texts = [line.strip() for line in formats.read_text(path).split("\n")]
    if not any(_IS_RANKLIB(text) for text in texts):
        yield from _of_qrels(path)
        return
    queries: dict[str, str] = {}
    for number, text in enumerate(texts, start=1):
        if heading := _HEADING.match(text):
            name, query = heading[1], _WEIGHT.sub("", heading[2].strip()).rstrip()
            if queries.setdefault(name, query) != query:
                expected = f"expected one text of qid:{name}"
                raise InputError(f"{path}, row {number}", received(expected, repr(query)))
    for number, text in enumerate(texts, start=1):
        where = f"{path}, row {number}"
        if text and text[0] != "#":
            if (line := _LINE.match(text)) is None:
                expected = "expected `grade qid:query # document`"
                raise InputError(where, received(expected, format_value(text)))
            grade, name, between, word = line.groups()
            if queries and name not in queries:
                expected = f"expected a line `# qid:{name}: text of the query`"
                raise InputError(where, received(expected, "none"))
            yield number, queries.get(name, name), between or word, _UNKNOWN, grade


def _of_qrels(path: str) -> Iterator[_Rating]:
    try:
        for query, documents in read_qrels(path).items():
            # a negative relevance means no judgement
            yield from ((0, query, x, _UNKNOWN, y) for x, y in documents.items() if y >= 0)
    except FileError as error:
        line, _, problem = str(error).removeprefix(path).partition(": ")
        raise InputError(path + line, problem) from error
