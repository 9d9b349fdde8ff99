"""Lists and comparisons of runs."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.run import registry


@pytest.fixture(scope="module")
def both(tracked, tmp_path_factory):
    """A folder of the run `a`, of `b`, which is trained otherwise, and of `c`, not trained."""
    folder = tmp_path_factory.mktemp("runs")
    for name in "abc":
        shutil.copytree(tracked, folder / "of" / name)
    (folder / "of" / "b" / "tracking.json").unlink()
    config = folder / "of" / "b" / "config.toml"
    text = config.read_text().replace("\nmlflow = ", "\n# mlflow = ")
    config.write_text(text.replace("learning_rate = 0.001", "learning_rate = 0.5"))
    command = ["run", "--output", str(folder / "of" / "b"), "--bless-min-value", "1.1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 3, (result.output, result.exception)
    for step in ("train", "evaluate", "export", "push"):
        shutil.rmtree(folder / "of" / "c" / step)
    (folder / "of" / "no_run").mkdir()
    return folder


def test_a_list_shows_each_run_in_a_row(both):
    a, b, c = (registry.summary(run) for run in registry.runs(both))
    assert [run.folder.name for run in (a, b, c)] == ["a", "b", "c"]
    metrics = json.loads((both / "of" / "a" / "evaluate" / "metrics.json").read_text())
    assert a.metric == metrics["metrics"]["NDCG@10"]
    assert (a.losses, a.against, a.unfinished) == (["lambda_loss"], "baseline", [])
    assert (a.blessed, a.version, b.blessed, b.version) == (True, "1", False, None)
    assert (c.losses, c.metric, c.blessed, c.version) == ([], None, None, None)
    assert c.unfinished == ["train", "evaluate", "export", "push"]
    shown = CliRunner().invoke(app, ["runs", "list", str(both)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, (shown.output, shown.exception)
    rows = [line for line in shown.stdout.splitlines() if "of/" in line]
    assert len(rows) == 3
    [row] = [row for row in rows if "of/a" in row]
    for word in ("lambda_loss", f"{a.metric['ours']:.4f}", "baseline", "version 1", a.made[:10]):
        assert word in row
    narrow = CliRunner().invoke(app, ["runs", "list", str(both)], env={"COLUMNS": "80"}).stdout
    assert "…" not in narrow
    assert all(word in narrow for word in ("lambda_loss", a.made[:10], "unfinished:"))


def test_a_list_needs_no_tensorflow(both):
    code = f"""
import sys
from typer.testing import CliRunner
from tfrank_sel.pipelines.__main__ import app
result = CliRunner().invoke(app, ["runs", "list", {str(both)!r}])
assert result.exit_code == 0, result.output
assert "tensorflow" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_runs_are_compared_on_the_same_lists(both):
    a, b = both / "of" / "a", both / "of" / "b"
    command = ["runs", "compare", str(a), str(b)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 0, (result.output, result.exception)
    ours, theirs = (
        json.loads((run / "evaluate" / "metrics.json").read_text())["metrics"]["NDCG@10"]["ours"]
        for run in (a, b)
    )
    [row] = [x for x in result.stdout.splitlines() if "NDCG@10 " in x and "slice" not in x][-1:]
    assert f" {ours:.4f} " in row
    assert f" {theirs:.4f} " in row
    assert f"{theirs - ours:+.4f} (" in row
    assert "training.learning_rate" in result.stdout
    assert "list_size 1-10" in result.stdout


def test_settings_that_differ_are_told_with_both_values(both):
    a, b = both / "of" / "a", both / "of" / "b"
    found = {key: values for key, *values in registry.differing_keys(a, b)}
    assert found["training.learning_rate"] == [0.001, 0.5]
    assert found["blessing.min_value"] == [0.0, 1.1]
    assert registry.differing_keys(a, a) == []


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["list", "none"], "none: expected a folder. Received: none"),
        (["compare", "of/a", "of/a/"], "of/a: expected another run than the first. Received: "),
        (["compare", "of/a", "of/none"], "of/none: expected the folder of a run. Received: "),
        (["compare", "of/c", "of/a"], "of/c: expected the folder of a run whose model is trained"),
    ],
)
def test_what_is_no_run_is_an_error_of_a_line(command, line, both, monkeypatch):
    monkeypatch.chdir(both)
    result = CliRunner().invoke(app, ["runs", *command])
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stderr.startswith(line)


def test_runs_are_listed_as_json(both):
    result = CliRunner().invoke(app, ["runs", "list", "--json", str(both)])
    found = json.loads(result.stdout)
    assert {x["folder"].rpartition("/")[2] for x in found} >= {"a", "b"}
    assert [x["made"] or "" for x in found] == sorted(x["made"] or "" for x in found)
    assert all(x["metric"] is None or x["metric"]["low"] <= x["metric"]["high"] for x in found)


def test_a_folder_without_runs_is_told(tmp_path):
    result = CliRunner().invoke(app, ["runs", "list", str(tmp_path)])
    assert result.stdout.split() == f"no run in {tmp_path}".split()
