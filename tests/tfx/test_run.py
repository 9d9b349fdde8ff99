"""Results of a run."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import typer
from tensorflow_metadata.proto.v0 import anomalies_pb2
from typer.testing import CliRunner

from tests.tfx.conftest import FEATURES, made_lists
from tfrank_sel import data, metrics
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.evaluation.blessing import Rules, bless
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation, MetricComparison
from tfrank_sel.pipelines.evaluation.saved import SavedScorer
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.tfx import local, sequences
from tfrank_sel.pipelines.tfx.__main__ import _log_stderr, app

COMPONENTS = [
    "ExampleGen",
    "StatisticsGen",
    "SchemaGen",
    "ExampleValidator",
    "LatestBlessedModel",
    "Scaling",
    "Trainer",
    "Evaluator",
    "InfraValidator",
    "Pusher",
]


@pytest.fixture(scope="module")
def layout(run):
    return run.layout()


def query_ids(run, split):
    context = {sequences.QUERY_ID: tf.io.FixedLenFeature([], tf.string)}
    found = sequences.records(run.split(split))
    return [
        tf.io.parse_single_sequence_example(one, context)[0][sequences.QUERY_ID].numpy().decode()
        for one in found
    ]


def test_every_component_is_told_when_it_is_done(run):
    done = [line.split()[1] for line in run.stdout.splitlines() if line.startswith("done")]
    assert sorted(done) == sorted(COMPONENTS)
    # the last one: a tree where LightGBM is installed
    assert re.search(r"(epoch|tree) \d+/\d+, validation NDCG@10", run.stdout)
    assert "infra blessed: " in run.stdout


def test_every_query_is_in_one_split(run):
    found = {split: query_ids(run, split) for split in ("train", "eval", "test")}
    assert all(found.values())
    together = [query_id for ids in found.values() for query_id in ids]
    assert sorted(together) == sorted(one.query_id for one in made_lists())


def test_statistics_and_schema_know_the_features_by_name(run, layout):
    assert list(layout.features) == [f"feature_{i:03d}" for i in range(1, FEATURES + 1)]
    found = (run.artefact("ExampleValidator", "anomalies") / "Split-eval").glob("*")
    [path] = found
    assert not anomalies_pb2.Anomalies.FromString(path.read_bytes()).anomaly_info


def test_the_scaling_is_that_of_the_training_split(run):
    written = run.artefact("Scaling", "scaling") / "scaling.json"
    found = json.loads(written.read_text())["preparation"]
    assert [*written.parent.iterdir()] == [written]  # of one file, Trainer reads it
    ids = set(query_ids(run, "train"))
    rows = np.concatenate([one.features for one in made_lists() if one.query_id in ids])
    compressed = np.sign(rows) * np.log1p(np.abs(rows.astype(np.float64)))
    np.testing.assert_allclose(found["mean"], compressed.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["variance"], compressed.var(axis=0), rtol=1e-9)


def test_the_model_learned_and_its_epochs_are_logged(run):
    logs = run.artefact("Trainer", "model_run") / "rg_cross_loss"
    assert {path.name for path in logs.iterdir()} == {"train", "validation"}
    found = json.loads((run.artefact("Evaluator", "evaluation") / "metrics.json").read_text())
    ruled = found["metrics"]["NDCG@10"]
    assert ruled["ours"] > 0.8  # at random about 0.7
    assert found["against"] == "random order"
    assert ruled == found["chance"]["NDCG@10"]
    assert set(found["slices"]) == {"list_size 1-10"}


def test_the_blessing_is_that_of_a_run(run):
    folder = run.artefact("Evaluator", "evaluation")
    found = json.loads((folder / "metrics.json").read_text())
    every = {name: MetricComparison(**figures) for name, figures in found["metrics"].items()}
    [size] = found["slices"].items()
    of_size = {name: MetricComparison(**figures) for name, figures in size[1].items()}
    evaluated = Evaluation({OVERALL: every, size[0]: of_size}, every, found["against"])
    written = json.loads((folder / "blessing.json").read_text())
    times = written.pop("beside")["milliseconds"]
    assert times.keys() == {"ours"}
    assert 0.0 < times["ours"]["p50"] <= times["ours"]["p99"]
    assert written == bless(evaluated, Rules()).figures()
    assert sorted(path.name for path in folder.iterdir()) == ["blessing.json", "metrics.json"]


def test_the_evaluation_is_that_of_our_metrics_over_the_test_split(run, layout):
    found = json.loads((run.artefact("Evaluator", "evaluation") / "metrics.json").read_text())
    [version] = (run.output / "serving" / "ranker").iterdir()
    predict = tf.saved_model.load(str(version)).signatures["predict"]
    by_id = {one.query_id: one for one in made_lists()}
    ids = query_ids(run, "test")
    values = []
    for query_id in ids:
        one = by_id[query_id]
        every = tf.constant([[True]])
        scores = predict(features=tf.constant(one.features[None]), mask=every)["scores"]
        values.append(float(metrics.NDCG(10)(one.labels[None], scores)))
    assert found["metrics"]["NDCG@10"]["queries"] == len(ids)
    np.testing.assert_allclose(found["metrics"]["NDCG@10"]["ours"], np.mean(values), rtol=1e-5)


def test_the_pushed_version_tells_the_order_of_the_features(run, layout):
    [version] = (run.output / "serving" / "ranker").iterdir()
    manifest = json.loads((version / "assets.extra" / "manifest.json").read_text())
    assert manifest["feature_names"] == list(layout.features)
    assert (version / "assets.extra" / "tf_serving_warmup_requests").stat().st_size > 0
    outcome = local.outcome(run.output / "metadata.sqlite")
    assert outcome.version == version
    assert outcome.objections == ()
    assert str(version) in run.stdout


def test_a_model_of_other_features_is_not_evaluated(run):
    [version] = (run.output / "serving" / "ranker").iterdir()
    inputs = stored_lists.inputs_spec(data.FeatureSpec(num_features=1))
    with pytest.raises(ValueError, match=r"'float32', None, 1\).*Received: .*'float32', None, 3\)"):
        SavedScorer(str(version), inputs)


def test_a_gate_that_fails_has_a_status_of_its_own(tmp_path, capfd):
    with pytest.raises(typer.Exit) as left, _log_stderr(tmp_path / "run.log"):
        raise GateError(["gates.zero: train: price: expected a value other than 0"])
    assert left.value.exit_code == 3
    assert capfd.readouterr().err.startswith("gates.zero: train: price: ")


def test_data_must_be_a_folder(tmp_path):
    options = ["--data", str(tmp_path / "none"), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["run", *options])
    assert done.exit_code == 2
    assert "--data must be a folder" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_told_in_a_word_and_in_the_log_at_length(tmp_path):
    (tmp_path / "data").mkdir()
    options = ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["run", *options])
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    assert f"What led to it is in {tmp_path / 'out' / 'run.log'}" in done.stderr
    assert "Traceback" in (tmp_path / "out" / "run.log").read_text()
