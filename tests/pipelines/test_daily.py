"""The daily loop: steps that are kept, a champion to beat, days that join."""

import collections
import dataclasses
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2
from typer.testing import CliRunner

from tfrank_sel import data, locks
from tfrank_sel.data import letor
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.run.plan import Plan
from tfrank_sel.pipelines.run.steps import STEPS

# one small network
SMALL = [
    "training.loss.class=RGCrossLoss",
    "evaluation.baseline=false",
    "model.hidden_units=[4]",
    "training.epochs=4",
    "training.learning_rate=0.1",
    "blessing.margin=1.0",
    "blessing.slice_margin=1.0",
]
SPLITS = {"train": 30, "validation": 8, "test": 20}
KEPT = "kept {:18} up to date"


def invoke(command, output, *options, sets=()):
    words = [command, "--output", str(output), *map(str, options)]
    return CliRunner().invoke(app, [*words, *(x for one in sets for x in ("--set", one))])


def day(folder):
    """The files of a day: of four items, the one with the largest first feature is relevant."""
    random = np.random.default_rng(0)
    for split, count in SPLITS.items():
        lists = []
        for query in range(count):
            features = random.normal(size=(4, 3)).astype(np.float32)
            labels = (features[:, 0] == features[:, 0].max()).astype(np.float32)
            lists.append(data.ItemList(f"{split}{query}", labels, features, tuple("abcd")))
        letor.write(folder / f"{split}.txt.gz", lists)
    return {split: folder / f"{split}.txt.gz" for split in SPLITS}


def files(sources):
    return [part for split, path in sources.items() for part in (f"--{split}", str(path))]


