"""Solr's module Learning to Rank.

Requests are those of Solr 8.11 and 9.7: ManagedFeatureStore, ManagedModelStore, LTRQParserPlugin
and LTRFeatureLoggerTransformerFactory.
"""

import functools
from collections.abc import Sequence
from typing import Any

from tfrank_sel.http_client import quote
from tfrank_sel.search_engines.connection import check_done, number, string
from tfrank_sel.search_engines.engine import Engine, Fields, Logged

_CLASS = "org.apache.solr.ltr.feature"
_MODELS = 2**28  # bytes of all models, which Solr gives whole
_SEPARATOR = "\x01"  # of identifiers, which may have commas


class Solr(Engine):
    """A core or collection of Solr."""

    example = "http://localhost:8983/solr/items"

    @classmethod
    def features(cls, fields: Fields, parameter: str, *, keeps_absent: bool) -> Any:
        # unlike dismax, edismax takes any text
        texts = {x: {"q": f"{{!edismax qf={x}}}${{{parameter}}}"} for x in fields.texts}
        kinds = {name: ("SolrFeature", params) for name, params in texts.items()}
        kinds |= {x: ("FieldValueFeature", {"field": x}) for x in fields.numbers}
        absent = {"defaultValue": "NaN"} if keeps_absent else {}
        return [
            {"name": x, "class": f"{_CLASS}.{kind}", "params": params | absent}
            for x, (kind, params) in kinds.items()
        ]

    def search(
        self, text: str, documents: Sequence[str], *, features: str = "", model: str = ""
    ) -> dict[str, Logged]:
        # those of a model are logged as the query of `rq` computes them
        of_set = "" if model else f" store={self._check_name(features)} efi.{self.parameter}=$text"
        form = {
            "q": f'{{!terms f={self._key} separator="\\u0001" v=$documents}}',
            "documents": _SEPARATOR.join(documents),
            "fl": f"{self._key},score,log:[features format=dense{of_set}]",
            "rows": str(len(documents)),
            "wt": "json",
            "text": text,
        }
        if model:
            form |= self.rescore(model, text, len(documents))["params"]
        key = self._key

        def parse_documents(answer: Any) -> dict[str, Logged]:
            hits = answer["response"]["docs"]
            return {string(x[key]): Logged(_features(x["log"]), number(x["score"])) for x in hits}

        return self._send("POST", self._path("select"), parse_documents, form=form)

    @functools.cached_property
    def _key(self) -> str:
        path = self._path("schema/uniquekey?wt=json")
        return self._send("GET", path, lambda x: string(x["uniqueKey"]))

    def _path(self, path: str) -> str:
        return f"{quote(self.index)}/{path}"

    def rescore(self, model: str, text: str, window: int) -> dict[str, Any]:
        ranked = f"{{!ltr model={model} reRankDocs={window} efi.{self.parameter}=$text}}"
        return {"params": {"rq": ranked, "text": text}}

    def _are_features(self, body: Any) -> bool:
        if not isinstance(body, list) or not body:
            return False
        return all(isinstance(x, dict) and _CLASS in str(x.get("class")) for x in body)

    def _is_model(self, body: Any) -> bool:
        return isinstance(body, dict) and ".ltr.model." in str(body.get("class"))

    def _push_features(self, body: Any, name: str) -> None:
        stored = [{**feature, "store": name} for feature in body]
        self._send("PUT", self._path("schema/feature-store"), _check_done, stored)

    def _models(self, prefix: str) -> Sequence[str]:
        path = self._path("schema/model-store")

        def names(answer: Any) -> list[str]:
            return [string(x["name"]) for x in answer["models"]]

        return self._send("GET", path, names, largest=_MODELS)

    def _push_model(self, body: Any, name: str, features: str) -> None:
        body = {**body, "name": name, "store": self._check_name(features)}
        self._send("PUT", self._path("schema/model-store"), _check_done, body)


def _check_done(answer: Any) -> None:
    check_done(answer["responseHeader"]["status"] == 0)


def _features(log: str) -> dict[str, float]:
    """The features of a document, as name=value,name=value."""
    pairs = [part.split("=") for part in log.split(",")]
    return {string(name): number(value) for name, value in pairs}
