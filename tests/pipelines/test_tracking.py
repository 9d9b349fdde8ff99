"""Runs logged by MLflow, for real, in a SQLite file."""

import json
import shutil
import sys

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from tests import refusals
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.configuration import Override, load
from tfrank_sel.pipelines.configuration.section import absolute_uri
from tfrank_sel.pipelines.run import tracking


@pytest.fixture(autouse=True)
def _here(tracked, monkeypatch):
    monkeypatch.chdir(tracked.parent)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.fixture
def client(tracked):
    return MlflowClient(tracking_uri=f"sqlite:///{tracked.parent}/mlflow.db")


def logged(client, output):
    return client.get_run(json.loads((output / "tracking.json").read_text())["run_id"])


def test_a_run_is_logged_with_settings_metrics_tags_and_pages(client, tracked):
    run = logged(client, tracked)
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == "tfrank_sel"
    assert run.data.params["training.loss"] == '[{"class": "LambdaLoss"}]'
    assert run.data.params["training.learning_rate"] == "0.001"
    assert run.data.params["data.train"] == json.dumps([f"{tracked.parent}/train.txt.gz"])
    metrics = json.loads((tracked / "evaluate" / "metrics.json").read_text())["metrics"]
    found = metrics["NDCG@10"]
    assert run.data.metrics["NDCG_at_10"] == found["ours"]
    for kind in ("baseline", "low", "high"):
        assert run.data.metrics[f"NDCG_at_10.{kind}"] == found[kind]
    assert run.data.tags["blessed"] == "true"
    assert run.data.tags["version"] == "1"
    names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert names == {"report.html", "config.toml", "MODEL_CARD.md"}


def test_each_epoch_of_each_loss_is_a_step(client, tracked):
    training = json.loads((tracked / "train" / "training.json").read_text())
    [fit] = training["ours"]["fits"]
    run = logged(client, tracked).info.run_id
    found = client.get_metric_history(run, "ours.lambda_loss.val_ndcg")
    assert {x.step: x.value for x in found} == dict(enumerate(fit["history"]["val_ndcg"], start=1))
    assert client.get_metric_history(run, "baseline.rg_cross_loss.loss")


def test_a_run_that_is_logged_again_stays_one_run(client, tracked):
    before = logged(client, tracked)
    told = tracking.log(load(tracked / "config.toml"), tracked, "")
    assert before.info.run_id in told
    after = logged(client, tracked)
    assert (after.data.params, after.data.metrics) == (before.data.params, before.data.metrics)
    history = client.get_metric_history(after.info.run_id, "ours.lambda_loss.val_ndcg")
    assert sorted(x.step for x in history) == [1, 2]
    assert len(client.search_runs([after.info.experiment_id])) == 1


def test_another_configuration_is_another_run_of_mlflow(client, tracked, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(tracked, output)
    sets = ["training.learning_rate=0.5", "tracking.experiment=other"]
    tracking.log(load(output / "config.toml", map(Override.parse, sets)), output, "")
    run = logged(client, output)
    assert run.info.run_id != logged(client, tracked).info.run_id
    assert run.data.params["training.learning_rate"] == "0.5"
    assert client.get_experiment(run.info.experiment_id).name == "other"


def test_a_run_that_is_up_to_date_but_not_logged_is_logged(client, tracked, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(tracked, output)
    (output / "tracking.json").unlink()
    result = CliRunner().invoke(app, ["run", "--output", str(output)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "done train" not in result.stdout
    run = logged(client, output)
    assert run.info.run_id != logged(client, tracked).info.run_id
    assert run.data.tags["folder"] == str(output)


@pytest.mark.parametrize(("uri", "missing", "line"), refusals.of("tracking"))
def test_what_cannot_be_logged_is_an_error_of_a_line(
    uri, missing, line, tracked, tmp_path, monkeypatch
):
    output = tmp_path / "out"
    shutil.copytree(tracked, output)
    (output / "tracking.json").unlink()
    if missing:
        monkeypatch.setitem(sys.modules, "mlflow", None)
        monkeypatch.delitem(sys.modules, "tfrank_sel.pipelines.run.tracking")
        monkeypatch.delattr("tfrank_sel.pipelines.run.tracking")
    command = ["run", "--output", str(output), "--set", f"tracking.mlflow={uri}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, (result.output, result.exception)
    assert line in result.stderr


def test_a_file_is_found_from_any_folder_and_a_server_is_no_folder(tracked):
    here = tracked.parent
    uris = {"sqlite:///x.db": f"sqlite:///{here}/x.db", "runs/x": f"{here}/runs/x"}
    uris |= {
        "C:x": f"{here}/C:x",
        "file:./x": f"file:{here}/x",
        "databricks.x": f"{here}/databricks.x",
    }
    servers = ("databricks", "databricks-uc", "databricks://x", "uc:http://x", "http://x:1/y")
    others = (*servers, "HTTP://x:1", "file:///x/y", "postgresql+psycopg2://u@h/x", "/x")
    for uri, expected in {**uris, **dict.fromkeys(others)}.items():
        absolute = load(overrides=[Override("tracking.mlflow", uri, uri)]).absolute()
        assert absolute.tracking.mlflow == absolute_uri(uri) == (expected or uri)
