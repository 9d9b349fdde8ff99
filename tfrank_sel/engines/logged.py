"""Judgments with the features that an engine logs, and its scores beside a model's."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import kept
from tfrank_sel.data import formats, lists
from tfrank_sel.data.formats import arrays
from tfrank_sel.data.lists import InputError
from tfrank_sel.engines.engine import Engine, Logged
from tfrank_sel.refusals import received

Floats = NDArray[np.float64]
TOLERANCE = 1e-5  # of the largest score, or of 1


class Judged(NamedTuple):
    """Documents of queries.

    Args:
        path: The first file, for messages.
        columns: Names of the columns of query, document and, perhaps, label.
        queries: The text of the query of each row.
        documents: The identifier of the document of each row.
        labels: The label of each row; None if not asked for.
    """

    path: str
    columns: Sequence[str]
    queries: NDArray[Any]
    documents: NDArray[Any]
    labels: Floats | None

    def pages(self, size: int) -> Iterator[NDArray[np.int64]]:
        """The rows of each query, at most `size` at a time."""
        for rows in _by_query(self.queries):
            yield from (rows[i : i + size] for i in range(0, len(rows), size))


def read(
    paths: Sequence[str], query: str, doc_id: str, label: str | None, format: str | None
) -> Judged:
    """Reads tables of queries, documents and, if there is a name, labels.

    Raises:
        InputError: As `formats.table`, and if there is no row.
    """
    numbers = {} if label is None else {"label": label}
    ids = {"query": query, "document": doc_id}
    table = formats.table(paths, ids=ids, numbers=numbers, format=format)
    if not len(table.ids["query"]):
        raise InputError(paths[0], received("expected at least one row", "none"))
    columns = [query, doc_id, *numbers.values()]
    labels = table.numbers.get("label")
    return Judged(paths[0], columns, table.ids["query"], table.ids["document"], labels)


class Found(NamedTuple):
    """What an engine has of documents.

    Args:
        rows: The rows of `Judged` whose documents the index has.
        names: Names of the features.
        features: The features of these, `[rows, features]`.
        scores: The scores of these, `[rows]`.
    """

    rows: NDArray[np.int64]
    names: Sequence[str]
    features: NDArray[np.float32]
    scores: Floats


def ask(
    engine: Engine,
    judged: Judged,
    missing: float,
    page: int,
    progress: Callable[[int], object],
    **ranker: str,
) -> Found:
    """Asks an engine for the features and scores of documents.

    Args:
        engine: The engine.
        judged: The documents.
        missing: Value of a feature that a document lacks.
        page: Maximum number of documents of a request.
        progress: Called after each request with its number of documents.
        **ranker: `features` or `model`, as in `Engine.search`.

    Raises:
        InputError: If the engine refuses, has none of the documents, or features change.
    """
    rows: list[int] = []
    logged: list[Logged] = []
    for some in judged.pages(page):
        by_document = engine.search(
            judged.queries[some[0]], judged.documents[some].tolist(), **ranker
        )
        there = [int(row) for row in some if judged.documents[row] in by_document]
        rows += there
        logged += [by_document[judged.documents[row]] for row in there]
        progress(len(some))
    if not rows:
        example = f"none, e.g. not {judged.documents[0]!r}"
        raise InputError(engine.place, received(f"expected documents of {judged.path}", example))
    names = list(logged[0].features)
    if other := next((x.features for x in logged if list(x.features) != names), None):
        expected = f"expected the features {', '.join(names)} of all documents"
        raise InputError(engine.place, received(expected, ", ".join(other)))
    values = np.array([list(x.features.values()) for x in logged], np.float32)
    features = np.where(np.isnan(values), np.float32(missing), values)
    return Found(np.array(rows), names, features, np.array([x.score for x in logged]))


def table(judged: Judged, found: Found) -> Any:
    """Returns an Arrow table of queries, documents, labels and features.

    Raises:
        InputError: If a feature has the name of another column.
    """
    if clash := set(judged.columns) & set(found.names):
        expected = "the columns of query, document and label must not be named as a feature"
        raise InputError(judged.path, received(expected, ", ".join(sorted(clash))))
    parts = [judged.queries, judged.documents, judged.labels]
    columns = {
        x: y[found.rows] for x, y in zip(judged.columns, parts, strict=True) if y is not None
    }
    columns |= dict(zip(found.names, found.features.T, strict=True))
    return arrays.arrow().table(columns)


def scores(path: str, names: Sequence[str], x: NDArray[np.float32]) -> Floats:
    """Scores features with a model of a file.

    Args:
        path: A model of LightGBM (`.txt`), XGBoost (`.json`, `.ubj`) or Keras (`.keras`), whose
            features are in the order of `names`.
        names: Names of the columns of `x`.
        x: The features, `[rows, features]`.

    Raises:
        InputError: If the model has other features.
        ValueError: If the file is no such model.
    """
    suffix = os.path.splitext(path)[1]
    with kept.reading(path, "a model of LightGBM (.txt), XGBoost (.json, .ubj) or Keras (.keras)"):
        os.stat(path)
        if suffix == ".keras":
            import keras

            from tfrank_sel import models

            model = keras.models.load_model(path, {"BoostedTrees": models.BoostedTrees}, False)
            return np.asarray(model(x[np.newaxis]), np.float64)[0]
        if suffix == ".txt":
            import lightgbm

            booster = lightgbm.Booster(model_file=path)
            columns = _columns(path, booster.feature_name(), names)
            return np.asarray(booster.predict(x[:, columns], raw_score=True), np.float64)
        import xgboost

        boosted = xgboost.Booster(model_file=path)
        columns = _columns(path, boosted.feature_names or names, names)
        margins = boosted.inplace_predict(x[:, columns], predict_type="margin")
        return np.asarray(margins, np.float64)


def _columns(path: str, wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    if lacking := [name for name in wanted if name not in names]:
        expected = f"the engine must log the features of the model, which has {', '.join(lacking)}"
        raise InputError(path, received(expected, ", ".join(names)))
    return [names.index(name) for name in wanted]


class Agreement(NamedTuple):
    """How scores of an engine agree with those of a model.

    Args:
        difference: The largest difference.
        correlation: The mean over queries of Kendall's rank correlation, of pairs of documents
            whose scores differ by more than rounding; 1 without any.
        tolerance: The difference that may be rounding.
    """

    difference: float
    correlation: float
    tolerance: float

    @property
    def is_equal(self) -> bool:
        """Whether the engine scores as the model does."""
        return self.difference <= self.tolerance and self.correlation == 1.0


def agreement(queries: NDArray[Any], engine: Floats, model: Floats) -> Agreement:
    """Compares the scores of an engine with those of a model.

    Args:
        queries: Query of each document, `[documents]`.
        engine: Score of each document in the engine, `[documents]`.
        model: Score of each document by the model, `[documents]`.

    Example:
        >>> agreement(np.array(["q", "q"]), np.array([2.0, 1.0]), np.array([2.0, 1.5]))
        Agreement(difference=0.5, correlation=1.0, tolerance=2e-05)
    """
    tolerance = TOLERANCE * max(1.0, float(np.abs(model).max()))
    correlations = []
    for rows in _by_query(queries):
        ours, theirs = (x[rows][:, np.newaxis] - x[rows] for x in (model, engine))
        # each of two scores may be off by the tolerance
        differ = np.maximum(np.abs(ours), np.abs(theirs)) > 2.0 * tolerance
        if differ.any():
            correlations.append(np.sign(ours[differ]) @ np.sign(theirs[differ]) / differ.sum())
    correlation = float(np.mean(correlations)) if correlations else 1.0
    return Agreement(float(np.abs(engine - model).max()), correlation, tolerance)


def _by_query(queries: NDArray[Any]) -> list[NDArray[np.int64]]:
    """The rows of each query."""
    sizes, order = lists.groups(queries.tolist())
    return np.split(order, np.cumsum(sizes)[:-1])
