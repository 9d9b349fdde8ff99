"""Judgments with the features that an engine logs, and its scores beside a model's."""

import collections
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrank_sel import artefacts
from tfrank_sel.data import InputError
from tfrank_sel.data.formats import Table
from tfrank_sel.errors import received, refusal
from tfrank_sel.http_client import one_line
from tfrank_sel.search_engines.engine import Engine, Logged

Floats = NDArray[np.float64]
TOLERANCE = 1e-5  # of the largest score, or of 1
# Number of documents that one request asks for.
PAGE = 100


class LoggedFeatures(NamedTuple):
    """What an engine has of documents.

    Args:
        rows: The rows of the table whose documents the index has.
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
    judged: Table,
    missing: float,
    progress: Callable[[int], object],
    **ranker: str,
) -> LoggedFeatures:
    """Asks an engine for the features and scores of documents.

    Args:
        engine: The engine.
        judged: Table with the roles `query` and `item`.
        missing: Value of a feature that a document lacks.
        progress: Called after each request with its number of documents.
        **ranker: `features` or `model`, as in `Engine.search`.

    Raises:
        InputError: If the engine refuses, or has none of the documents.
    """
    queries, documents = judged["query"], judged["item"]
    rows: list[int] = []
    logged: list[Logged] = []
    for of_query in _by_query(queries):
        for first in range(0, len(of_query), PAGE):
            page = of_query[first : first + PAGE].tolist()
            answer = engine.search(queries[page[0]], documents[page].tolist(), **ranker)
            answered = [row for row in page if documents[row] in answer]
            rows += answered
            logged += [answer[documents[row]] for row in answered]
            progress(len(page))
    if not rows:
        example = f"none, {documents[0]!r} for example" if len(documents) else "an empty table"
        raise InputError(engine.place, received("expected documents of the table", example))
    names = list(logged[0].features)
    if not names:
        raise InputError(engine.place, received("expected features of each document", "none"))
    if other := next((x.features for x in logged if x.features.keys() != {*names}), None):
        expected = f"expected of each document the features {one_line(', '.join(names))}"
        raise InputError(engine.place, received(expected, one_line(", ".join(other))))
    values = np.array([[x.features[name] for name in names] for x in logged], np.float32)
    features = np.where(np.isnan(values), np.float32(missing), values)
    scores_of = np.array([x.score for x in logged])
    return LoggedFeatures(np.array(rows), names, features, scores_of)


def table(judged: Table, roles: Mapping[str, str], found: LoggedFeatures) -> Any:
    """Returns an Arrow table of queries, documents, labels and features.

    Args:
        judged: Table with the roles.
        roles: Names of its columns.
        found: The features.

    Raises:
        ValueError: If a feature has the name of another column.
    """
    if clash := set(roles.values()) & set(found.names):
        expected = "the columns of query, document and label must not be named as a feature"
        raise refusal(expected, ", ".join(sorted(clash)))
    columns = {name: judged[role][found.rows] for role, name in roles.items()}
    features = dict(zip(found.names, found.features.T, strict=True))
    return pa.table(columns | features)


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
    with artefacts.name_file_in_errors(
        path, "a model of LightGBM (.txt), XGBoost (.json, .ubj) or Keras (.keras)"
    ):
        os.stat(path)
        if suffix == ".keras":
            import keras

            from tfrank_sel import models

            model = keras.models.load_model(path, {"BoostedTrees": models.BoostedTrees}, False)
            return np.asarray(model(x[np.newaxis]), np.float64)[0]
        if suffix == ".txt":
            import lightgbm

            _check_lightgbm(path)
            booster = lightgbm.Booster(model_file=path)
            columns = _columns(path, booster.feature_name(), names)
            return np.asarray(booster.predict(x[:, columns], raw_score=True), np.float64)
        import xgboost

        boosted = xgboost.Booster(model_file=path)
        columns = _columns(path, boosted.feature_names or names, names)
        margins = boosted.inplace_predict(x[:, columns], predict_type="margin")
        return np.asarray(margins, np.float64)


def _check_lightgbm(path: str) -> None:
    """Raises a ValueError for a file that was cut or changed, at which LightGBM ends the process.

    Its `tree_sizes` are the bytes of each tree.
    """
    with open(path, "rb") as file:
        content = file.read()
    head = re.search(rb"^tree_sizes=([0-9 ]*)(\n*)", content, re.MULTILINE)
    if head is not None:
        told, size = sum(map(int, head[1].split())), content.find(b"end of trees") - head.end()
        if size != told:
            raise refusal(f"its trees must have the {told} bytes that it tells", max(size, 0))
    if b"\nparameters:" in content and b"\nend of parameters" not in content:
        raise refusal("it must have all bytes, up to the end of its parameters", len(content))


def _columns(path: str, wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    if lacking := [name for name in wanted if name not in names]:
        expected = f"the engine must log the features of the model, which has {', '.join(lacking)}"
        raise InputError(path, received(expected, one_line(", ".join(names))))
    return [names.index(name) for name in wanted]


def agreement(queries: NDArray[Any], engine: Floats, model: Floats) -> tuple[float, float, float]:
    """Compares the scores of an engine with those of a model.

    Args:
        queries: Query of each document, `[documents]`.
        engine: Score of each document in the engine, `[documents]`.
        model: Score of each document by the model, `[documents]`.

    Returns:
        The mean over queries of Kendall's rank correlation, of pairs of documents whose scores
        differ by more than rounding, 1 without any; the largest difference; and that which may be
        rounding.

    Example:
        >>> agreement(np.array(["q", "q"]), np.array([2.0, 1.0]), np.array([2.0, 1.5]))
        (1.0, 0.5, 2e-05)
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
    return correlation, float(np.abs(engine - model).max()), tolerance


def _by_query(queries: NDArray[Any]) -> list[NDArray[np.int64]]:
    """The rows of each query."""
    rows = collections.defaultdict[Any, list[int]](list)
    for row, query in enumerate(queries.tolist()):
        rows[query].append(row)
    return [np.array(x) for x in rows.values()]
