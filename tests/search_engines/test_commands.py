"""`tfrank-sel-engine`: from judgments to a model in an engine that scores as the model does."""

import json
import math
import pathlib
import re
import shlex

import lightgbm
import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from tests.search_engines import fake
from tfrank_sel import export, models
from tfrank_sel.data.schema import Schema
from tfrank_sel.features import Category, Number, Vector
from tfrank_sel.pipelines.__main__ import app as pipelines
from tfrank_sel.search_engines import logged
from tfrank_sel.search_engines.__main__ import app
from tfrank_sel.training import trees

ROOT = pathlib.Path(__file__).parent.parent.parent
WORDS = ["red", "blue", "shoe", "shirt", 'a "b"', "\\n{x"]
FIELDS = ["--text", "title", "--text", "body", "--number", "price", "--number", "age"]
QUERIES = [f"{x} {y}" for x in WORDS for y in WORDS if x < y]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(x) for x in arguments])


def told(*arguments):
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


def refused(*arguments):
    done = invoke(*arguments)
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), done.output
    [line] = done.stderr.strip().splitlines()
    return line


@pytest.fixture(scope="module")
def documents():
    random = np.random.default_rng(0)
    made = {}
    for number in range(60):
        document = {x: " ".join(random.choice(WORDS, 3)) for x in ("title", "body")}
        document |= {x: float(random.gamma(2.0)) for x in ("price", "age") if random.random() < 0.6}
        made[f"d,{number}"] = document
    return made


@pytest.fixture(scope="module")
def book(tmp_path_factory, documents):
    """A book of Quepid: two judges, and a document that the index has not."""
    random = np.random.default_rng(1)
    lines = ["query,docid,Ann,Ben"]
    for query in QUERIES:
        quoted = query.replace('"', '""')
        for identifier in random.choice(list(documents), 12, replace=False):
            matches = sum(word in documents[identifier]["title"] for word in query.split())
            grade = matches + (documents[identifier].get("price", 0.0) > 2.0)
            lines.append(
                f'"{quoted}","{identifier}",{grade},{grade if random.random() < 0.3 else ""}'
            )
    path = tmp_path_factory.mktemp("book") / "book.csv"
    path.write_text("\n".join([*lines, "red shoe,gone,1,"]) + "\n")
    return path


ENGINES = {
    # the engine, its version, its value of an absent feature, and that in training
    "opensearch 3.8": ("opensearch", "3.8", math.nan, math.nan),
    "opensearch 2.19": ("opensearch", "2.19", 0.0, 0.0),
    "elasticsearch": ("elasticsearch", "8.17", math.nan, math.nan),
}


