"""Registry of runs: summaries of finished and unfinished runs, read from their JSON files."""

import dataclasses
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.run.steps import STEPS

METRIC = "NDCG@10"


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """Summary of a run.

    Args:
        folder: Folder of the run.
        made: Time of its last step, as ISO 8601; None if there is none.
        losses: Names of the losses of our model; empty before the training.
        metric: The comparison of NDCG@10 on the test split: `ours`, `baseline`, and the interval
            `low` to `high` of their difference; None before the evaluation.
        against: Description of `baseline`.
        blessed: Whether the model may be served; None if not evaluated yet.
        version: The published version, if any.
        unfinished: The steps that are not done.
        damage: The file of it that is damaged, and how; the others are then unknown.
    """

    folder: Path
    made: str | None = None
    losses: Sequence[str] = ()
    metric: Mapping[str, float] | None = None
    against: str | None = None
    blessed: bool | None = None
    version: str | None = None
    unfinished: Sequence[str] = ()
    damage: str | None = None


def runs(folder: Path) -> Iterator[Path]:
    """Yields the folders of runs in a folder, at any depth, except those of studies.

    Raises:
        tfrank_sel.data.InputError: If it is not a folder.
    """
    if not folder.is_dir():
        raise rejection(str(folder), "expected a folder", "none")
    for path, names, files in os.walk(folder):
        names.sort()
        if folders.CONFIGURATION in files:
            names.clear()
            if any((Path(path) / step).is_dir() for step in STEPS):
                yield Path(path)


def summary(folder: Path) -> RunSummary:
    """Returns the summary of a run from its folder."""
    try:
        written = manifests.read_manifests(folder, STEPS)
        for step in ("train", "evaluate", "push"):
            if step in written:
                written[step].check()
        training = _read(folder / "train" / "training.json")
        metrics = _read(folder / "evaluate" / "metrics.json")
        pushed = _read(folder / "push" / "pushed.json") or {}
    except InputError as error:
        return RunSummary(folder, damage=str(error))
    published = pushed.get("saved_model")
    return RunSummary(
        folder,
        max((step.made for step in written.values()), default=None),
        [fit["loss"] for fit in fits(training)],
        metrics and metrics["metrics"][METRIC],
        metrics and metrics["against"],
        pushed.get("blessed"),
        published and Path(published).name,
        [step for step in STEPS if step not in written],
    )


def fits(training: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns the training results of each loss of our model, from `training.json`."""
    return training["ours"]["fits"] if training else []


def read_fits(folder: Path) -> list[dict[str, Any]]:
    """Returns `fits` of a run.

    Raises:
        tfrank_sel.data.InputError: If it is not a run, or not trained.
    """
    for step in manifests.read_manifests(folder, ["train"]).values():
        step.check()
    training = _read(folder / "train" / "training.json")
    if training is None:
        reason = "expected the folder of a run whose model is trained"
        raise rejection(str(folder), reason, "no train/training.json")
    return fits(training)


def differing_keys(a: Path, b: Path) -> list[tuple[str, Any, Any]]:
    """Returns the keys with different values in the configurations of two runs, and both values.

    The section `search` is ignored, because a run does not depend on it.

    Raises:
        tfrank_sel.data.InputError: If a folder is not a run.
    """
    first, second = map(_configuration, (a, b))
    return [
        difference
        for key in dict.fromkeys((*first, *second))
        if key != "search"
        for difference in manifests.differences(key, first.get(key), second.get(key))
    ]


def _configuration(folder: Path) -> dict[str, Any]:
    path = folder / folders.CONFIGURATION
    try:
        return dict(without_secrets(tomllib.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise rejection(str(folder), "expected the folder of a run", error) from error


def _read(path: Path) -> Any:
    return folders.read_json(path) if path.is_file() else None
