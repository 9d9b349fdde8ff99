"""A server that takes what OpenSearch's plugin and Elasticsearch take, and scores by their rules.

It refuses as the parsers of opensearch-learning-to-rank-base 3.8.0.0 do (StoredFeatureSet,
StoredFeature, RestCreateModelFromSet, StoredLtrModel, StoredLtrQueryBuilder,
LoggingSearchExtBuilder), and as Elasticsearch 8.17 does (TrainedModelConfig,
LearningToRankRescorerBuilder): keys that they do not declare, other types, absent parameters. It
knows no code of the package.
"""

import http.server
import json
import math
import re
import threading
import urllib.parse

import numpy as np


class RefusedError(Exception):
    """An answer with a status and a reason."""


def taken(place, body, required, optional=None):
    """Checks an object by the types of its keys."""
    declared = {**required, **(optional or {})}
    if not isinstance(body, dict):
        raise RefusedError(400, f"[{place}] expected an object")
    for key, value in body.items():
        if key not in declared:
            raise RefusedError(400, f"[{place}] unknown field [{key}]")
        if not isinstance(value, declared[key]) or (
            isinstance(value, bool) and declared[key] is int
        ):
            raise RefusedError(400, f"[{place}] field [{key}] is a {type(value).__name__}")
    if lacking := required.keys() - body.keys():
        raise RefusedError(400, f"[{place}] field {sorted(lacking)} is mandatory")
    return body


def rendered(template, params):
    """Mustache: values as JSON has them within quotes, and `toJson`."""
    text = re.sub(
        r"\{\{#toJson\}\}(\w+)\{\{/toJson\}\}", lambda x: json.dumps(params[x[1]]), template
    )
    return re.sub(r"\{\{(\w+)\}\}", lambda x: json.dumps(str(params.get(x[1], "")))[1:-1], text)


def score(query, document):
    """The score of a query for a document; None if it does not match."""
    [(kind, body)] = query.items()
    if kind == "match":
        [(field, text)] = taken(kind, body, {}, dict.fromkeys(body, str)).items()
        words = str(document.get(field, "")).split()
        hits = sum(words.count(word) for word in text.split())
        return float(np.float32(hits / (1.0 + len(words)))) if hits else None
    if kind == "exists":
        return 1.0 if taken(kind, body, {"field": str})["field"] in document else None
    if kind == "function_score":
        keys = {"query": dict, "field_value_factor": dict, "boost_mode": str}
        taken(kind, body, keys)
        if score(body["query"], document) is None:
            return None
        assert body["boost_mode"] == "replace"
        value = float(
            document[taken("factor", body["field_value_factor"], {"field": str})["field"]]
        )
        if value < 0.0:
            raise RefusedError(400, "field value function must not produce negative scores")
        return float(np.float32(value))
    raise RefusedError(400, f"unknown query [{kind}]")


def of_xgboost(node, x, absent):
    if "leaf" in node:
        return node["leaf"]
    value = x[node["split"]]
    if math.isnan(value) and absent == 0.0:
        value = 0.0
    side = "missing" if math.isnan(value) else None
    side = side or ("yes" if value < node["split_condition"] else "no")
    return of_xgboost(
        next(child for child in node["children"] if child["nodeid"] == node[side]), x, absent
    )


def of_ensemble(nodes, x, node=0):
    node = nodes[node]
    if "leaf_value" in node:
        return node["leaf_value"]
    value = x[node["split_feature"]]
    left = node["default_left"] if math.isnan(value) else value <= node["threshold"]
    return of_ensemble(nodes, x, node["left_child" if left else "right_child"])


