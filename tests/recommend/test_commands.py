"""`tfrank-sel-recommend`: a table in; a tested recommender, its SavedModel and all items out."""

import json
import pathlib
import re
import shlex
import urllib.request

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from tests.recommend.made import QUICK, rows, taken
from tfrank_sel.recommend import Recommender, __main__ as command
from tfrank_sel.serving.endpoint import Endpoint, ModelConfig

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "recommend.md"


class Quick(Recommender):
    def __init__(self, later=None, repeats=False):
        super().__init__(QUICK, later, num_trees=20, num_threads=1, repeats=repeats)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(rows(taken(200))).rename(columns={"time": "ts"})
    frame.to_csv("plays.csv", index=False)


def invoke(*arguments):
    return CliRunner().invoke(command.app, [str(x) for x in arguments])


def test_four_commands_of_the_page_lead_from_a_csv_to_items(monkeypatch):
    """The first is that of pip, and the server is one in this process."""
    monkeypatch.setattr(command, "Recommender", Quick)
    [block] = re.findall(r"```sh\n(pip install [^`]*)```", PAGE.read_text(encoding="utf-8"))
    lines = block.replace("\\\n", "").splitlines()
    installs, fits, serves, asks, writes = (shlex.split(x, comments=True) for x in lines)
    assert installs[:2] == ["pip", "install"]
    done = invoke(*fits[1:])
    assert done.exit_code == 0, done.output
    assert " ".join(serves[:4]) in done.stderr
    with Endpoint([ModelConfig("items", pathlib.Path(serves[3]))]) as endpoint:
        url = f"http://{asks[3].replace('8501', str(endpoint.rest_port))}"
        with urllib.request.urlopen(url, asks[2].encode()) as response:
            [answer] = json.load(response)["predictions"]
    assert writes[0] == fits[0] == "tfrank-sel-recommend"
    written = invoke(*writes[1:])
    assert written.exit_code == 0, written.output
    table = parquet.read_table(writes[-1]).to_pandas()
    [user] = json.loads(asks[2])["instances"]
    assert answer["items"] == table[table.user == user].item.tolist()
    assert len(answer["items"]) == 10


def test_the_test_is_by_the_latest_interactions_and_what_is_written_learned_of_all(monkeypatch):
    monkeypatch.setattr(command, "Recommender", Quick)
    pd.DataFrame({"item": [f"i{i}" for i in range(30)], "price": range(30)}).to_csv("items.csv")
    done = invoke("fit", "plays.csv", "--time", "ts", "--output", "out", "--items", "items.csv")
    assert done.exit_code == 0, done.output
    record = json.loads(pathlib.Path("out/evaluation.json").read_text("utf-8"))
    models = {x["model"]: x for x in record["qualities"] if x["group"] == "all"}
    best = max(
        (x for name, x in models.items() if name != "two stages"), key=lambda x: x["ndcg"]["mean"]
    )
    gain = best["gain"]["mean"]
    assert gain == pytest.approx(models["two stages"]["ndcg"]["mean"] - best["ndcg"]["mean"])
    assert f"{best['model']}, the best alone: NDCG@10 {gain:+.4f}" in record["verdict"]
    assert not record["held_back"]
    frame = pd.read_csv("plays.csv").rename(columns={"ts": "time"})
    is_late = frame.time >= np.quantile(frame.time, 0.9)
    assert models["two stages"]["users"] <= frame[is_late].user.nunique()
    loaded = Recommender.load("out/recommender")
    assert len(loaded.taken_.users) == len(frame)
    assert loaded.later == 0.1
    manifest = json.loads(
        pathlib.Path("out/serving/items/1/assets.extra/manifest.json").read_text("utf-8")
    )
    assert manifest["evaluation"]["verdict"] == record["verdict"]


class Worse(Quick):
    """Orders candidates from the worst to the best."""

    def _sort(self, block, shape):
        self.trees_ = _Inverted(self.trees_)
        return super()._sort(block, shape)


class _Inverted:
    def __init__(self, trees):
        self._trees = trees

    def __getattr__(self, name):
        return getattr(self._trees, name)

    def predict(self, *given, **options):
        return -self._trees.predict(*given, **options)


def test_what_is_significantly_worse_is_held_back(monkeypatch):
    monkeypatch.setattr(command, "Recommender", Worse)
    pd.DataFrame(rows(taken(900))).rename(columns={"time": "ts"}).to_csv("plays.csv", index=False)
    done = invoke("fit", "plays.csv", "--time", "ts", "--output", "out")
    assert done.exit_code == 3
    assert "held back: out has no SavedModel" in done.stderr
    assert sorted(x.name for x in pathlib.Path("out").iterdir()) == [
        "evaluation.json",
        "recommender",
    ]


def test_a_damaged_recommender_is_refused(tmp_path):
    Quick().fit(taken()).save("out/recommender")
    assert invoke("recommend", "out", "--output", "all.parquet").exit_code == 0
    expected = "must have the content that was written", "expected the digests of a Recommender"
    for name in ("trees.txt", "arrays.npz", "config.json", "digests.json"):
        path = tmp_path / "out" / "recommender" / name
        octets = path.read_bytes()
        path.write_bytes(octets[:-9] + b"damaged!\n")
        done = invoke("recommend", "out", "--output", "other.parquet")
        assert done.exit_code == 2
        assert f"{name}: {expected[name == 'digests.json']}" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        if name != "digests.json":  # without which it is of an earlier version
            path.unlink()
            assert invoke("recommend", "out", "--output", "other.parquet").exit_code == 2
        path.write_bytes(octets)
    assert not pathlib.Path("other.parquet").exists()


def test_the_format_is_that_of_all_tables(monkeypatch):
    monkeypatch.setattr(command, "Recommender", Quick)
    pd.read_csv("plays.csv").to_csv("plays.txt", sep="\t", index=False)
    pd.DataFrame({"item": [f"i{i}" for i in range(30)], "price": range(30)}).to_csv(
        "items.txt", sep="\t", index=False
    )
    options = "--time", "ts", "--format", "tsv", "--items", "items.txt", "--output", "out"
    done = invoke("fit", "plays.txt", *options)
    assert done.exit_code == 0, done.output
    assert "number price" in Recommender.load("out/recommender").sources_["items"].learned


REFUSED = [
    (["--output", "plays.csv"], "--output must not exist"),
    (["--output", "out"], "plays.csv: expected a column 'time'"),
    (["--output", "out", "--time", "ts", "--held-out", "0"], "--held-out must leave"),
    (["--output", "out", "--time", "ts", "--held-out", "1"], "--held-out must leave"),
    (["--output", "out", "--time", "ts", "--format", "arff"], "arff"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[x for _, x in REFUSED])
def test_what_cannot_be_fitted_is_refused_in_one_line(options, message):
    done = invoke("fit", "plays.csv", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not pathlib.Path("out").exists()
    missing = invoke("recommend", "nowhere", "--output", "all.parquet")
    assert (missing.exit_code, len(missing.stderr.splitlines())) == (2, 1)