def done(result, status=0):
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a run that is published to a folder of all models, and a copy of it."""
    folder = tmp_path_factory.mktemp("daily") / "days"
    folder.mkdir()
    sets = [*SMALL, f"serving.folder={folder / 'served'}"]
    stdout = done(invoke("run", folder / "1", *files(day(folder)), sets=sets))
    assert f"--model-base-path {folder}/served/ranker" in stdout
    return folder, shutil.copytree(folder, folder.with_name("copy"))


@pytest.fixture
def copied(made):
    """The same, as it was at first."""
    folder, copy = made
    shutil.rmtree(folder)
    return shutil.copytree(copy, folder)


def taken(stdout):
    """The steps that were not kept."""
    return [step for step in STEPS if KEPT.format(step) not in stdout]


@pytest.mark.parametrize(
    ("sets", "reason", "steps"),
    [
        (["training.epochs=1"], "train is run again: training.epochs is 1, was 4", 4),
        (["blessing.min_value=0.01"], "push is run again: blessing.min_value is 0.01, was 0.0", 1),
        (["gates.zero=fail"], "analyze is run again: gates.zero is 'fail', was 'warn'", 3),
    ],
)
def test_a_changed_run_goes_on_from_the_first_step_that_changed(copied, sets, reason, steps):
    stdout = done(invoke("run", copied / "1", sets=sets))
    assert reason in stdout
    assert len(taken(stdout)) == steps
    assert taken(done(invoke("run", copied / "1"))) == []  # whose configuration is kept


def test_an_export_is_recalibrated(copied):
    before = tf.saved_model.load(str(copied / "1" / "export" / "saved_model"))
    sets = ["serving.recalibration=platt", "evaluation.baseline=false"]
    stdout = done(invoke("run", copied / "1", sets=sets))
    assert "export is run again: serving.recalibration is 'platt', was None" in stdout
    assert taken(stdout) == ["export", "push"]
    after = tf.saved_model.load(str(copied / "1" / "export" / "saved_model"))
    items = {"features": tf.random.stateless_normal([64, 4, 3], [0, 1]), "mask": tf.ones([64, 4])}
    items["mask"] = items["mask"] > 0.0
    scores, labels = (x.signatures["predict"](**items)["scores"].numpy() for x in (before, after))
    assert 0.0 < labels.min() < 0.25 < labels.max() < 1.0  # one of four is relevant
    np.testing.assert_array_equal(np.argsort(labels, axis=1), np.argsort(scores, axis=1))
    log_odds = np.log(labels / (1.0 - labels))
    slope, intercept = np.polyfit(scores.ravel(), log_odds.ravel(), 1)
    np.testing.assert_allclose(slope * scores + intercept, log_odds, rtol=1e-3, atol=1e-3)


def test_a_run_that_is_up_to_date_reads_each_manifest_once(copied, monkeypatch):
    read, read_json = collections.Counter(), folders.read_json

    def counted(path):
        read[path.parent.name] += path.name == folders.MANIFEST
        return read_json(path)

    monkeypatch.setattr(folders, "read_json", counted)
    assert taken(done(invoke("run", copied / "1"))) == []
    assert read == dict.fromkeys(STEPS, 1)
    done(invoke("run", copied / "1", "--dry-run"))
    assert read == dict.fromkeys(STEPS, 2)
    assert CliRunner().invoke(app, ["runs", "list", str(copied / "1")]).exit_code == 0
    read = {step: read[step] for step in STEPS}  # without results
    assert read == dict.fromkeys(STEPS, 3)


def test_a_step_is_forced(copied):
    before = (copied / "1" / "evaluate" / "metrics.json").read_text()
    stdout = done(invoke("run", copied / "1", "--from", "evaluate"))
    assert taken(stdout) == ["evaluate", "export", "push"]
    assert (copied / "1" / "evaluate" / "metrics.json").read_text() == before


def test_a_file_that_changed_is_told_and_read_again(copied):
    path = copied / "test.txt.gz"
    path.touch()
    assert taken(done(invoke("run", copied / "1"))) == []  # with the same content
    shutil.copy(copied / "validation.txt.gz", path)
    alone = invoke("train", copied / "1")
    assert alone.exit_code == 2
    assert alone.stderr == (
        f"{copied}/1: {path} changed since ingest: run `ingest` before `train`, "
        "or `run` for all steps\n"
    )
    assert f"ingest is run again: {path} changed" in done(invoke("ingest", copied / "1"))
    report = json.loads((copied / "1" / "ingest" / "ingest.json").read_text())
    assert report["splits"]["test"]["lists"] == SPLITS["validation"]


def test_a_file_that_changes_while_it_is_read_is_refused(copied, monkeypatch):
    before = content(copied / "1" / "ingest")
    path = copied / "train.txt.gz"
    planned = Plan.of

    def changed(*arguments):
        plan = planned(*arguments)
        with path.open("ab") as file:
            file.write(gzip.compress(b"# more\n"))
        return plan

    monkeypatch.setattr(Plan, "of", changed)
    told = invoke("run", copied / "1", "--from", "ingest")
    assert told.exit_code == 2
    reason = "a file must not change while it is read. Received: a changed file"
    assert told.stderr == f"{path}: {reason}\n"
    assert content(copied / "1" / "ingest") == before


def test_one_process_at_a_time_works_on_a_run(copied):
    with locks.hold(copied / "1"):
        told = invoke("run", copied / "1", "--epochs", "1")
    assert told.exit_code == 2
    assert "one process at a time can work on a run. Received: " in told.stderr
    assert len(told.stderr.splitlines()) == 1


def configuration(served):
    found = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((served / "models.config").read_text(), found)
    [entry] = found.model_config_list.config
    return entry


def judged(folder, run, sets=(), status=0):
    """Pushes a run again, and returns what became of it."""
    told = invoke("push", folder / run, sets=sets)
    done(told, status)
    return json.loads((folder / run / "push" / "pushed.json").read_text())


def test_versions_count_up_and_a_canary_has_its_label(copied):
    served = copied / "served"
    shutil.copytree(copied / "1", copied / "2")
    shutil.rmtree(copied / "2" / "push")
    second = judged(copied, "2", ["serving.canary=true"])
    assert second["saved_model"] == f"{served}/ranker/2"
    assert second["champion"] == f"{served}/ranker/1"
    assert second["beside"]["top_10_agreement"] == 1.0
    entry = configuration(served)
    assert dict(entry.version_labels) == {"stable": 1, "canary": 2}
    assert list(entry.model_version_policy.specific.versions) == [1, 2]
    again = judged(copied, "2", ["serving.canary=false"])  # the same version, for all
    assert again["saved_model"] == f"{served}/ranker/2"
    entry = configuration(served)
    assert dict(entry.version_labels) == {"stable": 2, "previous": 1}
    assert list(entry.model_version_policy.specific.versions) == [1, 2]
    assert sorted(path.name for path in (served / "ranker").iterdir()) == ["1", "2"]


def test_a_canary_needs_a_version_that_is_served(copied):
    told = invoke("push", copied / "1", sets=["serving.canary=true"])
    assert told.exit_code == 2
    [line] = told.stderr.splitlines()
    assert line.startswith(f"{copied}/served/ranker: a canary requires another version that is")


def test_a_worse_model_leaves_the_champion_where_it_is(copied):
    shutil.copytree(copied / "1", copied / "2")
    shutil.rmtree(copied / "2" / "push")
    model = keras.models.load_model(copied / "2" / "train" / "ours.keras", compile=False)
    for weight in model.network.trainable_variables[-2:]:
        weight.assign(-weight)
    path, manifest = (copied / "2" / "train" / name for name in ("ours.keras", "manifest.json"))
    model.save(path)
    content = json.loads(manifest.read_text())  # as if `train` had written it
    content["written"]["ours.keras"] = dataclasses.asdict(manifests.Fingerprint.of(str(path)))
    manifest.write_text(json.dumps(content))
    strict = ["blessing.margin=0.0", "blessing.max_milliseconds=0.001"]
    done(invoke("run", copied / "2", "--from", "evaluate", sets=strict), 3)
    told = json.loads((copied / "2" / "push" / "blessing.json").read_text())
    failed = [check["told"] for check in told["checks"] if not check["passed"]]
    assert any(", champion " in x and ": significant loss (" in x for x in failed)
    assert any(x.endswith("(99th percentile), at most 0.001 allowed") for x in failed)
    assert 'id="champion"' in (copied / "2" / "report.html").read_text()
    assert told["champion"]["against"] == "champion"
    assert [path.name for path in (copied / "served" / "ranker").iterdir()] == ["1"]


def test_a_champion_of_other_features_is_one_line(copied, tmp_path):
    path = copied / "1" / "export" / "saved_model" / "assets.extra" / "manifest.json"
    shutil.copytree(path.parents[1], tmp_path / "other")
    manifest = json.loads(path.read_text())
    manifest["feature_names"] = ["age", "price", "stock", "brand"]
    manifest["features"]["num_features"] = 4
    (tmp_path / "other" / "assets.extra" / "manifest.json").write_text(json.dumps(manifest))
    for name in ("other", "none"):
        told = invoke("push", copied / "1", sets=[f"blessing.champion={tmp_path / name}"])
        assert told.exit_code == 2, told.output
        [line] = told.stderr.splitlines()
        assert line.startswith(f"{tmp_path / name}: "), line
    assert json.loads((copied / "1" / "push" / "pushed.json").read_text())["blessed"]


def test_a_day_joins_those_before_and_starts_from_their_weights(copied, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    sources = day(second)
    options = [*files(sources), "--continue-from", str(copied / "1")]
    sets = [*SMALL, "training.learning_rate=1e-12", "training.averaging=0.0"]
    sets += ["training.weight_decay=0.0", "gates.leak=off"]  # a feature orders the labels
    stdout = done(invoke("run", copied / "2", *options, sets=sets))
    assert "joined to 1 earlier increments" in stdout
    statistics = json.loads((copied / "2/analyze/statistics/train.json").read_text())
    assert statistics["lists"] == 2 * SPLITS["train"]
    before, after = (
        keras.models.load_model(copied / run / "train" / "ours.keras", compile=False)
        for run in ("1", "2")
    )
    networks = zip(before.trainable_variables, after.trainable_variables, strict=True)
    for old, new in networks:  # trees are those of the new day
        np.testing.assert_allclose(old, new, atol=1e-4)
    wider = invoke("train", copied / "2", sets=["model.hidden_units=[5]"])
    assert wider.exit_code == 2
    [line] = wider.stderr.splitlines()
    assert line.startswith(f"{copied}/1: to continue a run, losses and network must be")
    none = invoke("run", copied / "4", *files(sources), "--continue-from", str(tmp_path))
    missing = f"{tmp_path}/ingest/manifest.json: expected a file."
    assert none.stderr == f"{missing} Received: No such file or directory\n"
    options = [*files(sources), "--continue-from", str(copied / "2")]
    stdout = done(invoke("run", copied / "3", *options, sets=[*sets, "data.memory=1"]))
    assert "joined to 1 earlier increments" in stdout
    statistics = json.loads((copied / "3/analyze/statistics/train.json").read_text())
    assert statistics["lists"] == 2 * SPLITS["train"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on_and_ends_as_an_undisturbed_one(
    copied, tmp_path, stop
):
    config = (copied / "1" / "config.toml").read_text()
    config = config.replace("epochs = 4", "epochs = 150").replace("patience = 10", "patience = 150")
    (tmp_path / "run.toml").write_text(config.replace(f"{copied}/served", f"{tmp_path}/served"))
    command = [sys.executable, "-m", "tfrank_sel.pipelines", "run"]
    command += ["--config", str(tmp_path / "run.toml"), "--output"]
    output = tmp_path / "out"
    process = subprocess.Popen(
        [*command, str(output)],
        stderr=subprocess.PIPE,
        text=True,
        # which a shell may have turned off for all that it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and not list(output.glob(".train.partial/backup/ours/*.npz")):
        time.sleep(0.02)
    os.kill(process.pid, stop)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-2:] == [
        "interrupted; kept: ingest, analyze, the epochs of the training",
        f"continue with: tfrank-sel-pipelines run --output {output}",
    ]
    for place in (output, tmp_path / "undisturbed"):
        subprocess.run([*command, str(place)], check=True, capture_output=True)
    one, other = (
        keras.models.load_model(place / "train" / "ours.keras", compile=False)
        for place in (output, tmp_path / "undisturbed")
    )
    for x, y in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
    assert not (output / ".train.partial").exists()


SWALLOWS = """
import os, signal
from tfrank_sel import losses

class Swallows(losses.SoftmaxLoss):
    def call(self, labels, scores):
        try:  # as TensorFlow does here and there while it traces
            os.kill(os.getpid(), signal.SIGINT)
        except:
            pass
        return super().call(labels, scores)

def make():
    return Swallows()
"""


def test_an_interrupt_that_is_swallowed_ends_the_run_all_the_same(tmp_path):
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    command = [sys.executable, "-m", "tfrank_sel.pipelines", "run", *files(day(tmp_path))]
    command += ["--output", str(tmp_path / "out"), "--module", str(tmp_path / "swallows.py")]
    for one in (*SMALL[1:], "training.loss.class=swallows:make"):
        command += ["--set", one]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert told.returncode == 130, told.stderr
    assert "interrupted; kept: ingest, analyze" in told.stderr
