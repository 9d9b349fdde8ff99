"""The plugin Learning to Rank of OpenSearch, and that of o19s for Elasticsearch.

Requests and answers are those of these classes of opensearch-learning-to-rank-base at 3.8.0.0,
which are alike in o19s' plugin 1.5.11: RestFeatureManager and StoredFeatureSet (sets of features),
RestCreateModelFromSet (models), RestSearchStoreElements and ListStoresAction (names),
StoredLtrQueryBuilder (`sltr`), LoggingSearchExtBuilder and LoggingFetchSubPhase (`_ltrlog`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfrank_sel.http_client import quote
from tfrank_sel.search_engines.connection import check_done, number, string
from tfrank_sel.search_engines.engine import LOG, Engine, Fields, Logged, queries

_DEFAULT_STORE = "_default_"
_MOST = 10_000  # models that one request lists


class Plugin(Engine):
    """An index of OpenSearch, or of Elasticsearch with o19s' plugin."""

    @classmethod
    def features(cls, fields: Fields, parameter: str, *, keeps_absent: bool) -> Any:
        entries = [
            {
                "name": name,
                "params": [parameter] if name in fields.texts else [],
                "template_language": "mustache",
                "template": query,
            }
            for name, query in queries(fields, parameter).items()
        ]
        return {"featureset": {"features": entries}}

    def search(
        self, text: str, documents: Sequence[str], *, features: str = "", model: str = ""
    ) -> dict[str, Logged]:
        ranker = {"model": model} if model else {"featureset": self._check_name(features)}
        # as a filter, `sltr` matches all documents
        body = {
            "query": {
                "bool": {
                    "filter": [
                        {"terms": {"_id": list(documents)}},
                        {"sltr": {"_name": LOG, **ranker, "params": {self.parameter: text}}},
                    ]
                }
            },
            "size": len(documents),
            "_source": False,
            "ext": {"ltr_log": {"log_specs": [{"name": LOG, "named_query": LOG}]}},
        }
        if model:
            body |= self.rescore(model, text, len(documents))
        return self._send("POST", f"{quote(self.index)}/_search", _parse_hits, body)

    def rescore(self, model: str, text: str, window: int) -> dict[str, Any]:
        query = {"sltr": {"model": model, "params": {self.parameter: text}}}
        ranked = {"rescore_query": query, "query_weight": 0, "rescore_query_weight": 1}
        return {"rescore": {"window_size": window, "query": ranked}}

    def _are_features(self, body: Any) -> bool:
        return isinstance(body, dict) and isinstance(body.get("featureset"), dict)

    def _is_model(self, body: Any) -> bool:
        return isinstance(body, dict) and isinstance(body.get("model"), dict)

    def _push_features(self, body: Any, name: str) -> None:
        if not self._send("GET", "_ltr", lambda x: _DEFAULT_STORE in {**x["stores"]}):
            self._send("PUT", "_ltr", lambda x: check_done(x["acknowledged"] is True))
        self._send("PUT", f"_ltr/_featureset/{name}", _check_stored, body)

    def _models(self, prefix: str) -> Sequence[str]:
        # without the models themselves, which are large
        shown = "filter_path=timed_out,_shards,hits.total,hits.hits._source.name"

        def names(answer: Any) -> list[str]:
            hits = answer["hits"]
            is_none = hits.get("total") in (0, {"value": 0, "relation": "eq"})
            return [] if is_none else [string(x["_source"]["name"]) for x in hits["hits"]]

        path = f"_ltr/_model?prefix={quote(prefix)}&size={_MOST}&{shown}"
        return self._send("GET", path, names)

    def _push_model(self, body: Any, name: str, features: str) -> None:
        body = {"model": {**body["model"], "name": name}}
        path = f"_ltr/_featureset/{self._check_name(features)}/_createmodel"
        self._send("POST", path, _check_stored, body)


def _check_stored(answer: Any) -> None:
    check_done(answer["result"] in ("created", "updated"))


def _parse_hits(answer: Any) -> dict[str, Logged]:
    hits = answer["hits"]["hits"]
    return {string(hit["_id"]): Logged(_features(hit), number(hit["_score"])) for hit in hits}


def _features(hit: Mapping[str, Any]) -> dict[str, float]:
    """The features in the log of a hit; one that the document lacks has no value there."""
    [log] = hit["fields"]["_ltrlog"]
    # of models that log more
    entries = [x for x in log[LOG] if x["name"] != "extra_logging"]
    return {string(x["name"]): number(x.get("value", math.nan)) for x in entries}
