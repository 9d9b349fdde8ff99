import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_serving.config import model_server_config_pb2
from typer.testing import CliRunner

from tfrank_sel import data, roads
from tfrank_sel.data import letor
from tfrank_sel.pipelines.__main__ import app
from tfrank_sel.pipelines.learning import step as learning

SPLITS = {"train": 16, "validation": 4, "test": 6}
GOOD = "1 qid:1 1:1 2:0\n0 qid:1 1:2\n0 qid:2 2:5\n"


def small_set(folder):
    """Lists of 1 or 4 items: two shapes, so that little has to be compiled."""
    random = np.random.default_rng(0)
    for split, count in SPLITS.items():
        lists = []
        for query in range(count):
            features = random.normal(size=(4 if query else 1, 3)).astype(np.float32)
            labels = (features[:, 0] > 0.0) * 2.0
            labels[: len(labels) // 2] = 0.0
            ids = tuple(f"d{i}" for i in range(len(labels)))
            lists.append(data.ItemList(f"{split}{query}", labels, features, ids))
        letor.write(folder / f"{split}.txt.gz", lists)
    return {split: folder / f"{split}.txt.gz" for split in SPLITS}


def invoke(sources, output, *options):
    files = [part for split, path in sources.items() for part in (f"--{split}", str(path))]
    return CliRunner().invoke(app, ["run", *files, "--output", str(output), *options])


def test_a_run_ends_with_the_tables_and_the_next_commands(finished):
    output, result = finished
    for word in ("baseline", "ours", "95 % interval", "adds", "infra validation"):
        assert word in result.stdout
    parts = [name.strip() for name in re.findall(r"^done (.{18}) ", result.stdout, re.M)]
    seconds = dict(re.findall(r"^│ ([^│]+?) +│ ([\d.]+) +│$", result.stdout, re.M))
    assert [*seconds] == [*parts, "in all"]
    assert {parts[0], parts[-1]} == {"start", "report"}
    assert "1 lists of one item" in result.stdout
    assert "rg_cross_loss: 2 epochs" in result.stdout
    assert "mean_squared_loss_trees: " in result.stdout
    assert f"tfrank-sel-serving serve --model-base-path {output}/serving/ranker" in result.stdout
    assert f"tfrank-sel-serving rank --file {output}/export/one_query.txt" in result.stdout
    assert result.stderr == ""


def test_a_run_leaves_its_artefacts_and_nothing_half_written(finished):
    output, _ = finished
    assert sorted(path.name for path in output.parent.iterdir() if path.name != "out") == [
        f"{split}.txt.gz" for split in sorted(SPLITS)
    ]
    as_onnx = ["model.onnx"] if roads.exists("onnx") else []
    expected = {
        "ingest": {"ingest.json", "layout.json", "records"},
        "analyze": {"anomalies", "failures.json", "increment", "schema.pbtxt", "statistics"},
        "train": {"baseline.keras", "logs", "ours.keras", "training.json"},
        "evaluate": {"metrics.json"},
        "export": {*as_onnx, "one_query.rest.json", "one_query.txt", "saved_model"},
        "push": {"blessing.json", "pushed.json"},
    }
    found = {path.name: path for path in output.iterdir()}
    assert set(found) == {*expected, "config.toml", "report.html", "serving"}
    for step, names in expected.items():
        assert {path.name for path in found[step].iterdir()} == {*names, "manifest.json"}
    assert not [path for path in output.rglob(".*") if path.is_file()]
    logs = output / "train" / "logs" / "baseline" / "rg_cross_loss"
    assert list((logs / "validation").glob("events*"))


def test_metrics_compare_ours_with_the_baseline(finished):
    output, _ = finished
    report = json.loads((output / "evaluate" / "metrics.json").read_text())
    assert set(report["metrics"]) == {"NDCG@1", "NDCG@5", "NDCG@10", "MRR"}
    for value in report["metrics"].values():
        assert value["queries"] == SPLITS["test"]
        assert value["low"] <= value["ours"] - value["baseline"] <= value["high"]
    assert set(report["slices"]) == {"list_size 1-10"}
    assert (
        set(report["slices"]["list_size 1-10"]) == set(report["chance"]) == set(report["metrics"])
    )
    training = json.loads((output / "train" / "training.json").read_text())
    trained = {
        name: ([fit["loss"] for fit in x["fits"]], x["model"]) for name, x in training.items()
    }
    assert trained["baseline"] == (["rg_cross_loss"], "list_scorer")
    losses = ["rg_cross_loss", "mean_squared_loss_trees", "rg_cross_loss_trees"]
    assert trained["ours"] == (losses, "ensemble")
    ours, baseline = (training[name]["fits"] for name in ("ours", "baseline"))
    assert {**ours[0], "adds": None} == baseline[0]  # which is not trained twice
    assert report["against"] == "baseline"
    assert set(report["simple"]) == {"features[1] alone", "popularity"}
    assert ours[0]["epochs"] <= 2
    assert all(fit["items_per_second"] > 0.0 for fit in ours)


def test_a_report_warns_of_what_a_single_feature_does_as_well(finished):
    output, result = finished
    assert "features[1] alone" in result.stdout
    page = (output / "report.html").read_text()
    assert "⚠ features[1] alone ranks as well: NDCG@10 " in page
    others = ("orders the labels", "share queries", "a server", "equal metrics")
    warned = page.partition('id="warnings"')[2].partition("</div>")[0]
    assert not [x for x in others if x in warned]


def test_statistics_and_schema_describe_the_training_split(finished):
    output, _ = finished
    statistics = json.loads((output / "analyze" / "statistics" / "train.json").read_text())
    assert statistics["lists"] == 16
    assert statistics["list_sizes"] == {"1": 1, "4": 15}
    schema = text_format.Parse(
        (output / "analyze" / "schema.pbtxt").read_text(), schema_pb2.Schema()
    )
    first = next(feature for feature in schema.feature if feature.name == "features[1]")
    assert first.float_domain.max == statistics["features"]["max"][0]


def test_what_is_published_is_what_was_trained(finished):
    output, _ = finished
    config = text_format.Parse(
        (output / "serving" / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    [entry] = config.model_config_list.config
    assert (entry.name, entry.model_platform) == ("ranker", "tensorflow")
    served = tf.saved_model.load(f"{entry.base_path}/1")
    model = keras.models.load_model(output / "train" / "ours.keras", compile=False)
    [query] = letor.read(output / "export" / "one_query.txt", 3)
    features = tf.constant(query.features[None])
    scores = served.signatures["predict"](features=features, mask=tf.constant([[True]]))["scores"]
    np.testing.assert_allclose(scores, model(features), rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_an_unblessed_model_is_not_published_and_another_run_tells_what_drifted(finished, tmp_path):
    reference, _ = finished
    files = str(reference.parent / "*.txt.gz")
    options = ["--data", files, "--split", "50,20,30", "--epochs", "1", "--batch-size", "8"]
    options += ["--bless-min-value", "1.1", "--reference", str(reference)]
    result = invoke({}, tmp_path / "out", *options)
    assert result.exit_code == 3, (result.output, result.exception)
    reason, where = result.stderr.splitlines()
    assert reason.startswith("not blessed: NDCG@10 ")
    assert reason.endswith(", at least 1.1 required")
    assert where == f"nothing is published; see {tmp_path}/out/push/blessing.json"
    assert "tfrank-sel-serving" not in result.stdout
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert "export" in written
    assert "serving" not in written
    folder = tmp_path / "out"
    assert json.loads((folder / "push" / "blessing.json").read_text())["blessed"] is False
    assert {path.stem for path in (folder / "analyze" / "anomalies").iterdir()} == {*SPLITS}
    report = json.loads((folder / "ingest" / "ingest.json").read_text())
    lists = {split: counted["lists"] for split, counted in report["splits"].items()}
    assert sum(lists.values()) == sum(SPLITS.values())
    assert set(lists) == {*SPLITS}
    again = CliRunner().invoke(app, ["run", "--output", str(folder)])
    assert (again.exit_code, again.stderr) == (3, result.stderr)


def test_an_unchanged_run_does_nothing_and_does_not_wait_for_tensorflow(finished):
    output, _ = finished
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    script = (
        "import sys; from tfrank_sel.pipelines.__main__ import app\n"
        "try: app()\n"
        "except SystemExit as end: code = end.code\n"
        "print(code, sorted({'tensorflow', 'keras', 'apache_beam'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, "run", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert done.stdout.count("up to date") == 6
    assert f"tfrank-sel-serving serve --model-base-path {output}/serving/ranker" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


@pytest.mark.parametrize("command", ["run", "tune", "score", "evaluate", "config"])
def test_help_of_80_columns_cuts_no_name(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert "…" not in shown.output


def test_a_dry_run_checks_the_configuration_and_writes_nothing(finished, tmp_path):
    output, _ = finished
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    sources = small_set(tmp_path)
    done = invoke(sources, tmp_path / "new", "--dry-run")
    assert done.exit_code == 0, (done.output, done.exception)
    steps = [line.split() for line in done.stdout.splitlines() if line.startswith(("run", "keep"))]
    assert steps[0][:5] == ["run", "ingest", "not", "run", "yet"]
    assert not (tmp_path / "new").exists()
    done = CliRunner().invoke(app, ["run", "--output", str(output), "--dry-run", "--from", "push"])
    assert re.findall(r"^(run|keep) +(\w+)", done.stdout, re.MULTILINE) == [
        *(("keep", x) for x in ("ingest", "analyze", "train", "evaluate", "export")),
        ("run", "push"),
    ]
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    done = invoke(sources, tmp_path / "new", "--dry-run", "--set", "training.loss.class=Softmax")
    assert done.exit_code == 2
    assert "training.loss" in done.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters.txt").write_text("mine")
    result = invoke({}, tmp_path, "--synthetic")
    assert result.exit_code == 2
    reason = "the output folder must be new, empty, or contain a run"
    assert result.stderr == f"{tmp_path}: {reason}. Received: a folder with other contents\n"
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


@pytest.mark.parametrize(
    ("split", "text", "reason"),
    [
        ("train", None, "no such file"),
        ("test", None, "no such file"),
        ("train", "", "an empty file"),
        ("train", "# nothing\n", "no list in the whole file"),
        ("validation", "\n", "no list in the whole file"),
        ("train", "1 qid:1\n0 qid:1\n", "lines without any"),
        ("train", "1 qid:1 1:1\n0 qid:2 2:2\n", "two different labels"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, split, text, reason):
    sources = {name: tmp_path / f"{name}.txt" for name in SPLITS}
    for name, path in sources.items():
        path.write_text(GOOD)
        if name == split:
            path.unlink() if text is None else path.write_text(text)
    result = invoke(sources, tmp_path / "out" / "run")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{sources[split]}: ")
    assert reason in line
    assert "Traceback" not in result.output
    left = {path.name for path in (tmp_path / "out").rglob("*") if path.parent.name == "run"}
    assert left == ({"ingest", "config.toml"} if reason == "two different labels" else set())


BAD_LINES = {
    "train": {
        "1 1:3": "qid:ID",
        "1 qid:3 1:x": "finite number",
        "-1 qid:3 1:1": "a label must be",
        "nan qid:3 1:1": "a label must be",
    },
    "test": {"1 qid:3 3:1": "its index in 1..2", "1 qid:1 1:1": "must be adjacent"},
}


def test_a_bad_line_is_told_with_its_place_and_what_is_wrong(tmp_path):
    sources = {name: tmp_path / f"{name}.txt" for name in SPLITS}
    expected = {}
    for name, path in sources.items():
        path.write_text(GOOD + "\n".join(BAD_LINES.get(name, {})))
        reasons = enumerate(BAD_LINES.get(name, {}).values(), start=GOOD.count("\n") + 1)
        expected |= {f"{path}:{number}": reason for number, reason in reasons}
    result = invoke(sources, tmp_path / "out")
    assert result.exit_code == 2
    *lines, count = result.stderr.splitlines()
    told = dict(line.split(": ", 1) for line in lines)
    assert told.keys() == expected.keys()
    assert [x for x in expected if expected[x] not in told[x]] == []
    assert count == "expected no bad line. Received: 6"


def test_many_bad_lines_are_listed_and_counted(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(GOOD + "x qid:3 1:1\n" * 25)
    result = invoke(dict.fromkeys(SPLITS, path), tmp_path / "out")
    assert result.exit_code == 2
    *shown, count = result.stderr.splitlines()
    assert [line.split(": ")[0] for line in shown] == [f"{path}:{n}" for n in range(4, 14)]
    assert count == "expected no bad line. Received: 75"  # the same file three times


@pytest.mark.parametrize("options", [[], ["--set", "serving.canary=true"]])
@pytest.mark.parametrize("step", ["ingest", "push"])
def test_a_step_of_no_run_names_the_folder(tmp_path, step, options):
    done = CliRunner().invoke(app, [step, "--output", str(tmp_path / "none"), *options])
    assert done.exit_code == 2
    expected = f"{tmp_path / 'none'}: expected the folder of a run, or --config. Received: neither"
    assert done.stderr == expected + "\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--train", "x"], "and `test`. Received: only train"),
        (["--epochs", "0"], "--epochs: training.epochs must be positive"),
        (["--batch-size", "0"], "--batch-size: training.batch_size must be positive"),
        (["--learning-rate", "-1"], "--learning-rate: training.learning_rate must be positive"),
        (["--model-name", "../up"], "--model-name: serving.model_name must match pattern"),
        (["--data", "x", "--train", "x"], "either `data`, or `train`, `validation` and `test`"),
        (["--data", "x", "--split", "1,2"], "--split: data.split must have at least 3 items"),
        (["--data", "x", "--split", "a"], "--split: data.split must be a valid list"),
        (["--data", "x", "--format", "arff"], "--format: data.format must be one of letor, elwc"),
        (["--runner", "Prism"], "the runner must be one of DirectRunner"),
        (["--bless-metric", "loss"], "--bless-metric: blessing.metric must be 'NDCG@1'"),
        (["--features", "a,query_id"], "data.query and features.query_id must name different"),
        (["--", "--flink_mastr=x"], "expected options of Beam"),
    ],
)
def test_wrong_options_are_status_2(tmp_path, options, reason):
    command = ["run", "--synthetic", "--output", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert reason in line
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_or_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for output, reason in (("file", "Received: a file"), ("file/run", "must be writable")):
        result = invoke({}, tmp_path / output, "--synthetic")
        assert result.exit_code == 2
        assert reason in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("mode", ["in_memory", "multi_processing"])
def test_a_run_without_room_is_one_line_and_leaves_nothing(tmp_path, mode):
    script = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
    script += "sys.argv[0] = 'run'; runpy.run_module('tfrank_sel.pipelines', run_name='__main__')"
    output = tmp_path / "new" / "out"
    files = [part for split, path in small_set(tmp_path).items() for part in (f"--{split}", path)]
    beam = ["--", f"--direct_running_mode={mode}"]
    # without -B, an import would leave the first 2,000 bytes of its byte code to later processes
    command = [sys.executable, "-B", "-c", script, "run", "--output", output, *files, *beam]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    expected = f"{output}: the disk of the output folder must have free space. Received: "
    assert done.stderr.splitlines()[-1] == f"{expected}File too large"
    assert not output.parent.exists()


def test_a_process_with_bad_input_prints_one_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "tfrank_sel.pipelines",
        "run",
        "--output",
        str(tmp_path / "out"),
    ]
    files = [part for split in SPLITS for part in (f"--{split}", str(tmp_path / "none.txt"))]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (f"{tmp_path}/none.txt: expected a file. Received: no such file\n")


@pytest.mark.long
def test_large_data_have_a_provisional_result_that_changes_no_other(
    finished, monkeypatch, tmp_path
):
    monkeypatch.setattr(learning, "LARGE", 1)
    monkeypatch.setattr(learning, "PROVISIONAL", {"train": 128, "validation": 128})
    before, after = finished[0], tmp_path / "out"
    for step in ("ingest", "analyze", "train"):
        options = ["--config", str(before / "config.toml"), "--output", str(after)]
        result = CliRunner().invoke(app, [step, *options])
        assert result.exit_code == 0, (result.output, result.exception)
    marked = re.findall(r"provisional, on 128 of 16 lists: (\w+)", result.stdout)
    assert marked == ["rg_cross_loss", "mean_squared_loss_trees"]
    fits = [json.loads((x / "train/training.json").read_text()) for x in (before, after)]
    for mine, other in zip(*(x["ours"]["fits"] for x in fits), strict=True):
        assert mine["history"] == other["history"]
