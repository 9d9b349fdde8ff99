"""Local runner of the pipeline, and its outcome."""

import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import absl.logging
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx import v1 as tfx

from tfrank_sel.pipelines import Activity, MetricComparison, Progress

_COMPONENT = re.compile(r"Component (\S+) is (running|finished)\.")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a run of the pipeline.

    Args:
        version: Folder of the pushed version; None if the model did not pass.
        objections: Reasons not to push the model; empty if it passed.
        overall: The model against the baseline on all queries of the split `test`, by metric.
        against: Name of the other model, as in `Evaluation`.
    """

    version: Path | None
    objections: tuple[str, ...]
    overall: Mapping[str, MetricComparison]
    against: str


def run(pipeline: tfx.dsl.Pipeline, metadata: Path, progress: Progress) -> Outcome:
    """Runs the pipeline. TFX and Beam log to standard error.

    Args:
        pipeline: The pipeline; its metadata store is at `metadata`.
        metadata: File of the metadata store.
        progress: Progress display.

    Returns:
        The outcome.
    """
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    # otherwise saving a model would reduce the log level
    absl.logging.set_verbosity(absl.logging.INFO)
    with contextlib.ExitStack() as handlers, contextlib.ExitStack() as steps:
        stream = logging.StreamHandler()
        stream.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
        for handler in (stream, _Shown(progress, steps)):
            root.addHandler(handler)
            handlers.callback(root.removeHandler, handler)
        tfx.orchestration.LocalDagRunner().run(pipeline)
    return outcome(metadata)


class _Shown(logging.Handler):
    """Converts log messages of the runner to steps of a run, each with its last line."""

    def __init__(self, progress: Progress, steps: contextlib.ExitStack) -> None:
        super().__init__()
        self._progress = progress
        self._steps = steps
        self._step: Activity | None = None
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if match := _COMPONENT.fullmatch(message):
            if match[2] == "running":
                self._step = self._steps.enter_context(self._progress.step(match[1]))
                return
            if self._step is not None and self._last:
                self._step.tell(self._last)
            self._steps.close()
            self._step, self._last = None, ""
        elif self._step is not None and record.name.startswith("tfrank_sel.pipelines.tfx"):
            self._last = message
            self._step.show_activity(message)


def outcome(metadata: Path) -> Outcome:
    """Returns the outcome of the latest run, from the file of its metadata store."""
    folder = Path(latest(metadata, "ModelEvaluation").uri)
    evaluation = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    objections = json.loads((folder / "blessing.json").read_text(encoding="utf-8"))["reasons"]
    infra = latest(metadata, "InfraBlessing").custom_properties
    if not infra["blessed"].int_value:
        objections.append(infra["blessing_message"].string_value)
    pushed = latest(metadata, "PushedModel").custom_properties
    version = (
        Path(pushed["pushed_destination"].string_value) if pushed["pushed"].int_value else None
    )
    overall = {name: MetricComparison(**figures) for name, figures in evaluation["metrics"].items()}
    return Outcome(version, tuple(objections), overall, evaluation["against"])


def latest(metadata: Path, kind: str) -> metadata_store_pb2.Artifact:
    """Returns the latest artefact of a kind, such as `ModelBlessing`, from a metadata store."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(metadata)
    artefacts = metadata_store.MetadataStore(config).get_artifacts_by_type(kind)
    return max(artefacts, key=lambda artifact: artifact.id)
