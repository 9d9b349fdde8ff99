"""Release: comparison of a model with the served one, and publication."""

import contextlib
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tfrank_sel import data, export
from tfrank_sel.data import leases, stores
from tfrank_sel.pipelines import folders
from tfrank_sel.pipelines.configuration.release import Serving
from tfrank_sel.pipelines.evaluation.evaluation import Scorer

STABLE, CANARY = "stable", "canary"
CONFIGURATION = "models.config"
TOP = 10
_TRIED = 200  # number of lists for timing


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The outcome of a release.

    Args:
        blessed: Whether the model may be served.
        reasons: Reasons why it may not.
        saved_model: Folder or URL of the published version; None if it is not published.
        champion: Folder or URL of the champion that it was compared with, if there is one.
        digest: Digest of the published export.
        beside: Latency in milliseconds of both models and, with a champion, `top_10_agreement`.
    """

    blessed: bool
    reasons: list[str]
    saved_model: str | None
    champion: str | None
    digest: str
    beside: dict[str, Any]

    @property
    def version(self) -> int | None:
        """The published version."""
        return None if self.saved_model is None else int(Path(self.saved_model).name)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Reads `pushed.json`; None if it does not exist."""
        path = folder / "pushed.json"
        return cls(**json.loads(path.read_text())) if path.is_file() else None

    def write(self, folder: Path) -> None:
        """Writes `pushed.json`."""
        folders.write_json(folder / "pushed.json", dataclasses.asdict(self))

    def told(self) -> Iterator[str]:
        """Returns the outcome as lines of text."""
        if self.champion is not None:
            agreement = self.beside["top_10_agreement"]
            yield f"beside {self.champion}: {agreement:.0%} of the first {TOP} items agree"
        times = {name: x["p99"] for name, x in self.beside["milliseconds"].items()}
        yield ", ".join(f"{name}: {x:.1f} ms per list (p99)" for name, x in times.items())
        yield self.saved_model or "not published"


def served(base: str, configuration: str) -> str | None:
    """Returns the version that a server uses by default.

    Args:
        base: Folder or URL of the versions of a model.
        configuration: The `models.config` that the server reads; it need not exist.

    Returns:
        The folder or URL of the version labelled `stable`, if there is one, else of the latest;
        None if there is no version.

    Raises:
        tfrank_sel.data.InputError: If a store cannot be reached or denies access, or
            `configuration` is malformed.
    """
    entry = _entry(_read(configuration), Path(base).name)
    found = export.versions(base)
    if entry is not None and STABLE in entry.version_labels:
        version = entry.version_labels[STABLE]
    else:
        version = max(found, default=-1)
    return str(found[version]) if version in found else None


def publish(saved_model: Path, root: str, serving: Serving, published: str | None = None) -> str:
    """Publishes a version of a model, and updates `models.config` for the server.

    Without labels, a server uses the latest version. The first canary creates labels: `stable` for
    the version that was served, and `canary` for the new one. From then on, a version that is
    published without `canary` gets the label `stable`.

    Args:
        saved_model: Folder of the SavedModel.
        root: Folder or URL of all served models. In a store, only one process at a time can
            publish.
        serving: Name of the model, its version, and whether it is a canary.
        published: Its version, if it was published before: then only its label changes.

    Returns:
        The folder of the version, or its URL.

    Raises:
        tfrank_sel.data.InputError: If the version exists, or a canary is requested but no version
            is served; if a store cannot be reached or denies access, or another process is
            publishing there.
    """
    base, path = stores.join(root, serving.model_name), stores.join(root, CONFIGURATION)
    try:
        with leases.held(root) if stores.is_remote(root) else contextlib.nullcontext():
            before = served(base, path)
            if serving.canary and before in (None, published):
                reason = "a canary requires another version that is served"
                raise data.InputError(base, f"{reason}. Received: {before}")
            place = published or str(export.publish(saved_model, base, serving.version))
            _tell(path, base, serving, int(Path(place).name), before)
    except FileExistsError as error:
        raise data.InputError(base, f"{error}") from error
    return place


def _tell(path: str, base: str, serving: Serving, version: int, before: str | None) -> None:
    """Adds a version to `models.config`."""
    configuration = _read(path)
    entry = _entry(configuration, serving.model_name)
    if entry is None:
        entry = configuration.model_config_list.config.add(name=serving.model_name)
    entry.base_path = base if stores.is_remote(base) else os.path.abspath(base)
    entry.model_platform = "tensorflow"
    labels = dict(entry.version_labels)
    entry.ClearField("version_labels")
    entry.ClearField("model_version_policy")
    if serving.canary:
        assert before is not None
        entry.version_labels.update({STABLE: int(Path(before).name), CANARY: version})
    elif labels:
        entry.version_labels[STABLE] = version
    versions = sorted(set(entry.version_labels.values()))
    entry.model_version_policy.specific.versions.extend(versions)
    if not versions:
        entry.ClearField("model_version_policy")
    folders.write_text(path, text_format.MessageToString(configuration))


def beside(
    ours: Scorer, champion: Scorer | None, lists: Iterable[dict[str, tf.Tensor]]
) -> dict[str, Any]:
    """Measures the latency of two models, and the agreement of their first items.

    Args:
        ours: Scoring function of our model.
        champion: Scoring function of the other model.
        lists: Inputs of the models, one list at a time; the first 200 are used.

    Returns:
        `milliseconds`, with the median `p50` and the 99th percentile `p99` of each model, and
        `top_10_agreement`, the mean share of our first 10 items that are also among the first 10 of
        the other model.
    """
    models = {"ours": ours, **({"champion": champion} if champion else {})}
    times: dict[str, list[float]] = {name: [] for name in models}
    agreements = []
    tried = list(itertools.islice(lists, _TRIED))
    for model in models.values():  # warms up: allocates memory and compiles
        model(tried[0])
    for one in tried:
        tops = []
        for name, model in models.items():
            began = time.perf_counter()
            scores = model(one).numpy()[0]
            times[name].append(1e3 * (time.perf_counter() - began))
            tops.append(set(np.argsort(-scores, kind="stable")[:TOP].tolist()))
        agreements.append(len(tops[0] & tops[-1]) / len(tops[0]))
    found: dict[str, Any] = {
        "milliseconds": {
            name: dict(zip(("p50", "p99"), np.percentile(x, [50, 99]).tolist(), strict=True))
            for name, x in times.items()
        }
    }
    return {**found, "top_10_agreement": float(np.mean(agreements))} if champion else found


def _read(path: str) -> model_server_config_pb2.ModelServerConfig:
    found = model_server_config_pb2.ModelServerConfig()
    if stores.is_file(path):
        try:
            text_format.Parse(stores.read_text(path), found)
        except text_format.ParseError as error:
            raise data.InputError(
                path, f"expected a ModelServerConfig. Received: {error}"
            ) from error
    return found


def _entry(configuration: model_server_config_pb2.ModelServerConfig, name: str) -> Any:
    entries = configuration.model_config_list.config
    return next((entry for entry in entries if entry.name == name), None)
