"""The compiled pipeline: what is in it, and that its containers' entry point runs our evaluator."""

import argparse
import importlib
import json

import pytest
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor
from typer.testing import CliRunner

from tfrank_sel.pipelines.configuration import load
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.tfx.__main__ import app

IMAGE = "registry.example/ranker:1"
EDGES = {
    "ExampleGen": [],
    "StatisticsGen": ["ExampleGen"],
    "SchemaGen": ["StatisticsGen"],
    "ExampleValidator": ["SchemaGen", "StatisticsGen"],
    "Scaling": ["ExampleGen", "LatestBlessedModel-model-resolver", "SchemaGen"],
    "Trainer": ["ExampleGen", "Scaling", "SchemaGen"],
    "LatestBlessedModel-model-blessing-resolver": [],
    "LatestBlessedModel-model-resolver": ["LatestBlessedModel-model-blessing-resolver"],
    "Evaluator": ["ExampleGen", "LatestBlessedModel-model-resolver", "SchemaGen", "Trainer"],
    "InfraValidator": ["ExampleGen", "SchemaGen", "Trainer"],
    "Pusher": ["Evaluator", "InfraValidator", "Trainer"],
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled") / "new" / "pipeline.json"
    options = {
        "image": IMAGE,
        "data": "gs://bucket/data",
        "root": "gs://bucket/artefacts",
        "serving": "gs://bucket/serving/ranker",
        "epochs": "7",
        "bless-margin": "0.05",
        "beam-option": "--runner=DataflowRunner",
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    done = CliRunner().invoke(app, ["compile", f"--output={path}", *given])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def tasks(compiled):
    return compiled["pipelineSpec"]["root"]["dag"]["tasks"]


@pytest.fixture(scope="module")
def containers(compiled):
    executors = compiled["pipelineSpec"]["deploymentSpec"]["executors"]
    return {name: found["container"] for name, found in executors.items() if "container" in found}


def constant(task, parameter):
    return task["inputs"]["parameters"][parameter]["runtimeValue"]["constant"]


def producers(task):
    found = task.get("inputs", {}).get("artifacts", {}).values()
    return {artifact["taskOutputArtifact"]["producerTask"] for artifact in found}


def test_the_tasks_wait_for_what_they_take(tasks):
    assert set(tasks) == set(EDGES)
    for name, task in tasks.items():
        assert producers(task) == set(EDGES[name]), name
        if "resolver" not in name:
            assert sorted(task.get("dependentTasks", [])) == EDGES[name]


def test_every_component_runs_in_the_image_with_the_options_of_beam(containers):
    assert len(containers) == 9
    for name, container in containers.items():
        assert container["image"] == IMAGE, name
        assert "--runner=DataflowRunner" in container["args"], name


def test_every_executor_can_be_imported(containers):
    for container in containers.values():
        module, name = executor_class(container).rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name)


def test_what_was_asked_for_is_in_it(compiled, tasks):
    assert compiled["runtimeConfig"] == {
        "gcsOutputDirectory": "gs://bucket/artefacts",
        "parameterValues": {"data": "gs://bucket/data"},
    }
    assert compiled["pipelineSpec"]["root"]["inputDefinitions"]["parameters"].keys() == {"data"}
    examples = tasks["ExampleGen"]["inputs"]["parameters"]
    assert examples["input_base"] == {"componentInputParameter": "data"}
    split = json.loads(constant(tasks["ExampleGen"], "output_config"))["split_config"]
    assert split["partition_feature_name"] == "query_id"
    assert [one["name"] for one in split["splits"]] == ["train", "eval", "test"]
    config = json.loads(constant(tasks["Trainer"], "custom_config"))
    assert config["settings"]["epochs"] == 7
    assert config["candidate"] == instantiate.candidate(load()).get_config()
    assert constant(tasks["Trainer"], "run_fn") == "tfrank_sel.pipelines.tfx.training.run_fn"
    assert json.loads(constant(tasks["Evaluator"], "rules"))["margin"] == 0.05
    pushed = json.loads(constant(tasks["Pusher"], "push_destination"))
    assert pushed == {"filesystem": {"base_directory": "gs://bucket/serving/ranker"}}


def test_in_a_container_the_blessing_names_the_model_as_the_platform_does(
    run, compiled, tasks, containers, tmp_path
):
    model = artifact("Model", run.artefact("Trainer", "model"), "models/2")
    examples = artifact("Examples", run.artefact("ExampleGen", "examples"), "examples/1")
    examples["metadata"] = {"split_names": json.dumps(["train", "eval", "test"])}
    inputs = {
        "examples": examples,
        "schema": artifact("Schema", run.artefact("SchemaGen", "schema"), "schemas/1"),
        "model": model,
        "baseline_model": artifact("Model", run.artefact("Trainer", "model"), "models/1"),
    }
    outputs = {
        "evaluation": artifact("ModelEvaluation", tmp_path / "evaluation", "evaluations/1"),
        "blessing": artifact("ModelBlessing", tmp_path / "blessing", "blessings/1"),
    }
    named = ("columns", "rules", "seed")
    parameters = {name: constant(tasks["Evaluator"], name) for name in named}
    told = tmp_path / "told" / "executor_output.json"
    container = containers["Evaluator_executor"]
    invocation = {
        "inputs": {"artifacts": lists_of(inputs), "parameterValues": parameters},
        "outputs": {"artifacts": lists_of(outputs), "outputFile": str(told)},
    }
    given = argparse.Namespace(
        executor_class_path=executor_class(container),
        json_serialized_invocation_args=json.dumps(invocation),
        json_serialized_inputs_spec_args=after(container, "--json_serialized_inputs_spec_args"),
    )
    kubeflow_v2_run_executor.main((given, []))
    [blessing] = json.loads(told.read_text())["artifacts"]["blessing"]["artifacts"]
    assert blessing["metadata"]["blessed"] == 1.0
    assert blessing["metadata"]["current_model_id"] == "models/2"
    assert blessing["metadata"]["baseline_model_id"] == "models/1"
    assert (tmp_path / "blessing" / "BLESSED").exists()
    found = json.loads((tmp_path / "evaluation" / "metrics.json").read_text())
    assert found["against"] == "champion"
    ruled = found["metrics"]["NDCG@10"]
    assert ruled["baseline"] == ruled["ours"]
    assert ruled["low"] == ruled["high"] == 0.0


def after(container, name):
    return container["args"][container["args"].index(name) + 1]


def executor_class(container):
    return after(container, "--executor_class_path")


def artifact(kind, uri, name):
    schema = f"title: tfx.{kind}\ntype: object\n"
    if kind == "Examples":
        schema += "properties:\n  split_names:\n    type: string\n"
    return {"name": name, "uri": str(uri), "type": {"instanceSchema": schema}}


def lists_of(artifacts):
    return {name: {"artifacts": [one]} for name, one in artifacts.items()}


def test_the_pipeline_takes_the_configuration_of_a_run(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("[training]\nepochs = 5\nloss = {class = 'SmoothTopKLoss', k = 2}\n")
    options = ["--image=i", "--data=d", "--root=r", "--serving=s", f"--config={config}"]
    path = tmp_path / "pipeline.json"
    done = CliRunner().invoke(
        app, ["compile", f"--output={path}", *options, "--patience=3", "--warm-start"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    dag = json.loads(path.read_text())["pipelineSpec"]["root"]["dag"]
    found = json.loads(constant(dag["tasks"]["Trainer"], "custom_config"))
    assert (found["settings"]["epochs"], found["settings"]["patience"]) == (5, 3)
    assert "LatestBlessedModel-model-resolver" in producers(dag["tasks"]["Trainer"])
    assert int(constant(dag["tasks"]["Scaling"], "warm_start")) == 1
    [loss] = found["candidate"]["losses"]
    assert (loss["class_name"], loss["config"]["k"]) == ("SmoothTopKLoss", 2)
    for key, value, message in (
        ("gates.range", "fail", "gates.range must not be 'fail'"),
        ("gates.features.price.domain", "fail", "gates.domain must not be 'fail'"),
        ("clicks.position", "place", "clicks.position must be unset"),
    ):
        done = CliRunner().invoke(
            app, ["compile", f"--output={path}", *options, f"--set={key}={value}"]
        )
        assert done.exit_code == 2
        assert message in done.stderr
    options.append("--set=training.loss.class=SmothTopKLoss")
    done = CliRunner().invoke(app, ["compile", f"--output={path}", *options])
    assert done.exit_code == 2
    assert "training.loss.class must be one of SmoothTopKLoss, " in done.stderr
