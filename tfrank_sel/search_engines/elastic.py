"""Elasticsearch's own learning to rank, which has no store of features.

The features are the scores of named queries, as in eland's FeatureLogger (eland 9.0), and the
rescorer is `learning_to_rank` of Elasticsearch 8.17 (LearningToRankRescorerBuilder). The model is
that of `PUT _ml/trained_models` (TrainedModelConfig).
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from tfrank_sel import artefacts
from tfrank_sel.errors import refusal
from tfrank_sel.http_client import quote
from tfrank_sel.search_engines.connection import check_done, number, string
from tfrank_sel.search_engines.engine import Engine, Fields, Logged, queries

_DOCUMENTS = "documents_of_query"  # a parameter of the template
_MOST = 10_000


class Elasticsearch(Engine):
    """An index of Elasticsearch; features are the queries of a file, by name."""

    @classmethod
    def features(cls, fields: Fields, parameter: str, *, keeps_absent: bool) -> Any:
        return queries(fields, parameter)

    def search(
        self, text: str, documents: Sequence[str], *, features: str = "", model: str = ""
    ) -> dict[str, Logged]:
        by_name = self._of_model(model) if model else queries_of_file(features)
        named = [{"bool": {"must": query, "_name": name}} for name, query in by_name.items()]
        source = {
            "query": {"bool": {"should": named, "filter": {"ids": {"values": _DOCUMENTS}}}},
            "size": len(documents),
            "_source": False,
        }
        if model:
            # the text of the query is a value of the template, as those of the features
            source |= self.rescore(model, f"{{{{{self.parameter}}}}}", len(documents))
        template = json.dumps(source)
        values = f"{{{{#toJson}}}}{_DOCUMENTS}{{{{/toJson}}}}"
        body = {
            "source": template.replace(json.dumps(_DOCUMENTS), values),
            "params": {self.parameter: text, _DOCUMENTS: list(documents)},
        }
        path = f"{quote(self.index)}/_search/template?include_named_queries_score=true"
        absent = dict.fromkeys(by_name, math.nan)

        def parse_hit(hit: Any) -> Logged:
            matched = {x: number(y) for x, y in hit.get("matched_queries", {}).items()}
            return Logged(absent | matched, number(hit["_score"]))

        return self._send(
            "POST",
            path,
            lambda x: {string(y["_id"]): parse_hit(y) for y in x["hits"]["hits"]},
            body,
        )

    def rescore(self, model: str, text: str, window: int) -> dict[str, Any]:
        ranked = {"model_id": model, "params": {self.parameter: text}}
        return {"rescore": {"window_size": window, "learning_to_rank": ranked}}

    def _of_model(self, model: str) -> dict[str, Any]:
        def queries_of(answer: Any) -> dict[str, Any]:
            [config] = answer["trained_model_configs"]
            extractors = config["inference_config"]["learning_to_rank"]["feature_extractors"]
            each = [x["query_extractor"] for x in extractors]
            return {string(x["feature_name"]): x["query"] for x in each}

        return self._send("GET", f"_ml/trained_models/{quote(model)}", queries_of)

    def _are_features(self, body: Any) -> bool:
        kinds = {"match", "function_score"}
        if not isinstance(body, dict) or not body:
            return False
        return all(isinstance(x, dict) and kinds & {*x} for x in body.values())

    def _is_model(self, body: Any) -> bool:
        config = body.get("inference_config") if isinstance(body, dict) else None
        return isinstance(config, dict) and "learning_to_rank" in config

    def _push_features(self, body: Any, name: str) -> None:
        raise refusal(
            "Elasticsearch has no store of features: `export.search_engine` takes them into the "
            "model, and `collect --features` the file",
            "a file of features",
        )

    def _models(self, prefix: str) -> Sequence[str]:
        path = f"_ml/trained_models/{quote(prefix)}-*?allow_no_match=true&size={_MOST}"
        return self._send(
            "GET", path, lambda x: [string(y["model_id"]) for y in x["trained_model_configs"]]
        )

    def _push_model(self, body: Any, name: str, features: str) -> None:
        path = f"_ml/trained_models/{quote(name)}"
        described = {**body, "description": name}
        self._send("PUT", path, lambda x: check_done(x["model_id"] == name), described)


def queries_of_file(path: str) -> dict[str, Any]:
    """Returns the query of each feature in a file of `features`."""
    with artefacts.name_file_in_errors(path, "the file of queries that `features` wrote"):
        return artefacts.read_json(path)