@pytest.mark.parametrize("case", ENGINES)
def test_judgments_become_a_model_that_the_engine_scores_alike(
    tmp_path, documents, book, case, monkeypatch
):
    monkeypatch.setattr(logged, "PAGE", 5)
    engine, version, absent, missing = ENGINES[case]
    index = fake.Index(documents, absent)
    url = fake.served(index)
    of = ["--engine", engine, "--url", url]
    files = {x: tmp_path / x for x in ("j.parquet", "f.json", "t.parquet", "m.txt", "r.json")}
    judged, features, table, text, file = files.values()
    told("judgments", book, "--output", judged)
    told("features", "--output", features, "--engine", engine, *FIELDS)
    if engine == "elasticsearch":
        names = features
    else:
        names = "shop.1"
        told("push", features, *of, "--features", names)
    collected = ["collect", judged, *of, "--features", names, "--missing", missing]
    line = told(*collected, "--output", table)
    assert f"{12 * len(QUERIES)} documents with 4 features" in line
    assert "documents, such as 'gone', are not among those of" in line
    rows = parquet.read_table(table).to_pandas()
    own = ["title", "body", "price", "age"]
    assert list(rows.columns) == ["query_id", "doc_id", "relevance", *own]
    lacks = [("price" not in documents[x]) for x in rows["doc_id"]]
    found = rows["price"].isna() if math.isnan(missing) else rows["price"] == 0.0
    assert found.tolist() == lacks

    sizes = rows.groupby("query_id", sort=False).size()
    data = lightgbm.Dataset(rows[own], rows["relevance"].astype(int), group=sizes)
    options = {"objective": "lambdarank", "num_leaves": 5, "verbose": -1, "min_data_in_leaf": 5}
    booster = lightgbm.train(options, data, 8)
    booster.save_model(text)
    queries = json.loads(features.read_text()) if engine == "elasticsearch" else own
    boosted = models.BoostedTrees.from_lightgbm(booster)
    export.search_engine(boosted, file, engine, queries, version=version, missing=missing)
    stored = [*of, "--features", "shop.1", "--name", "ranker"]
    body = json.loads(told("push", file, *stored))
    assert body["rescore"]["window_size"] == 100
    assert '"ranker-1"' in json.dumps(body)
    assert '"ranker-2"' in told("push", file, *stored)

    compared = ["verify", table, *of, "--missing", missing, "--name"]
    assert "rank correlation 1.0000" in told(*compared, "ranker-2", "--model", text)
    boosted.save(tmp_path / "m.keras")
    assert "correlation 1.0000" in told(*compared, "ranker-2", "--model", tmp_path / "m.keras")
    others = rows.assign(doc_id="gone " + rows["doc_id"])
    pd.concat([rows, others]).to_parquet(tmp_path / "half.parquet")
    half = ["verify", tmp_path / "half.parquet", *compared[2:], "ranker-2", "--model", text]
    done = invoke(*half)
    assert done.exit_code == 1
    assert "rank correlation 1.0000" in done.stdout
    share = f"{len(rows)} of {2 * len(rows)}, 0.5"
    assert f"a share of 0.95 of the documents, as --least says. Received: {share}\n" in done.stderr
    told(*half, "--least", 0.5)
    lightgbm.train(options, data, 7).save_model(tmp_path / "other.txt")
    line = refused(*compared, "ranker-1", "--model", tmp_path / "other.txt")
    assert line.startswith(f"ranker-1 must score as {tmp_path / 'other.txt'}: rank correlation 1")
    assert "No known trained model" in refused(*compared, "x", "--model", text) or (
        "404, Unknown model [x]" in refused(*compared, "x", "--model", text)
    )


GUIDE = (ROOT / "docs" / "engines.md").read_text()
SMALL = ["--epochs", "2", "--batch-size", "8", "--set", "training.loss.class=SoftmaxLoss"]


@pytest.fixture(scope="module")
def guided(documents, book):
    """The folder in which the commands of the guide ran, and what each printed."""
    url = fake.served(fake.Index(documents))
    variables = {"OF": f"--engine opensearch --url {url}"}
    block = re.search(r"```sh\n(.*?)```", GUIDE, re.DOTALL)[1].replace("$OF", "{OF}")
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(book.parent)
        patch.setattr(trees, "PATIENCE", 10)
        for line in block.splitlines():
            program, *arguments = shlex.split(line.format(**variables))
            if program == "tfrank-sel-engine":
                printed[" ".join(arguments[:2])] = told(*arguments)
            elif program == "tfrank-sel-pipelines":
                done = CliRunner().invoke(pipelines, [*arguments, *SMALL])
                assert done.exit_code == 0, done.output + repr(done.exception)
    return book.parent, printed


