"""Offline check of a deployment folder, rule by rule."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from tfrank_sel import export
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.errors import received
from tfrank_sel.export.saved_model import BATCHING
from tfrank_sel.serving.deployment import config, model_config
from tfrank_sel.serving.engine import versions
from tfrank_sel.serving.status import ServingError


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault in a deployment folder.

    Args:
        file: The faulty file.
        field: The faulty field; empty for the whole file.
        rule: The required and the received value.
    """

    file: pathlib.Path
    field: str
    rule: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        # A fault is one line.
        return " ".join(f"{self.file}: {field}{self.rule}".split())


def check(folder: pathlib.Path, root: pathlib.Path = pathlib.Path("/")) -> Iterator[Fault]:
    """Checks a deployment folder, and all files that it refers to.

    `models.config` is required; `batching.config`, `monitoring.config`, `ssl.config` and
    `session.config` are optional. Each version of a policy must be there, have a SavedModel that a
    stock server can run, and valid warm-up requests and `batching_params.pbtxt` if these exist. It
    is loaded as the local server loads it, within the default limits: a server that allows more may
    serve a version with larger warm-up requests.

    Args:
        folder: The folder.
        root: Folder that will be the server's `/`; each `base_path` except a URL is relative to
            it.

    Yields:
        The faults, file by file.
    """
    path = folder / "models.config"
    try:
        models = model_config.of_proto(model_config.parse_file(path, ModelServerConfig))
        for model in models:
            model_config.check_platform(model)
    except ServingError as error:
        yield Fault(path, "", str(error))
        models = []
    for model in models:
        yield from _model(path, model, root)
    for name, kind in (
        ("batching.config", config.BatchingParameters),
        ("monitoring.config", config.MonitoringConfig),
        ("ssl.config", config.SSLConfig),
        ("session.config", config_pb2.ConfigProto),
    ):
        if (folder / name).exists():
            yield from _config(folder / name, kind)


def _model(
    path: pathlib.Path, model: model_config.ModelConfig, root: pathlib.Path
) -> Iterator[Fault]:
    base_path = model.base_path
    if isinstance(base_path, pathlib.Path):
        base_path = root / base_path.relative_to("/")
    try:
        yield from _versions(path, model, base_path)
    except (OSError, InputError) as error:
        reason = error.reason if isinstance(error, InputError) else error.strerror
        rule = received(f"must be a folder of versions: {reason}", base_path)
        yield Fault(path, f"base_path of {model.name}", rule)


def _versions(
    path: pathlib.Path, model: model_config.ModelConfig, base_path: pathlib.Path | str
) -> Iterator[Fault]:
    folders = versions.find(base_path)
    aspired = model.policy.aspired_versions(folders)
    if not aspired or model_config.missing_versions(model.policy, folders):
        received_versions = f"found {sorted(folders)}"
        rule = received("must name a version that is there", model.policy, received_versions)
        yield Fault(path, f"model_version_policy of {model.name}", rule)
    for label, version in model.labels.items():
        if version not in aspired:
            rule = received("must name a version that is served", version, f"served {aspired}")
            yield Fault(path, f"version_labels[{label}] of {model.name}", rule)
    for version in aspired:
        with stores.local_copy(folders[version]) as near:
            yield from _version(pathlib.Path(near), version)
            if (batching := pathlib.Path(near, BATCHING)).exists():
                yield from _config(batching, config.BatchingParameters)


def _version(folder: pathlib.Path, version: int) -> Iterator[Fault]:
    try:
        export.check_servable(folder)
        versions.load_version(folder, version).close()
    except Exception as error:  # of a server, which tells any kind
        yield Fault(folder, "", received("must be a SavedModel that a stock server runs", error))


def _config(path: pathlib.Path, kind: Callable[[], Any]) -> Iterator[Fault]:
    try:
        message = model_config.parse_file(path, kind)
    except ServingError as error:
        yield Fault(path, "", str(error))
        return
    for field, rule in config.faults(message):
        yield Fault(path, field, rule)
