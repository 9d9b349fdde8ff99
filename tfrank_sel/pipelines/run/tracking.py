"""Tracking of runs by MLflow: settings, metrics, learning curves and pages."""

import datetime
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrank_sel import artefacts
from tfrank_sel.data.rejections import rejection
from tfrank_sel.export.saved_model import CARD
from tfrank_sel.pipelines.configuration import Configuration, load, text
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.run.plan import TRACKED, read_tracking

try:
    import mlflow
except ImportError as error:
    raise ImportError("needs mlflow: pip install 'tfrank_sel[mlflow]'") from error
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

_MOST = 100  # parameters or metrics per call
# Number of characters that MLflow accepts in a parameter.
_LONGEST = 6000


def log(configuration: Configuration, output: Path, state: str) -> str:
    """Logs a finished run, in its earlier MLflow run or in a new one.

    It logs the keys of the configuration as parameters; the metrics of the model and the baseline
    on the test split, and the interval of the difference; loss and metrics of each epoch, with the
    epoch as the step; the blessing and the published version as tags; and the report, the
    configuration and the model card as artifacts. MLflow cannot change a parameter, so a run with a
    changed configuration gets a new MLflow run. A run whose logging was interrupted is completed.

    Args:
        configuration: The configuration of the run; `tracking.mlflow` is set.
        output: Folder of the run, whose steps are done. Its file `tracking.json` stores the
            identifier of the MLflow run.
        state: Digest of the run, which `tracking.json` stores once all is logged.

    Returns:
        A description of the MLflow run.

    Raises:
        tfrank_sel.data.InputError: If logging to the tracking URI fails.
    """
    uri = configuration.absolute().tracking.mlflow
    try:
        run = _log(configuration, output, uri)
        folders.write_json(output / TRACKED, {"uri": uri, "run_id": run, "state": state})
    except MlflowException as error:
        raise rejection(
            str(uri), "logging to MLflow failed; run again to log the run", error
        ) from error
    return f"run {run} of {artefacts.address(str(uri))}"


def _log(configuration: Configuration, output: Path, uri: str | None) -> str:
    client = mlflow.MlflowClient(tracking_uri=uri)
    parameters = dict(_flat("", _values(configuration)))
    name = configuration.tracking.experiment
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    run = _existing_run(client, output, uri, experiment, parameters)
    if run is None:
        run = client.create_run(experiment, run_name=output.absolute().name).info.run_id
        # stored first: it is the run of this folder even if later calls fail
        folders.write_json(output / TRACKED, {"uri": uri, "run_id": run})
    for part in _parts([Param(name, value) for name, value in parameters.items()]):
        client.log_batch(run, params=part)
    for part in _parts([*_metrics(output), *_epochs(output)]):
        client.log_batch(run, metrics=part)
    client.log_batch(run, tags=list(_tags(output)))
    card = output / "export" / "saved_model" / CARD
    values = without_secrets(load(output / folders.CONFIGURATION).model_dump(by_alias=True))
    with tempfile.TemporaryDirectory() as aside:
        shown = Path(aside, folders.CONFIGURATION)
        shown.write_text(text(Configuration.model_validate(values)), encoding="utf-8")
        for path in (output / "report.html", shown, card):
            client.log_artifact(run, str(path))
    client.set_terminated(run)
    return run


def _existing_run(
    client: mlflow.MlflowClient,
    output: Path,
    uri: str | None,
    experiment: str,
    parameters: Mapping[str, str],
) -> str | None:
    """The MLflow run of the folder, if it exists with its experiment and parameters."""
    before = read_tracking(output)
    if before.get("uri") != uri:
        return None
    try:
        run = client.get_run(before["run_id"])
    except MlflowException:
        # The run was deleted permanently.
        return None
    if run.info.lifecycle_stage != "active":  # it was deleted, and takes no values
        return None
    is_left, lacking = run.info.status == "RUNNING", parameters.items() - run.data.params.items()
    is_part = run.data.params.items() <= parameters.items() and run.info.experiment_id == experiment
    if is_part and (is_left or not lacking):  # what was interrupted is completed
        return before["run_id"]
    if is_left:
        client.set_terminated(before["run_id"], "KILLED")
    return None


def _values(configuration: Configuration) -> dict[str, Any]:
    values = without_secrets(configuration.absolute().model_dump(mode="json", by_alias=True))
    return {name: x for name, x in values.items() if name not in ("search", "tracking")}


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """The flat parameters of a configuration, one per value or list."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}" if key else name, inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield _mlflow_name(key), text[:_LONGEST]


def _mlflow_name(text: str) -> str:
    """The name with characters that MLflow allows: letters, digits and `_-. :/`."""
    name = text.replace("@", "_at_")
    return "".join(x if x.isalnum() or x in "_-. :/" else "_" for x in name)[:250]


def _metrics(output: Path) -> Iterator[Metric]:
    """The metrics on the test split, at the time of the evaluation."""
    figures = folders.read_json(output / "evaluate" / "metrics.json")
    made = _step_time(output, "evaluate")
    for name, compared in figures["metrics"].items():
        for kind in ("ours", "baseline", "low", "high"):
            key = name if kind == "ours" else f"{name}.{kind}"
            yield Metric(_mlflow_name(key), compared[kind], made, 0)


def _epochs(output: Path) -> Iterator[Metric]:
    """Loss and metrics of each epoch, at the time of the training."""
    figures = folders.read_json(output / "train" / "training.json")
    made = _step_time(output, "train")
    for name, trained in figures.items():
        for fit in trained["fits"]:
            for measure, values in fit["history"].items():
                key = _mlflow_name(f"{name}.{fit['loss']}.{measure}")
                for epoch, value in enumerate(values, start=1):
                    yield Metric(key, value, made, epoch)


def _step_time(output: Path, step: str) -> int:
    """Time of a step, in milliseconds, so that a value that is logged twice counts once."""
    made = manifests.read_manifests(output, [step])[step].made
    return int(1000 * datetime.datetime.fromisoformat(made).timestamp())


def _tags(output: Path) -> Iterator[RunTag]:
    pushed = folders.read_json(output / "push" / "pushed.json")
    target = pushed["saved_model"]
    yield RunTag("blessed", json.dumps(pushed["blessed"]))
    yield RunTag("version", "" if target is None else Path(target).name)
    yield RunTag("folder", str(output.absolute()))


def _parts(entities: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(entities), _MOST):
        yield list(entities[start : start + _MOST])
