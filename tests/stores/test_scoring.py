"""Scoring and evaluation from and to stores."""

import json

import pyarrow as pa
import pytest
import s3fs
from pyarrow import parquet

from tests.pipelines.test_scoring import invoke, letor_lists, packed_model
from tests.ports import free_port
from tests.stores.conftest import forget
from tfrank_sel import data, export
from tfrank_sel.data import leases, letor, stores
from tfrank_sel.features import Vector
from tfrank_sel.pipelines import scoring
from tfrank_sel.pipelines.scoring import rankings


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Folder of a model, of lists as LETOR files, and of the scores of those."""
    here = tmp_path_factory.mktemp("here")
    names = {"feature_names": Vector(size=3).numbers("features")}
    export.export(packed_model(), data.FeatureSpec(3), here / "model", metadata=names)
    lists = letor_lists(30)
    for day in (1, 2):
        letor.write(here / f"{day}.txt", lists[15 * day - 15 : 15 * day])
    done(score(here, here / "out"))
    return here


@pytest.fixture
def there(folder, here):
    """The same in a store, without the scores."""
    stores.send(here / "model", f"{folder}/models/7", last="saved_model.pb")
    for day in (1, 2):
        put(f"{folder}/days/{day}.txt", (here / f"{day}.txt").read_bytes())
    return folder


def put(url, content):
    with stores.open_file(url, "wb") as file:
        file.write(content)


def score(there, output, *options):
    model, days = f"{there}/models/7", f"{there}/days/*.txt"
    if not stores.is_remote(there):
        model, days = f"{there}/model", f"{there}/*.txt"
    options = ["--lists-per-file", "8", *options]
    return invoke("score", "--model", model, "--data", days, "--output", output, *options)


def done(told):
    assert told.exit_code == 0, (told.output, told.exception)
    return told.stdout


def line(told):
    assert told.exit_code == 2, (told.output, told.exception)
    [found] = told.stderr.splitlines()
    return found


def tables(output):
    found = {}
    for path in stores.glob(f"{output}/scores-*"):
        with stores.open_file(path) as file:
            found[path.rpartition("/")[2]] = parquet.read_table(pa.BufferReader(file.read()))
    return found


def test_scores_in_a_store_are_those_on_disk(here, there):
    output = f"{there}/scores/1"
    stdout = done(score(there, output))
    assert stdout.splitlines()[-1] == output
    assert tables(output) == tables(here / "out")
    names = {path.removeprefix(f"{output}/") for path in stores.find(f"{there}/scores")}
    assert names == {*tables(here / "out"), scoring.SUCCESS}
    assert "must be new or empty" in line(score(there, output))


def cut(monkeypatch, after):
    """Lets scoring fail after some files."""
    genuine, left = rankings.table, iter(range(after))

    def table(*columns):
        if next(left, None) is None:
            raise RuntimeError("the machine is gone")
        return genuine(*columns)

    monkeypatch.setattr(rankings, "table", table)


@pytest.mark.parametrize("folder", ["gs"], indirect=True)
def test_what_is_interrupted_goes_on_on_another_machine(here, there, tmp_path, monkeypatch):
    output = f"{there}/scores/1"
    with monkeypatch.context() as patch:
        cut(patch, 2)
        told = score(there, output)
        assert "the machine is gone" in str(told.exception)
    assert len(stores.find(output)) == 2
    assert not stores.is_file(f"{output}/{scoring.SUCCESS}")
    before = stores.states(output)
    monkeypatch.setenv("TFRANK_SEL_CACHE", str(tmp_path / "another"))
    assert "4 files, 2 of them found" in done(score(there, output))
    assert before.items() <= stores.states(output).items()
    assert tables(output) == tables(here / "out")


@pytest.mark.parametrize("folder", ["s3"], indirect=True)
def test_what_has_changed_is_scored_anew(here, there, monkeypatch):
    output = f"{there}/scores/1"
    with monkeypatch.context() as patch:
        cut(patch, 2)
        assert score(there, output).exit_code == 1
    put(f"{there}/days/2.txt", (here / "1.txt").read_bytes().replace(b"qid:q", b"qid:p"))
    assert "4 files\n" in done(score(there, output))
    queries = {x for one in tables(output).values() for x in one["query_id"].to_pylist()}
    assert queries == {f"{x}{i}" for x in "qp" for i in range(15)}


@pytest.mark.parametrize("folder", ["s3"], indirect=True)
def test_a_folder_of_something_else_is_not_written_to(there):
    put(f"{there}/scores/notes.txt", b"mine")
    assert "must be new or empty" in line(score(there, f"{there}/scores"))
    assert stores.find(f"{there}/scores") == [f"{there}/scores/notes.txt"]
    assert not stores.is_dir(f"{there}/.scores.partial")


def test_one_process_at_a_time_scores(bucket, here):
    with leases.hold(f"{bucket}/.out.partial", renewed=0.2):
        assert "is held by another process" in line(score(here, f"{bucket}/out"))


@pytest.mark.parametrize("folder", ["gs"], indirect=True)
def test_a_model_of_a_store_is_evaluated_on_files_of_a_store(there):
    metrics = f"{there}/metrics.json"
    model, days = f"{there}/models/7", f"{there}/days/*.txt"
    done(invoke("evaluate", "--model", model, "--data", days, "--metrics", metrics))
    assert json.loads(stores.read_text(metrics))["metrics"]["NDCG@10"]["queries"] == 30


@pytest.mark.parametrize("option", ["--model", "--data", "--output", "--metrics", "--against"])
def test_an_unknown_scheme_is_refused_by_every_option(here, tmp_path, option):
    options = {"--model": here / "model", "--data": here / "1.txt"}
    if option != "--metrics" and option != "--against":
        options["--output"] = tmp_path / "out"
    options[option] = "foo://bucket/a"
    command = "score" if "--output" in options else "evaluate"
    told = invoke(command, *(x for pair in options.items() for x in pair))
    assert "Received: the unknown scheme foo://" in line(told)


def test_a_store_that_cannot_be_used_is_told_in_a_line(bucket, here, tmp_path, monkeypatch):
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def lines():
        forget()
        files = "--data", f"{bucket}/*.txt"
        yield line(invoke("score", "--model", here / "model", *files, "--output", tmp_path / "out"))
        yield line(score(here, f"{bucket}/out"))

    assert "expected a file. Received: a pattern that matches no file" in next(lines())
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    assert all("the store must be within reach. Received: Could not conn" in x for x in lines())
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert all("expected credentials of the store" in x for x in lines())


def test_a_store_that_fails_amid_scoring_is_told_in_a_line(bucket, here, monkeypatch):
    genuine = s3fs.core.S3File._upload_chunk

    def failing(self, final=False):
        if "scores-00002" in self.path:
            raise OSError("the line is cut")
        return genuine(self, final=final)

    output = f"{bucket}/out"
    with monkeypatch.context() as patch:
        patch.setattr(s3fs.core.S3File, "_upload_chunk", failing)
        told = line(score(here, output))
        assert told.startswith(f"{output}/scores-00002-of-00004.parquet")
        assert told.endswith("the store must be within reach. Received: the line is cut")
    assert not stores.is_file(f"{output}/{scoring.SUCCESS}")
    done(score(here, output))
    assert tables(output) == tables(here / "out")
