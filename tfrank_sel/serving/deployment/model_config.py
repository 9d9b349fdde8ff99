"""Configuration of the served models: their versions, and labels of versions."""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tfrank_sel.arguments import Checked, Count, StrPath
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.errors import refusal
from tfrank_sel.serving.status import Code, ServingError, invalid

# Anyone who can reach `ModelService` can name a folder: no scheme that asks servers by address.
SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "memory")


@dataclasses.dataclass(frozen=True)
class Latest(Checked):
    """Serves the versions with the largest numbers.

    Args:
        num_versions: Number of versions; positive.

    Raises:
        ValueError: If `num_versions` is not positive.
    """

    num_versions: Count = 1

    def aspired_versions(self, versions: Collection[int]) -> list[int]:
        """Returns the versions to serve among those found, latest first."""
        return sorted(versions, reverse=True)[: self.num_versions]


@dataclasses.dataclass(frozen=True)
class AllVersions:
    """Serves every version."""

    def aspired_versions(self, versions: Collection[int]) -> list[int]:
        """Returns the versions to serve among those found, latest first."""
        return sorted(versions, reverse=True)


@dataclasses.dataclass(frozen=True)
class Specific(Checked):
    """Serves the given versions.

    Args:
        versions: Their numbers; at least one.

    Raises:
        ValueError: If there is none.
    """

    versions: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", tuple(self.versions))
        if not self.versions:
            raise refusal("`versions` must name at least one version", "none")

    def aspired_versions(self, versions: Collection[int]) -> list[int]:
        """Returns the versions to serve among those found, latest first."""
        return sorted(set(versions) & set(self.versions), reverse=True)


@dataclasses.dataclass(frozen=True)
class ModelConfig(Checked):
    """A model to serve.

    Args:
        name: Name of the model in requests.
        base_path: Folder of the versions, whose names are integers. A `str` is the URL of such a
            folder in a store.
        policy: Choice of the versions to serve.
        labels: Version of each label.
        platform: Platform of the model; must be "tensorflow".
        max_load_retries: Number of retries if a version does not load.
        load_retry_seconds: Time between retries.

    Raises:
        ValueError: If `name` is empty, or `base_path` is a `str` but not the URL of a store.
    """

    name: str
    base_path: pathlib.Path | str
    policy: Latest | AllVersions | Specific = Latest()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)
    platform: str = "tensorflow"
    max_load_retries: int = 5
    load_retry_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("`name` must not be empty")
        if isinstance(self.base_path, str) and not stores.is_remote(self.base_path):
            raise refusal(
                "`base_path` must be a Path, or the URL of a folder in a store",
                repr(self.base_path),
            )


def missing_versions(
    policy: Latest | AllVersions | Specific, versions: Collection[int]
) -> list[int]:
    """Returns the versions that a policy names, and that are not among those found."""
    return sorted({*policy.versions} - {*versions}) if isinstance(policy, Specific) else []


def check_platform(config: ModelConfig) -> None:
    """Raises a ServingError, INVALID_ARGUMENT, for a model of another platform than TensorFlow."""
    if config.platform != "tensorflow":
        raise invalid(f"model_platform of model {config.name} must be tensorflow", config.platform)


def locate(base_path: str) -> pathlib.Path | str:
    """Returns the folder of a path; the URL of one in a store as it is.

    Raises:
        ServingError: INVALID_ARGUMENT for a scheme that is not one of `SCHEMES`, or a NUL.
    """
    scheme, _, rest = base_path.partition("://")
    if stores.is_remote(base_path) and (scheme not in SCHEMES or "::" in rest):
        schemes = ", ".join(SCHEMES)
        raise invalid(f"base_path must be a local folder, or a URL of {schemes}", base_path)
    if "\0" in base_path:
        raise invalid("base_path must be a path without NUL", repr(base_path))
    return base_path.rstrip("/") if stores.is_remote(base_path) else pathlib.Path(base_path)


def of_proto(proto: model_server_config_pb2.ModelServerConfig) -> list[ModelConfig]:
    """Reads a server's configuration.

    Args:
        proto: The configuration; it must be a list of models.

    Returns:
        Its models.

    Raises:
        ServingError: INVALID_ARGUMENT if it holds no list of models, or one without a name, with a
            relative path, or named twice.
    """
    if proto.WhichOneof("config") != "model_config_list":
        kind = proto.WhichOneof("config") or "none"
        raise invalid("Only ModelConfigList is currently supported", kind)
    models: dict[str, ModelConfig] = {}
    for entry in proto.model_config_list.config:
        if not entry.name:
            raise invalid("Expected a model to have a name", " ".join(str(entry).split()))
        if entry.name in models:
            raise invalid(f"Illegal to list model {entry.name} multiple times in config list")
        base_path = locate(entry.base_path)
        if isinstance(base_path, pathlib.Path) and not base_path.is_absolute():
            raise invalid(
                f"Expected model {entry.name} to have an absolute path or URI; got base_path()="
                f"{entry.base_path}"
            )
        platform = entry.model_platform
        if entry.model_type == model_server_config_pb2.TENSORFLOW:  # the former name of the field
            platform = "tensorflow"
        if not platform:
            raise invalid(f"Expected model {entry.name} to have a model_platform", "none")
        models[entry.name] = ModelConfig(
            entry.name,
            base_path,
            _policy(entry),
            dict(entry.version_labels),
            platform,
        )
    return list(models.values())


def parse_file(path: StrPath, kind: Callable[[], Any]) -> Any:
    """Reads a message without checking its values.

    Args:
        path: The file, or its URL.
        kind: Class of the message in it.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND if the file cannot be read, INVALID_ARGUMENT if it holds no such
            message. The error does not name the file.
    """
    message = kind()
    try:
        text_format.Parse(stores.read_text(path), message)
    except InputError as error:
        raise ServingError(Code.NOT_FOUND, error.reason) from error
    except OSError as error:
        raise ServingError(Code.NOT_FOUND, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        name = message.DESCRIPTOR.name
        article = "an" if name[0] == "S" else "a"
        raise invalid(f"must be {article} {name} in text format", error) from error
    return message


def read(path: StrPath) -> list[ModelConfig]:
    """Reads a `models.config` file, a `ModelServerConfig` in text format.

    Args:
        path: The file, or its URL.

    Returns:
        Its models.

    Raises:
        ServingError: NOT_FOUND if it cannot be read, INVALID_ARGUMENT if it is not one.
    """
    try:
        return of_proto(parse_file(path, model_server_config_pb2.ModelServerConfig))
    except ServingError as error:
        raise ServingError(error.code, f"{path}: {error}") from error


def _policy(entry: model_server_config_pb2.ModelConfig) -> Latest | AllVersions | Specific:
    policy = entry.model_version_policy
    chosen = policy.WhichOneof("policy_choice")
    try:
        if chosen == "all":
            return AllVersions()
        if chosen == "specific":
            return Specific(policy.specific.versions)
        return Latest(policy.latest.num_versions or 1)
    except ValueError as error:
        raise invalid(f"model_version_policy of model {entry.name}: {error}") from error
