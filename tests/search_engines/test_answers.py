"""Requests to engines, whose odd answers `tests/test_answers.py` tries; addresses and proxies."""

import pytest

from tests.hostile import Server, http
from tfrank_sel.search_engines import connection as connection
from tfrank_sel.search_engines.elastic import Elasticsearch
from tfrank_sel.search_engines.plugin import Plugin
from tfrank_sel.search_engines.solr import Solr

HIT = {"_id": "1", "_score": 2.0}
LOG = [{"name": "a", "value": 1.5}, {"name": "b"}]
MODEL = {"query_extractor": {"feature_name": "a", "query": {"match": {}}}}
NO_HITS = {"hits": {"hits": []}}
DONE = {"responseHeader": {"status": 0}}


def plugin(url, file):
    return Plugin(f"{url}/items").push("f", file, "m", "s")


def solr(url, file):
    return Solr(f"{url}/solr/items").push("f", file, "m", "s")


def elastic(url, file):
    return Elasticsearch(f"{url}/items").push("f", file, "m", "s")


# what is asked, the method of the request that gets the odd answer, and the right answers
MODELS = {"model": {"model": {}}}, {"class": "org.apache.solr.ltr.model.Linear"}
TRAINED = {"inference_config": {"learning_to_rank": {"feature_extractors": [MODEL]}}}
FOUND = {"hits": {"hits": [{**HIT, "fields": {"_ltrlog": [{"logged": LOG}]}}]}}
OF_SOLR = {"response": {"docs": [{"id": "1", "score": 2.0, "log": "a=1.5,b=NaN"}]}} | DONE
DOORS = {
    "a model for OpenSearch": (
        lambda url: plugin(url, MODELS[0]),
        {"GET": NO_HITS, "POST": {"result": "created", "_shards": {"failed": 0}}},
    ),
    "features for OpenSearch": (
        lambda url: plugin(url, {"featureset": {}}),
        {"GET": {"stores": {"_default_": {}}}, "PUT": {"result": "updated"}},
    ),
    "a store for OpenSearch": (
        lambda url: plugin(url, {"featureset": {}}),
        {"GET": {"stores": {}}, "PUT": {"acknowledged": True, "result": "created"}},
    ),
    "a search of OpenSearch": (
        lambda url: Plugin(f"{url}/items").search("q", ["1"], features="s"),
        {"POST": FOUND},
    ),
    "a model for Solr": (
        lambda url: solr(url, MODELS[1]),
        {"GET": {"models": [{"name": "m-1"}]}, "PUT": DONE},
    ),
    "features for Solr": (
        lambda url: solr(url, [{"class": "org.apache.solr.ltr.feature.X"}]),
        {"PUT": DONE},
    ),
    "a search of Solr": (
        lambda url: Solr(f"{url}/solr/items").search("q", ["1"], features="s"),
        {"GET": {"uniqueKey": "id"}, "POST": OF_SOLR},
    ),
    "a model for Elasticsearch": (
        lambda url: elastic(url, TRAINED),
        {"GET": {"trained_model_configs": []}, "PUT": {"model_id": "m-1"}},
    ),
    "a search of Elasticsearch": (
        lambda url: Elasticsearch(f"{url}/items").search("q", ["1"], model="m"),
        {
            "GET": {"trained_model_configs": [TRAINED]},
            "POST": {"hits": {"hits": [{**HIT, "matched_queries": {"a": 1.5}}]}},
        },
    ),
}


def test_a_request_for_an_engine_takes_the_proxy_of_the_environment(monkeypatch):
    ask, right = DOORS["features for Solr"]
    with Server(lambda method, _: http(right[method])) as proxy:
        monkeypatch.setenv("http_proxy", f"admin:s3cret@localhost:{proxy.port}")
        monkeypatch.setenv("no_proxy", "localhost")
        ask("http://engine:8983")
        [(_, path, headers)] = proxy.requests
    assert path == "http://engine:8983/solr/items/schema/feature-store"
    assert headers["proxy-authorization"] == "Basic YWRtaW46czNjcmV0"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://admin:s3cret@localhost:9200", "no password"),
        ("ftp://admin:s3cret@localhost/items", "no password"),
        ("http://admin:s3/cret@localhost", "no password"),
        ("ftp://localhost/items", "must be that of an index"),
        ("file:///etc/passwd", "must be that of an index"),
        ("http://localhost:port/items", "must be that of an index"),
    ],
)
def test_an_address_that_is_refused_does_not_show_its_password(url, message):
    for engine in (Plugin, Solr, Elasticsearch):
        with pytest.raises(ValueError, match=message) as error:
            engine(url)
        assert "s3" not in str(error.value)
