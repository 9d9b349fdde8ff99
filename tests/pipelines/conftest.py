"""A run, and records of lists, that several files of tests look at."""

import types

import pytest

from tests.pipelines import second_run
from tests.pipelines.test_main import invoke, small_set
from tfrank_sel import roads
from tfrank_sel.data import letor
from tfrank_sel.pipelines.ingestion import ingest
from tfrank_sel.pipelines.ingestion.inputs import Source


@pytest.fixture(scope="session")
def finished(shared):
    """The folder of a small run of the default candidate, what it printed, and the keys that each
    of its steps read.
    """

    def make(folder):
        options = ["--epochs", "2", "--batch-size", "8"]
        options += ["--set", f"export.onnx={str(roads.exists('onnx')).lower()}"]
        with second_run.recorded() as reads:
            result = invoke(small_set(folder), folder / "out", *options)
        assert result.exit_code == 0, (result.output, result.exception)
        of_steps = {step: sorted(keys) for step, keys in reads.items()}
        return {"stdout": result.stdout, "stderr": result.stderr, "reads": of_steps}

    folder, told = shared("run", make)
    return folder / "out", types.SimpleNamespace(**told)


@pytest.fixture(scope="session")
def tracked(tmp_path_factory):
    """The folder of a small run of one loss that is logged by MLflow, in the folder above it."""
    folder = tmp_path_factory.mktemp("tracked")
    output = folder / "out"
    options = ["--epochs", "2", "--batch-size", "8"]
    sets = (
        "training.loss.class=LambdaLoss",
        "model.hidden_units=[4]",
        f"tracking.mlflow=sqlite:///{folder}/mlflow.db",
        "serving.description=Ranks the offers | of a test.",
    )
    options += [part for set in sets for part in ("--set", set)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where MLflow keeps artifacts
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        result = invoke(small_set(folder), output, *options)
    assert result.exit_code == 0, (result.output, result.exception)
    return output


@pytest.fixture(scope="module")
def shards(tmp_path_factory, lists):
    """The records of the lists of a file of tests, as a training split."""
    folder = tmp_path_factory.mktemp("shards")
    letor.write(folder / "lists.txt", lists)
    inputs = ingest.Inputs([Source(str(folder / "lists.txt"), "train")])
    return ingest.ingest(inputs, inputs.schema(), folder).shards["train"]
