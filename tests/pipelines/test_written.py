"""What a step wrote is what later steps read; a release is where the configuration says."""

import shutil

import pytest

from tests.pipelines.test_daily import SMALL, day, done, files, invoke, taken
from tfrank_sel.pipelines import manifests


@pytest.fixture(scope="module")
def pushed(tmp_path_factory):
    """A folder with two runs: `1` on three files, and `2` with another seed."""
    folder = tmp_path_factory.mktemp("written")
    sources = files(day(folder))
    done(invoke("run", folder / "1", *sources, sets=SMALL))
    done(invoke("run", folder / "2", *sources, sets=[*SMALL, "training.seed=5"]))
    return folder


@pytest.fixture
def runs(pushed, tmp_path):
    return shutil.copytree(pushed, tmp_path / "runs")


def damage(path, how):
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def refused(result, path, step):
    assert result.exit_code == 2, (result.output, result.exception)
    [line] = result.stderr.splitlines()
    assert str(path) in line
    assert step in line


def test_each_file_that_a_step_wrote_is_checked(runs):
    for step in manifests.STEPS:
        for path in sorted((runs / "1" / step).rglob("*")):
            if path.is_dir() or "logs" in path.parts:
                continue
            kept = runs / "kept"
            shutil.copy2(path, kept)
            for how in ("missing", "empty", "cut", "flipped"):
                if path.name == "manifest.json" and how in ("missing", "flipped"):
                    continue  # a step that has not been run, or another text
                if how != "missing" and not path.stat().st_size:
                    continue
                damage(path, how)
                refused(invoke("run", runs / "1"), path, step)
                shutil.copy2(kept, path)
    assert taken(done(invoke("run", runs / "1"))) == []


@pytest.mark.parametrize(
    "name", ["export/saved_model", "train/ours.keras", "ingest/records", "evaluate/metrics.json"]
)
def test_a_file_of_another_run_is_refused_until_its_step_runs_again(runs, name):
    ours, theirs = (runs / x / name for x in "12")
    if name == "ingest/records":  # the data are equal
        shutil.copy2(next(ours.glob("test-*")), ours / "train-00001-of-00002")
    elif ours.is_dir():
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
    else:
        shutil.copy2(theirs, ours)
    step = name.partition("/")[0]
    options = ["--set", f"serving.folder={runs}/prod"]
    refused(invoke("run", runs / "1", *options), ours, f"--from {step}")
    assert not (runs / "prod").exists()
    done(invoke("run", runs / "1", *options, "--from", step))
    assert (runs / "prod" / "ranker" / "1").is_dir()


def test_a_pushed_run_is_published_elsewhere(runs):
    ours = (runs / "1/export/saved_model/variables/variables.index").read_bytes()
    shutil.copytree(runs / "2/serving", runs / "taken")
    for set, place in (
        (f"serving.folder={runs}/new", runs / "new/ranker/1"),
        (f"serving.folder={runs}/taken", runs / "taken/ranker/2"),
        ("serving.model_name=other", runs / "taken/other/1"),
    ):
        stdout = done(invoke("run", runs / "1", sets=[set]))
        assert taken(stdout) == ["push"]
        assert (place / "variables/variables.index").read_bytes() == ours
    assert {x.name for x in (runs / "taken/ranker").iterdir() if x.name.isdigit()} == {"1", "2"}


def test_a_removed_version_is_named_and_published_again(runs):
    done(invoke("run", runs / "1", sets=[f"serving.folder={runs}/prod"]))
    shutil.rmtree(runs / "prod/ranker/1")
    result = invoke("run", runs / "1")
    assert result.exit_code == 3
    assert f"{runs}/prod/ranker/1 was removed: `run --from push`" in result.stderr
    done(invoke("run", runs / "1", "--from", "push"))
    assert (runs / "prod/ranker/1").is_dir()


@pytest.mark.parametrize("command", ["run", *(x for x in manifests.STEPS if x != "evaluate")])
@pytest.mark.parametrize("sets", [[], ["data.synthetic=true", "data.data=['x*.txt']"]])
def test_data_are_named_or_asked_for(tmp_path, command, sets):
    (tmp_path / "x.txt").write_text("1 qid:1 1:2\n")
    (tmp_path / "run.toml").write_text("")
    sets = [x.replace("x*.txt", f"{tmp_path}/x*.txt") for x in sets]
    result = invoke(command, tmp_path / "out", "--config", tmp_path / "run.toml", sets=sets)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "--synthetic" in line
    assert not (tmp_path / "out").exists()
