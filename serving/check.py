"""Whether a deployment folder would serve: read offline, rule by rule."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from google.protobuf import message, text_format

from serving import config_messages, model_config, tls, versions, warmup
from serving.status import ServingError
from tfrank_sel import export

# Rules of a configuration: each yields the field, and what is required of it.
Rules = Callable[[Any], Iterator[tuple[str, str]]]


@dataclasses.dataclass(frozen=True)
class Fault:
    """What would not serve.

    Args:
        file: Where it stands.
        field: What in there, or empty for the file as a whole.
        rule: What is required, and what was received.
    """

    file: pathlib.Path
    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.file}: {self.field}{': ' if self.field else ''}{self.rule}"


def check(folder: pathlib.Path, root: pathlib.Path = pathlib.Path("/")) -> Iterator[Fault]:
    """Reads a deployment folder as a server would, and everything that it names.

    `models.config` must be there; `batching.config`, `monitoring.config` and `ssl.config` may. The
    versions that a policy names must hold a SavedModel that a stock server runs, and warm-up
    requests that can be read.

    Args:
        folder: The folder.
        root: Folder that will be the server's `/`: `base_path` is looked for below it.

    Yields:
        The faults, file by file.
    """
    path = folder / "models.config"
    try:
        models = model_config.read(path)
    except ServingError as error:
        yield Fault(path, "", str(error))
        models = []
    for model in models:
        yield from _model(path, model, root)
    for name, kind, rules in (
        ("batching.config", config_messages.BatchingParameters, _batching),
        ("monitoring.config", config_messages.MonitoringConfig, _monitoring),
        ("ssl.config", config_messages.SSLConfig, tls.broken_rules),
    ):
        if (folder / name).exists():
            yield from _config(folder / name, kind(), rules)


def _model(
    path: pathlib.Path, model: model_config.ModelConfig, root: pathlib.Path
) -> Iterator[Fault]:
    base_path = root / model.base_path.relative_to("/")
    try:
        found = versions.find(base_path)
    except OSError as error:
        rule = f"must be a folder of versions: {error.strerror}. Received: {base_path}"
        yield Fault(path, f"base_path of {model.name}", rule)
        return
    aspired = model.policy.aspired(found)
    if not aspired:
        rule = f"must name a version that is there. Received: {model.policy}, found {sorted(found)}"
        yield Fault(path, f"model_version_policy of {model.name}", rule)
    for label, version in model.labels.items():
        if version not in aspired:
            rule = f"must name a version that is served. Received: {version}, served {aspired}"
            yield Fault(path, f"version_labels[{label}] of {model.name}", rule)
    for version in aspired:
        yield from _version(found[version])
        batching = found[version] / "batching_params.pbtxt"
        if batching.exists():
            yield from _config(batching, config_messages.BatchingParameters(), _batching)


def _version(folder: pathlib.Path) -> Iterator[Fault]:
    graph, requests = folder / "saved_model.pb", folder / warmup.PATH
    try:
        export.check_servable(folder)
    except (OSError, ValueError, message.DecodeError) as error:
        yield Fault(graph, "", f"must be a SavedModel that a stock server runs. Received: {error}")
    try:
        for _ in warmup.read(requests):
            pass
    except (ServingError, tf.errors.OpError) as error:
        yield Fault(requests, "", f"must be a TFRecord of PredictionLog. Received: {error}")


def _config(path: pathlib.Path, proto: Any, rules: Rules) -> Iterator[Fault]:
    kind = proto.DESCRIPTOR.name
    try:
        text_format.Parse(path.read_text(), proto)
    except (OSError, text_format.ParseError) as error:
        yield Fault(path, "", f"must be a {kind} in text format. Received: {error}")
        return
    for field, rule in rules(proto):
        yield Fault(path, field, rule)


def _batching(proto: Any) -> Iterator[tuple[str, str]]:
    for field in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
        if proto.HasField(field) and getattr(proto, field).value < 1:
            yield field, f"must be positive. Received: {getattr(proto, field).value}"
    if proto.batch_timeout_micros.value < 0:
        received = proto.batch_timeout_micros.value
        yield "batch_timeout_micros", f"must not be negative. Received: {received}"
    sizes = list(proto.allowed_batch_sizes)
    if any(a >= b for a, b in itertools.pairwise(sizes)):
        yield "allowed_batch_sizes", f"must increase. Received: {sizes}"
    largest = proto.max_batch_size.value if proto.HasField("max_batch_size") else 1000
    if proto.enable_large_batch_splitting.value and proto.HasField("max_execution_batch_size"):
        largest = proto.max_execution_batch_size.value
    if sizes and sizes[-1] != largest:
        rule = f"must end with the largest batch, {largest}. Received: {sizes}"
        yield "allowed_batch_sizes", rule


def _monitoring(proto: Any) -> Iterator[tuple[str, str]]:
    path = proto.prometheus_config.path
    if path and not path.startswith("/"):
        yield "prometheus_config.path", f"must start with `/`. Received: {path}"
