"""What a step wrote is what later steps read; a release is where the configuration says."""

import collections
import hashlib
import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from tests.pipelines.test_daily import done, invoke, taken
from tests.pipelines.test_main import small_set
from tfrank_sel import artefacts, export
from tfrank_sel.data.rejections import InputError
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.files import manifests
from tfrank_sel.pipelines.ingestion.ingest_counts import Places
from tfrank_sel.pipelines.ingestion.inputs import Source
from tfrank_sel.pipelines.run.steps import STEPS
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.engine.versions import ModelVersions


@pytest.fixture
def runs(finished, tmp_path):
    """A folder with a run, `1`."""
    shutil.copytree(finished[0], tmp_path / "runs" / "1")
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def other(finished, tmp_path_factory):
    """A run on the same data, with another seed."""
    folder = tmp_path_factory.mktemp("other") / "2"
    shutil.copytree(finished[0], folder, ignore=shutil.ignore_patterns("serving"))
    done(invoke("run", folder, "--from", "train", sets=["training.seed=5"]))
    return folder


WAYS = ("missing", "empty", "cut", "flipped", "other type", "not UTF-8")


def damage(path, how):
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "other type":
        path.write_bytes(b"[1]\n")
    elif how == "not UTF-8":
        path.write_bytes(b"\xff\xfe" + content)
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def refused(result, path, step):
    assert result.exit_code == 2, (result.output, result.exception)
    [line] = result.stderr.splitlines()
    assert str(path) in line
    assert step in line


def test_no_file_is_hashed_twice(tmp_path, monkeypatch):
    hashed, file_digest = collections.Counter(), hashlib.file_digest

    def counted(file, digest):
        hashed[file.name] += 1
        return file_digest(file, digest)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    sources = small_set(tmp_path)
    sets = [f"data.{split}={path}" for split, path in sources.items()]
    done(invoke("ingest", tmp_path / "out", sets=sets))
    assert {str(path) for path in sources.values()} < hashed.keys()
    done(invoke("analyze", tmp_path / "out"))
    assert taken(done(invoke("run", tmp_path / "out", "--dry-run"))) == list(STEPS)
    assert hashed == dict.fromkeys(hashed, 1)


def test_each_file_that_a_step_wrote_is_checked(runs):
    paths = [
        (step, path)
        for step in STEPS
        for path in sorted((runs / "1" / step).rglob("*"))
        if path.is_file() and "logs" not in path.parts
    ]
    kept = runs / "kept"
    for i, (step, path) in enumerate(paths):
        # a step that has not been run has no manifest, and another text may be one
        ways = (*WAYS[1:3], *WAYS[4:]) if path.name == "manifest.json" else WAYS
        how = ways[i % len(ways)] if path.stat().st_size else "missing"
        shutil.copy2(path, kept)
        damage(path, how)
        refused(invoke("run", runs / "1"), path, f"`run --from {step}`")
        shutil.copy2(kept, path)
    assert taken(done(invoke("run", runs / "1"))) == []


@pytest.mark.parametrize("how", [*WAYS[1:3], *WAYS[4:]])
def test_a_damaged_manifest_is_written_again(runs, how):
    path = runs / "1/push/manifest.json"
    damage(path, how)
    [listed] = json.loads(done(CliRunner().invoke(app, ["runs", "list", "--json", str(runs)])))
    assert listed["damage"].startswith(f"{path}: ")
    assert "`run --from push`" in listed["damage"]
    assert taken(done(invoke("run", runs / "1", "--from", "push"))) == ["push"]
    assert taken(done(invoke("run", runs / "1"))) == []


def test_a_step_without_digests_runs_again_and_is_not_continued(runs):
    path = runs / "1/train/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["written"]
    path.write_text(json.dumps(manifest))
    stdout = done(invoke("run", runs / "1", "--dry-run"))
    assert "run  train      no digests of its files" in stdout
    with pytest.raises(InputError, match="no digests of its files") as found:
        manifests.read_manifests(runs / "1", STEPS)["train"].check()  # as of an earlier run
    assert found.value.place == str(path)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["export/saved_model", "train/ours.keras", "ingest/records", "evaluate/metrics.json"]
)
def test_a_file_of_another_run_is_refused_until_its_step_runs_again(runs, other, name):
    ours, theirs = runs / "1" / name, other / name
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


@pytest.mark.long
def test_a_pushed_run_is_published_elsewhere(runs, other):
    ours = (runs / "1/export/saved_model/variables/variables.index").read_bytes()
    shutil.copytree(other / "serving", runs / "taken")
    for set, place in (
        (f"serving.folder={runs}/new", runs / "new/ranker/1"),
        (f"serving.folder={runs}/taken", runs / "taken/ranker/2"),
        ("serving.model_name=other", runs / "taken/other/1"),
    ):
        stdout = done(invoke("run", runs / "1", sets=[set]))
        assert taken(stdout) == ["push"]
        assert (place / "variables/variables.index").read_bytes() == ours
    assert {x.name for x in (runs / "taken/ranker").iterdir() if x.name.isdigit()} == {"1", "2"}