class Index:
    """An index of documents, by identifier; a feature that a document lacks is `absent`."""

    def __init__(self, documents, absent=math.nan):
        self.documents, self.absent = documents, absent
        self.has_store = False
        self.sets, self.models, self.requests = {}, {}, []

    def answer(self, method, path, options, body):
        routes = {
            ("GET", r"_ltr"): lambda: {"stores": {"_default_": {}} if self.has_store else {}},
            ("PUT", r"_ltr"): self.create_store,
            ("PUT", r"_ltr/_featureset/([\w.-]+)"): self.put_set,
            ("POST", r"_ltr/_featureset/([\w.-]+)/_createmodel"): self.create_model,
            ("GET", r"_ltr/_model"): self.list_models,
            ("POST", r"items/_search"): self.search_plugin,
            ("PUT", r"_ml/trained_models/([a-z0-9_-]+)"): self.put_trained,
            ("GET", r"_ml/trained_models/([a-z0-9_*-]+)"): self.get_trained,
            ("POST", r"items/_search/template"): self.search_template,
        }
        for (verb, pattern), route in routes.items():
            if verb == method and (match := re.fullmatch(pattern, path)):
                given = {"options": options, "body": body}
                named = route.__code__.co_varnames[: route.__code__.co_argcount]
                return route(*match.groups(), **{x: y for x, y in given.items() if x in named})
        raise RefusedError(400, f"no handler found for uri [/{path}] and method [{method}]")

    def create_store(self):
        if self.has_store:
            raise RefusedError(400, "index [.ltrstore] already exists")
        self.has_store = True
        return {"acknowledged": True}

    def put_set(self, name, body):
        if not self.has_store:
            raise RefusedError(404, "no such index [.ltrstore]")
        taken("storable_elements", body, {"featureset": dict}, {"validation": dict})
        stored = taken("featureset", body["featureset"], {"features": list}, {"name": str})
        if stored.get("name", name) != name:
            raise RefusedError(400, f"Invalid [name], expected [{name}] but got [{stored['name']}]")
        for feature in stored["features"]:
            keys = {"params": list, "template_language": str}
            taken("feature", feature, {"name": str, "template": (dict, str)}, keys)
        names = [x["name"] for x in stored["features"]]
        if len(set(names)) != len(names):
            raise RefusedError(400, "feature names must be unique in a set.")
        if name in self.sets:
            raise RefusedError(
                409, f"[featureset-{name}]: version conflict, document already exists"
            )
        self.sets[name] = stored["features"]
        return {"_id": f"featureset-{name}", "result": "created"}

    def create_model(self, name, body):
        taken("create_model_from_set", body, {"model": dict}, {"validation": dict})
        model = taken("model", body["model"], {"name": str, "model": dict})
        definition = taken(
            "model", model["model"], {"type": str, "definition": str}, {"feature_normalizers": dict}
        )
        if name not in self.sets:
            raise RefusedError(404, f"Stored feature set [{name}] not found")
        if definition["type"] != "model/xgboost+json":
            raise RefusedError(400, f"Unknown LTR ranking language [{definition['type']}]")
        parsed = json.loads(definition["definition"])
        taken("xgboost", parsed, {"splits": list}, {"objective": str})
        names = {x["name"] for x in self.sets[name]}
        for split in re.findall(r'"split": "([^"]*)"', definition["definition"]):
            if split not in names:
                raise RefusedError(400, f"Unknown feature [{split}]")
        if model["name"] in self.models:
            raise RefusedError(405, "Element of type [model] are not updatable")
        self.models[model["name"]] = self.sets[name], parsed["splits"]
        return {"_id": f"model-{model['name']}", "result": "created"}

    def list_models(self, options):
        names = [x for x in self.models if x.startswith(options.get("prefix", ""))]
        names = names[: int(options.get("size", 20))]
        return {"hits": {"hits": [{"_source": {"name": x}} for x in names]}}

    def search_plugin(self, body):
        keys = {"query": dict, "size": int, "_source": bool, "ext": dict}
        taken("search", body, keys, {"rescore": dict})
        [terms, ranked] = taken("bool", body["query"]["bool"], {"filter": list})["filter"]
        identifiers = terms["terms"]["_id"]
        sltr = self.sltr({x: y for x, y in ranked["sltr"].items() if x != "_name"})
        [spec] = taken("ltr_log", body["ext"]["ltr_log"], {"log_specs": list})["log_specs"]
        taken("log_spec", spec, {"named_query": str}, {"name": str, "missing_as_zero": bool})
        if spec["named_query"] != ranked["sltr"]["_name"]:
            raise RefusedError(400, f"No query named [{spec['named_query']}] found")
        hits = []
        for identifier in self.of(identifiers, body["size"]):
            features = self.features(sltr, identifier)
            log = [
                {"name": x} | ({} if math.isnan(y) else {"value": y}) for x, y in features.items()
            ]
            hit = {"_id": identifier, "_score": 0.0, "fields": {"_ltrlog": [{spec["name"]: log}]}}
            if "rescore" in body:
                hit["_score"] = self.rescored(body["rescore"], identifier, body["size"])
            hits.append(hit)
        return {"hits": {"hits": hits}}

    def sltr(self, query):
        """The templates and the trees of a query, and its parameters."""
        optional = {"model": str, "featureset": str, "boost": float}
        taken("sltr", query, {"params": dict}, optional)
        name = query.get("model") or query.get("featureset")
        there = self.models if "model" in query else self.sets
        if name not in there:
            raise RefusedError(
                404, f"Unknown {'model' if 'model' in query else 'featureset'} [{name}]"
            )
        templates, trees = there[name] if "model" in query else (there[name], None)
        for feature in templates:
            if lacking := set(feature.get("params", ())) - query["params"].keys():
                raise RefusedError(400, f"Missing required param(s): {sorted(lacking)}")
        return templates, trees, query["params"]

    def features(self, sltr, identifier):
        templates, _, params = sltr
        values = {}
        for feature in templates:
            query = json.loads(rendered(json.dumps(feature["template"]), params))
            value = score(query, self.documents[identifier])
            values[feature["name"]] = math.nan if value is None else value
        return values

    def rescored(self, rescore, identifier, size):
        taken("rescore", rescore, {"window_size": int, "query": dict})
        query = rescore["query"]
        weights = {"query_weight": int, "rescore_query_weight": int}
        taken("query", query, {"rescore_query": dict}, weights)
        if rescore["window_size"] < size or (query["query_weight"], 1) != (0, 1):
            raise RefusedError(400, "the score would not be the model's")
        sltr = self.sltr(query["rescore_query"]["sltr"])
        x = self.features(sltr, identifier)
        return float(np.float32(sum(of_xgboost(tree, x, self.absent) for tree in sltr[1])))

    def of(self, identifiers, size):
        assert len(set(identifiers)) == len(identifiers)
        return [x for x in identifiers if x in self.documents][:size]

    def put_trained(self, name, body):
        keys = {"inference_config": dict, "definition": dict}
        taken("trained_model_config", body, keys, {"description": str})
        config = taken("inference_config", body["inference_config"], {"learning_to_rank": dict})
        extractors = taken(
            "learning_to_rank", config["learning_to_rank"], {"feature_extractors": list}
        )
        for x in extractors["feature_extractors"]:
            [(kind, extractor)] = x.items()
            assert kind == "query_extractor"
            taken(kind, extractor, {"feature_name": str, "query": dict}, {"default_score": float})
        if name in self.models:
            raise RefusedError(400, f"Trained machine learning model [{name}] already exists")
        self.models[name] = body
        return {"model_id": name}

    def get_trained(self, name, options):
        pattern = name.replace("*", ".*")
        names = [x for x in self.models if re.fullmatch(pattern, x)]
        if not names and options.get("allow_no_match") != "true":
            raise RefusedError(404, f"No known trained model with model_id [{name}]")
        return {"trained_model_configs": [{"model_id": x, **self.models[x]} for x in names]}

    def search_template(self, options, body):
        assert options == {"include_named_queries_score": "true"}
        taken("search_template", body, {"source": str, "params": dict})
        source = json.loads(rendered(body["source"], body["params"]))
        keys = {"query": dict, "size": int, "_source": bool}
        taken("search", source, keys, {"rescore": dict})
        query = taken("bool", source["query"]["bool"], {"should": list, "filter": dict})
        hits = []
        for identifier in self.of(query["filter"]["ids"]["values"], source["size"]):
            document, matched = self.documents[identifier], {}
            for named in query["should"]:
                named = taken("bool", named["bool"], {"must": dict, "_name": str})
                value = score(named["must"], document)
                matched |= {} if value is None else {named["_name"]: value}
            hit = {"_id": identifier, "_score": sum(matched.values())}
            hits.append(hit | ({"matched_queries": matched} if matched else {}))
            if "rescore" in source:
                hit = hits[-1]
                hit["_score"] = self.by_trained(source["rescore"], document, source["size"])
        return {"hits": {"hits": hits}}

    def by_trained(self, rescore, document, size):
        taken("rescore", rescore, {"window_size": int, "learning_to_rank": dict})
        ranker = taken("rescorer", rescore["learning_to_rank"], {"model_id": str, "params": dict})
        assert rescore["window_size"] >= size
        if ranker["model_id"] not in self.models:
            raise RefusedError(404, f"No known trained model with model_id [{ranker['model_id']}]")
        body = self.models[ranker["model_id"]]
        x = []
        for each in body["inference_config"]["learning_to_rank"]["feature_extractors"]:
            template = json.dumps(each["query_extractor"]["query"])
            value = score(json.loads(rendered(template, ranker["params"])), document)
            x.append(math.nan if value is None else value)
        trees = body["definition"]["trained_model"]["ensemble"]["trained_models"]
        return float(np.float32(sum(of_ensemble(t["tree"]["tree_structure"], x) for t in trees)))


def served(index):
    """Starts a server of an index, which ends with the process; returns the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self):
            url = urllib.parse.urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            index.requests.append((self.command, self.path, dict(self.headers)))
            status = 200
            try:
                is_json = self.headers.get("Content-Type") == "application/json"
                body = json.loads(content) if is_json else None
                path = urllib.parse.unquote(url.path.strip("/"))
                options = dict(urllib.parse.parse_qsl(url.query))
                answer = index.answer(self.command, path, options, body)
            except RefusedError as refused:
                status, reason = refused.args
                error = {"type": "exception", "reason": reason}
                answer = {"error": {"root_cause": [error], **error}, "status": status}
            octets = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(octets)))
            self.end_headers()
            self.wfile.write(octets)

        do_GET = do_POST = do_PUT = handle_any  # noqa: N815

        def log_message(self, *arguments):
            """Prints nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/items"
