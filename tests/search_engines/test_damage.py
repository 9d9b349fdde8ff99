"""What `tfrank-sel-engine` reads and does not expect: answers of engines, damaged models."""

import json

import lightgbm
import numpy as np
import pytest

from tests.search_engines import fake
from tests.search_engines.test_commands import refused
from tfrank_sel.search_engines import logged


class Constant:
    """An engine with one answer to all requests."""

    def __init__(self, content):
        self.content, self.requests = content, []

    def answer(self, method, path, options, body):
        return {"uniqueKey": "id"} if "uniquekey" in path else self.content


def hit(**features):
    log = [{"name": name, "value": x} for name, x in features.items()]
    return {"_id": "1", "_score": 1.0, "fields": {"_ltrlog": [{"logged": log}]}}


NO_ANSWERS = [
    *({}, [], None, 1, "x", {"hits": {}}, {"hits": {"hits": [{}]}}, {"response": {"docs": [{}]}}),
    *(
        {"hits": {"hits": [hit(a=1) | {"_score": "x"}]}},
        {"models": [{}]},
        {"trained_model_configs": [{}]},
    ),
    {"stores": None},
]
MODELS = {
    "opensearch": {"model": {}},
    "elasticsearch": {"inference_config": {"learning_to_rank": {}}},
    "solr": {"class": "org.apache.solr.ltr.model.Linear"},
}


@pytest.mark.parametrize("engine", MODELS)
def test_an_answer_of_something_else_is_one_line(tmp_path, engine):
    table, model, stored = (tmp_path / x for x in ("t.jsonl", "m.json", "f.json"))
    table.write_text('{"query_id": "red", "doc_id": "1", "relevance": 1}\n')
    model.write_text(json.dumps(MODELS[engine]))
    stored.write_text("{}")
    features = stored if engine == "elasticsearch" else "s"
    index = Constant(None)
    of = ["--engine", engine, "--url", fake.served(index)]
    for index.content in NO_ANSWERS:
        refused("collect", table, "--output", tmp_path / "new", "--features", features, *of)
        refused("verify", table, "--name", "m", "--model", tmp_path / "m.txt", *of)
        refused("push", model, *of)
    for content in ({}, [], None, 1, "x", {"model": 5}, {"featureset": 3}, {"a": 1}, [1], ["x"]):
        model.write_text(json.dumps(content))
        assert "expected the engine's file of" in refused("push", model, *of)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("partial", "message"),
    [
        ({"_shards": {"total": 5, "failed": 1}}, "the answer of all shards, in time. Received: 1"),
        ({"timed_out": True}, "ran out of time"),
        ({"responseHeader": {"partialResults": True}}, "ran out of time"),
        ({"hits": {"hits": [hit(a=1), hit(b=1) | {"_id": "2"}]}}, "the features a. Received: b"),
    ],
)
def test_documents_that_a_shard_could_not_tell_are_not_left_out(tmp_path, partial, message):
    table = tmp_path / "t.csv"
    table.write_text("query_id,doc_id,relevance\nred,1,1\nred,2,0\n")
    url = fake.served(Constant({"hits": {"hits": [hit(a=1)]}} | partial))
    asked = ["collect", table, "--output", tmp_path / "new", "--features", "s"]
    assert message in refused(*asked, "--engine", "opensearch", "--url", url)


def test_no_line_has_a_secret(tmp_path, monkeypatch):
    (tmp_path / "f.json").write_text('{"featureset": {}}')
    asked = ["push", tmp_path / "f.json", "--engine", "opensearch", "--url"]
    line = refused(*asked, "https://admin:secret@localhost:9200/items")
    assert "TFRANK_SEL_ENGINE_AUTHORIZATION" in line
    assert "secret" not in line
    monkeypatch.setenv("TFRANK_SEL_ENGINE_AUTHORIZATION", "Basic sec\nret")
    line = refused(*asked, fake.served(Constant({})))
    assert line.endswith("must be printable ASCII. Received: other characters")


def test_a_damaged_model_is_one_line(tmp_path):
    x = np.random.default_rng(0).random((100, 2))
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(x, x[:, 0]), 3)
    whole, path = booster.model_to_string().encode(), tmp_path / "m.txt"
    path.write_bytes(whole)
    names = booster.feature_name()
    expected = booster.predict(x.astype(np.float32), raw_score=True)
    np.testing.assert_array_equal(logged.scores(str(path), names, x.astype(np.float32)), expected)
    of_trees, of_parameters = (whole.index(x) + 50 for x in (b"Tree=1", b"parameters:"))
    inserted = whole[:of_trees] + b"x" + whole[of_trees:]
    cut = whole[:of_trees], whole[:of_parameters], whole.replace(b"\n", b"\r\n")
    for damaged in (*cut, inserted):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"m\.txt: expected a model of LightGBM.*bytes"):
            logged.scores(str(path), names, x.astype(np.float32))
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(ValueError, match=r"m\.json: expected a model of .*Object$"):
        logged.scores(str(tmp_path / "m.json"), names, x.astype(np.float32))