@pytest.mark.long
def test_the_commands_of_the_guide_run(guided):
    folder, printed = guided
    assert "rank correlation 1.0000" in printed["verify train.parquet"]
    lines = printed["export run"].replace("\n", " ")
    for rival in ("ranker", "trees of the labels"):
        assert re.search(rf"trees: NDCG@10 0\.\d+, {rival} 0\.\d+: .* \([+-]0.\d+ to ", lines)
    rows = parquet.read_table(folder / "train.parquet").to_pandas()
    data = lightgbm.Dataset(rows.iloc[:, 3:], rows["relevance"])
    booster = lightgbm.train({"verbose": -1}, data, 3)
    [code] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    (folder / "ranker.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(code, {"booster": booster, "models": models, "export": export})
    assert (folder / "ranker.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("case", ["opensearch 2.19", "elasticsearch"])
def test_a_version_scores_the_trees_that_learned_from_a_run(
    tmp_path, guided, documents, case, monkeypatch
):
    """The table of the run has NaN for absent features, which 2.19 takes for 0."""
    monkeypatch.setattr(trees, "PATIENCE", 10)
    engine, version, absent, _ = ENGINES[case]
    of = ["--engine", engine, "--url", fake.served(fake.Index(documents, absent))]
    features, file = tmp_path / "f.json", tmp_path / "r.json"
    told("features", "--output", features, "--engine", engine, *FIELDS[:6])
    exported = ["export", guided[0] / "run", "--engine", engine, "--version", version]
    told(*exported, "--output", file, "--features", features)
    if engine != "elasticsearch":
        told("push", features, *of)
    told("push", file, *of)
    trained = ["--name", "ranker-1", "--model", tmp_path / "r.keras"]
    assert "correlation 1.0000" in told("verify", guided[0] / "train.parquet", *of, *trained)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["opensearch", "--version", "new"], '`version` must be numbers with dots, such as "3.7"'),
        (["elasticsearch"], "must have the features of the run: it lacks title, body, price"),
        (["elasticsearch", "--features", "none"], "No such file or directory: 'none'"),
        (["opensearch", "--output", "ranker.keras"], "must not exist"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_trees_are_trained(
    guided, options, message, monkeypatch
):
    monkeypatch.chdir(guided[0])
    monkeypatch.delattr(trees, "train")
    line = refused("export", "run", "--output", "new.json", "--engine", *options)
    assert message in line
    assert not [*guided[0].glob("*new*")]


def test_an_engine_that_takes_absent_features_otherwise_is_not_equal(tmp_path, documents, book):
    """A model for 3.8 in 2.19, where an absent feature is 0."""
    url = fake.served(fake.Index(documents, absent=0.0))
    of = ["--engine", "opensearch", "--url", url]
    told("judgments", book, "--output", tmp_path / "j.parquet")
    told("features", "--output", tmp_path / "f.json", "--engine", "opensearch", *FIELDS)
    told("push", tmp_path / "f.json", *of)
    told(
        "collect",
        tmp_path / "j.parquet",
        *of,
        "--features",
        "features",
        "--output",
        tmp_path / "t.parquet",
    )
    rows = parquet.read_table(tmp_path / "t.parquet").to_pandas()
    x, y = rows[["title", "body", "price", "age"]], ~(rows["price"] < 2.0)
    booster = lightgbm.train({"verbose": -1, "num_leaves": 4}, lightgbm.Dataset(x, y), 3)
    booster.save_model(tmp_path / "m.txt")
    boosted = models.BoostedTrees.from_lightgbm(booster)
    file = tmp_path / "r.json"
    export.search_engine(boosted, file, "opensearch", list(x.columns), version="3.8")
    told("push", file, *of)
    asked = ["verify", tmp_path / "t.parquet", *of, "--name", "ranker-1"]
    assert "ranker-1 must score as" in refused(*asked, "--model", tmp_path / "m.txt")


def test_features_of_a_schema_are_those_that_an_engine_computes(tmp_path):
    types = {"price": Number(), "brand": Category(), "image": Vector(size=2)}
    Schema(types | {"hour": Number(of="query")}).write(tmp_path / "schema.json")
    given = ["--schema", tmp_path / "schema.json", "--text", "title"]
    lines = told("features", "--output", tmp_path / "f.json", "--engine", "opensearch", *given)
    assert "2 match scores and 1 numbers" in lines
    assert "left out: image: no score and no number of a document: vector" in lines
    assert "left out: hour: a value of the query" in lines
    [*named] = json.loads((tmp_path / "f.json").read_text())["featureset"]["features"]
    assert [(x["name"], x["params"]) for x in named] == [
        ("brand", ["query"]),
        ("title", ["query"]),
        ("price", []),
    ]


@pytest.mark.parametrize(("version", "params"), [("8.11", {}), ("9.7", {"defaultValue": "NaN"})])
def test_features_of_solr_keep_absent_values_where_it_can(tmp_path, version, params):
    given = ["--engine", "solr", "--text", "title", "--number", "price", "--version", version]
    told("features", "--output", tmp_path / "f.json", *given)
    title, price = json.loads((tmp_path / "f.json").read_text())
    package = "org.apache.solr.ltr.feature"
    query = {"q": "{!edismax qf=title}${query}"}
    assert title == {
        "name": "title",
        "class": f"{package}.SolrFeature",
        "params": query | params,
    }
    assert price["params"] == {"field": "price"} | params


REFUSALS = [
    (["features", "--output", "{new}", "--engine", "solr"], "`--text` or `--number` must name a"),
    (["features", "--output", "{new}", "--engine", "solr", "--text", "a,b"], "'a,b'"),
    (["features", "--output", "{new}", "--engine", "solr", "--text", "a", "--number", "a"], "once"),
    (
        ["judgments", "{table}", "--output", "{new}"],
        "Expected `query iteration document relevance`",
    ),
    (
        ["judgments", "{other}", "--output", "{new}"],
        "expected judgments of Quepid or the Search Rel",
    ),
    (["judgments", "{csv}", "--output", "{new}"], "csv, row 1: 'rating' must be a number of 0 or"),
    (
        ["collect", "{table}", "--output", "{new}", *["--features", "x"]],
        "404, Unknown featureset [x]",
    ),
    (["collect", "{table}", "--output", "{new}", *["--features", "x y"]], "name a set of features"),
    (["collect", "{table}", "--output", "{table}", "--features", "s"], "must not exist"),
    (["collect", "{table}", "--output", "{new}", "--features", "s", "--label", "title"], "'title'"),
    (["collect", "{gone}", "--output", "{new}", "--features", "s"], "'9' for example"),
    (
        ["collect", "{clash}", "--output", "{new}", "--features", "s", "--label", "title"],
        "named as a",
    ),
    (
        ["collect", "{table}", "--output", "{new}", "--features", "s", "--parameter", "q"],
        "['query']",
    ),
    (["push", "{other}"], "expected the engine's file of `features` or of `export.search_engine`"),
    (["push", "{model}", "--name", "A"], "`--name` must be of a-z"),
    (["push", "{model}", "--features", "none"], "404, Stored feature set [none] not found"),
    (["push", "{features}", "--features", "s"], "409, [featureset-s]: version conflict"),
    (["push", "{new}"], "No such file"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS, ids=lambda x: str(x)[:30])
def test_what_does_not_fit_is_one_line_and_leaves_no_file(tmp_path, arguments, message):
    url = fake.served(fake.Index({"1": {"title": "red"}}))
    features = tmp_path / "features.json"
    told("features", "--output", features, "--engine", "opensearch", "--text", "title")
    told("push", features, "--engine", "opensearch", "--url", url, "--features", "s")
    files = {
        "table.jsonl": {"query_id": "red", "doc_id": "1", "relevance": 1},
        "gone.jsonl": {"query_id": "red", "doc_id": "9", "relevance": 1},
        "clash.jsonl": {"query_id": "red", "doc_id": "1", "title": 1},
        "other.json": {"no": "file of ours"},
        "model.json": {"model": {"name": "m", "model": {"type": "t", "definition": ""}}},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content) + "\n")
    (tmp_path / "csv.csv").write_text("query,docid,rating\nred,1,-1\n")
    places = {path.stem: path for path in tmp_path.iterdir()} | {"new": tmp_path / "new"}
    there = {path: path.read_bytes() for path in tmp_path.iterdir()}
    of = (
        []
        if arguments[0] in ("features", "judgments")
        else ["--engine", "opensearch", "--url", url]
    )
    assert message in refused(*(x.format(**places) for x in arguments), *of)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == there


def test_an_engine_that_is_away_or_no_index_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "t.jsonl").write_text('{"query_id": "red", "doc_id": "1", "relevance": 1}\n')
    url = fake.served(fake.Index({}))
    asked = ["collect", tmp_path / "t.jsonl", "--output", tmp_path / "new", "--features", "s"]
    asked += ["--engine", "opensearch", "--url"]
    assert "`--url` must be that of an index" in refused(*asked, url.removesuffix("/items"))
    assert "no handler found" in refused(*asked, url.removesuffix("items") + "other")
    assert "expected a server that can be reached. Received: [Errno 111]" in refused(
        *asked, "http://127.0.0.1:1/items"
    )


def test_a_request_is_authorized_by_the_environment(tmp_path, monkeypatch):
    index = fake.Index({})
    url = fake.served(index)
    monkeypatch.setenv("TFRANK_SEL_ENGINE_AUTHORIZATION", "ApiKey abc")
    told("features", "--output", tmp_path / "f.json", "--engine", "o19s", "--text", "title")
    told("push", tmp_path / "f.json", "--engine", "o19s", "--url", url)
    assert {headers["Authorization"] for _, _, headers in index.requests} == {"ApiKey abc"}
