"""What a search engine does for learning to rank: features, their logs, models and scores."""

import abc
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from tfrank_sel.data import InputError
from tfrank_sel.errors import received, refusal
from tfrank_sel.http_client import ADDRESS
from tfrank_sel.search_engines.connection import AUTHORIZATION, Connection

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?")
_SET = re.compile(r"[A-Za-z0-9_.-]+")
LOG = "logged"


class Fields(NamedTuple):
    """Fields of documents that become features of the same names.

    Args:
        texts: Fields whose match with the query is a score.
        numbers: Fields whose value is the feature.
    """

    texts: Sequence[str]
    numbers: Sequence[str]

    def check(self) -> None:
        """Raises a ValueError if a name cannot be that of a feature in all engines."""
        names = [*self.texts, *self.numbers]
        if not names:
            raise refusal("`--text` or `--number` must name a field", "none")
        for name in names:
            if not _FIELD.fullmatch(name):
                expected = "a field must be named by letters, digits, _ and ., to be a feature"
                raise refusal(expected, repr(name))
            if names.count(name) > 1:
                raise refusal("a field must be named once", repr(name))


class Logged(NamedTuple):
    """What an engine has of a document for a query.

    Args:
        features: The value of each feature, NaN if the document lacks it.
        score: The score, that of the model if one was asked for.
    """

    features: Mapping[str, float]
    score: float


class Engine(abc.ABC):
    """An index of a search engine.

    Args:
        url: URL of the index, such as `http://localhost:9200/items`; of Solr, of the core or
            collection: `http://localhost:8983/solr/items`.
        parameter: Name of the text of the query in the templates of features.

    Raises:
        ValueError: If the URL names no index, or the authorization of the environment is no header.
    """

    example: ClassVar[str] = "http://localhost:9200/items"

    def __init__(self, url: str, parameter: str = "query") -> None:
        base, _, index = url.rstrip("/").rpartition("/")
        if not ADDRESS.fullmatch(base):
            if "@" in url:
                raise refusal(f"`--url` must have no password: set {AUTHORIZATION}", "a password")
            raise refusal(f"`--url` must be that of an index, such as {self.example}", url)
        self.base, self.index, self.parameter = base, index, parameter
        self.place = f"{base}/{index}"
        self._send = Connection(base).send

    @classmethod
    @abc.abstractmethod
    def features(cls, fields: Fields, parameter: str, *, keeps_absent: bool) -> Any:
        """Returns the features of fields, in the form that the engine takes.

        Args:
            fields: The fields.
            parameter: Name of the text of the query.
            keeps_absent: Whether Solr can tell an absent feature from 0.
        """

    @abc.abstractmethod
    def search(
        self, text: str, documents: Sequence[str], *, features: str = "", model: str = ""
    ) -> dict[str, Logged]:
        """Returns the features of documents and their scores, of those that the index has.

        Args:
            text: The text of the query.
            documents: Identifiers of documents.
            features: Name of the set of features; of Elasticsearch, their file.
            model: Name of a model, whose features and scores are asked for instead.
        """

    def push(self, file: str, body: Any, name: str, features: str) -> str | None:
        """Adds the features or the model of a file.

        The name of a model gets a version, one more than the last: engines replace no model.

        Args:
            file: The file, for messages.
            body: Its content.
            name: Name of the model without version.
            features: Name of the set of features.

        Returns:
            The name of the model with its version; None for features.

        Raises:
            InputError: If the content is neither, or the engine refuses.
        """
        if self._are_features(body):
            self._push_features(body, self._check_name(features))
            return None
        if not self._is_model(body):
            expected = "expected the engine's file of `features` or of `export.search_engine`"
            raise InputError(file, received(expected, f"{json.dumps(body):.60}"))
        if not _NAME.fullmatch(name):
            expected = "`--name` must be of a-z, 0-9, _ and -, and begin and end with a-z or 0-9"
            raise refusal(expected, repr(name))
        numbers = [re.fullmatch(rf"{name}-([0-9]{{1,18}})", x) for x in self._models(name)]
        versioned = f"{name}-{1 + max((int(x[1]) for x in numbers if x), default=0)}"
        self._push_model(body, versioned, features)
        return versioned

    @abc.abstractmethod
    def rescore(self, model: str, text: str, window: int) -> dict[str, Any]:
        """Returns the part of the body of a search that ranks with a model.

        Args:
            model: Name of the model.
            text: The text of the query.
            window: Number of documents to rank.
        """

    @abc.abstractmethod
    def _are_features(self, body: Any) -> bool: ...

    @abc.abstractmethod
    def _is_model(self, body: Any) -> bool: ...

    @abc.abstractmethod
    def _push_features(self, body: Any, name: str) -> None: ...

    @abc.abstractmethod
    def _models(self, prefix: str) -> Sequence[str]:
        """Names of the engine's models, at least of those with a prefix."""

    @abc.abstractmethod
    def _push_model(self, body: Any, name: str, features: str) -> None: ...

    def _check_name(self, features: str) -> str:
        """The name of a set of features, which may stand in URLs and parameters."""
        if not _SET.fullmatch(features):
            expected = "`--features` must name a set of features, by letters, digits, _, . and -"
            raise refusal(expected, repr(features))
        return features


def queries(fields: Fields, parameter: str) -> dict[str, Any]:
    """Returns queries of OpenSearch and Elasticsearch whose scores are the features of fields."""
    texts = {x: {"match": {x: f"{{{{{parameter}}}}}"}} for x in fields.texts}
    numbers = {
        # a document without the field does not match: an absent feature
        x: {
            "function_score": {
                "query": {"exists": {"field": x}},
                "field_value_factor": {"field": x},
                "boost_mode": "replace",
            }
        }
        for x in fields.numbers
    }
    return {**texts, **numbers}