@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_champion_is_named(runs, how):
    shutil.copytree(runs / "1/serving", runs / "served")
    damage(runs / "served/ranker/1/saved_model.pb", how)
    result = invoke("run", runs / "1", sets=[f"serving.folder={runs}/served"])
    refused(result, runs / "served/ranker/1", "expected a SavedModel")


def test_each_file_of_a_published_version_is_checked(runs, tmp_path):
    """By a run, by a server, and by a further publication; and all are published again."""
    done(invoke("run", runs / "1", sets=[f"serving.folder={runs}/prod"]))
    version, whole = runs / "prod/ranker/1", tmp_path / "whole"
    version.rename(whole)
    paths = sorted(x for x in whole.rglob("*") if x.is_file() and x.name != "digests.json")
    for i, kept_path in enumerate(paths):
        path = version / kept_path.relative_to(whole)
        shutil.copytree(whole, version)
        damage(path, WAYS[i % len(WAYS)] if path.stat().st_size else "missing")
        served = ModelVersions(ModelConfig("ranker", version.parent))
        served.poll()
        assert str(path) in served.reason()
        result = invoke("run", runs / "1")
        assert result.exit_code == 3
        assert f"{path} was removed or changed: `run --from push`" in result.stderr
        with pytest.raises((OSError, ValueError), match=re.escape(str(path))):
            export.publish(version, tmp_path / "other")
        shutil.rmtree(version)
    assert f"{version}/" in invoke("run", runs / "1").stderr
    done(invoke("run", runs / "1", "--from", "push"))
    assert artefacts.digests(version) == artefacts.digests(whole)
    damage(version / "variables/variables.data-00000-of-00001", "flipped")
    stdout = done(invoke("run", runs / "1", "--from", "push"))
    assert f"{version} was damaged: the model is published again" in stdout
    assert artefacts.digests(version.parent / "2") == artefacts.digests(whole)


@pytest.mark.parametrize("command", ["run", *(x for x in STEPS if x != "evaluate")])
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


def test_a_manifest_has_no_secret_and_another_signature_is_no_change(tmp_path):
    def made(signature, size=3, files=("d.csv", "e.csv", "d.csv")):
        urls = [
            f"https://me:{signature}@host/{x}?part={i}&sig={signature}#{signature}"
            for i, x in enumerate(files)
        ]
        read = {x: manifests.Fingerprint(size, "tag", f"{size}{i}") for i, x in enumerate(urls)}
        return manifests.Manifest({"data.reference": urls[0], "data.memory": 3}, read, {})

    made("SECRET").write(tmp_path, [], {})
    assert "SECRET" not in (tmp_path / "manifest.json").read_text()
    (tmp_path / "ingest").mkdir()
    made("SECRET").write(tmp_path / "ingest", [], {})
    written = manifests.Written.read(tmp_path, "ingest")
    assert len(written.inputs.files) == 3
    assert written.change(made("OTHER"), written.inputs) == ""
    assert written.digest == made("OTHER").digest
    assert written.change(made("OTHER", size=4), written.inputs) == "https://host/d.csv changed"
    now = made("OTHER", files=("d.csv", "f.csv"))
    assert "https://host/f.csv is new" in written.change(now, written.inputs)


def test_values_that_are_no_addresses_are_compared_as_they_are():
    url = "http://ex.org/ns"
    for key, old, new in (
        ("data.label", f"{url}#grade", f"{url}#clicks"),
        ("model", {"weights": f"{url}?version=1"}, {"weights": f"{url}?version=2"}),
    ):
        before, now = (manifests.Manifest({key: x}, {}, {}) for x in (old, new))
        assert before.digest != now.digest
        assert before.public_form.configuration == {key: old}
    section = {"train": [f"{url}?sig=SECRET"], "label": f"{url}#grade"}
    shown = {"data": {"train": [url], "label": f"{url}#grade"}}
    assert without_secrets({"data": section}) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        *((x, x) for x in ("hdfs://nn:8020/data#1/a@b.csv", "file:///data/a#b.csv", "a:b@c?d")),
        *((x, x) for x in ("sqlite:////srv/a#b.db", "wasbs://container@host/a", "s3://b/x@y:z@w")),
        ("s3://k:SEC/RET@b/a?b", "s3://b/a?b"),
        ("https://me:SE/C?R#E@T@host:1/a?sig=b#c", "https://host:1/a"),
        ("HTTP://[::1]:80/a?me@b", "HTTP://[::1]:80/a"),
    ],
)
def test_an_address_is_whole_but_for_what_may_be_a_secret(url, shown):
    assert artefacts.address(url) == shown


def test_an_error_has_no_secret_of_an_address():
    url = "https://me:SECRET@host/d.csv?sig=SECRET"
    reason = f"Received: 403, url='{url}'"
    for place in (url, f"{url}:3", f"a.csv, {url}"):
        told = InputError(place, reason)
        assert "https://host/d.csv" in str(told)
        assert "SECRET" not in str(told)
    assert Places([Source(url)], []).of_split("train", 0, 0) == "https://host/d.csv"
    for word in ("a", "a://b:"):
        assert artefacts.text_with_addresses(word * 100_000).startswith(word)  # in linear time
    of_rows = InputError("a.csv", "Received: 'https://shop/item?id=3'")
    assert str(of_rows) == "a.csv: Received: 'https://shop/item?id=3'"
