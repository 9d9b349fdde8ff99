"""Releases: the versions of a model, and the `models.config` that tells servers which to serve.

A folder of served models, on disk or in a store, holds `models.config` and a folder for each model.
Servers that poll this file follow each release without a restart.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tfrank_sel.data import leases, stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.export import publication

STABLE, CANARY, PREVIOUS = "stable", "canary", "previous"
CONFIGURATION = "models.config"


def served(root: str, model_name: str) -> str | None:
    """Returns the version that a server uses by default.

    Args:
        root: Folder or URL of all served models.
        model_name: Name of the model.

    Returns:
        The folder or URL of the version labelled `stable`, if there is one, else of the latest;
        None if there is no version.

    Raises:
        tfrank_sel.data.InputError: If a store cannot be reached or denies access, or
            `models.config` is malformed.
    """
    labels = _labels(root, model_name)
    found = publication.versions(stores.join(root, model_name))
    version = labels.get(STABLE, max(found, default=-1))
    return str(found[version]) if version in found else None


def publish(
    saved_model: str | os.PathLike[str],
    root: str,
    model_name: str,
    version: int | None = None,
    *,
    canary: bool = False,
    published: int | None = None,
) -> str:
    """Publishes a version of a model, and updates `models.config` for the server.

    Without labels, servers use the latest version. `canary` and `promote` create labels. Then
    exactly the versions with a label are served, and each new version starts as a canary: servers
    refuse to move a label to a version that they have not loaded.

    Args:
        saved_model: Folder of the SavedModel.
        root: Folder or URL of all served models. In a store, only one process at a time can
            publish.
        model_name: Name of the model.
        version: Version to publish; if None, one more than the latest.
        canary: Whether to publish with the label `canary`, beside the `stable` version.
        published: Its version, if it was published before: then only labels change.

    Returns:
        The folder of the version, or its URL.

    Raises:
        tfrank_sel.data.InputError: If the version exists, or the labels do not allow it; if a store
            cannot be reached or denies access, or another process is publishing there.
    """
    base = stores.join(root, model_name)
    with _alone(root, base):
        labels, before = _labels(root, model_name), served(root, model_name)
        current = None if before is None else int(Path(before).name)
        if canary and current in (None, published):
            reason = "a canary requires another version that is served"
            raise InputError(base, f"{reason}. Received: {before}")
        if labels and (published is None or published not in (current, labels.get(CANARY))):
            if not canary:
                reason = "a new version must be a canary first, since the served ones have labels"
                raise InputError(base, f"{reason}. Received: labels {labels}")
            if CANARY in labels:
                reason = "the canary must be promoted or rolled back first"
                raise InputError(base, f"{reason}. Received: labels {labels}")
        if published is None:
            place = str(publication.publish(saved_model, base, version))
        else:
            place = str(publication.versions(base)[published])
        new = int(Path(place).name)
        if canary and current is not None:
            labels = {STABLE: current, CANARY: new}
        elif labels.get(CANARY) == new:
            labels = {STABLE: new, PREVIOUS: labels[STABLE]}
        _tell(root, model_name, labels)
    return place


def promote(root: str, model_name: str) -> int:
    """Makes the canary the stable version. The stable version becomes `previous`, still served.

    Without labels, the version that is served becomes `stable`. Promote a canary only after all
    servers have loaded it.

    Args:
        root: Folder or URL of all served models.
        model_name: Name of the model.

    Returns:
        The version that is now stable.

    Raises:
        tfrank_sel.data.InputError: If there is no version to promote; if a store cannot be reached
            or denies access, or another process is publishing there.
    """
    base = stores.join(root, model_name)
    with _alone(root, base):
        labels, before = _labels(root, model_name), served(root, model_name)
        if CANARY in labels:
            labels = {STABLE: labels[CANARY], PREVIOUS: labels[STABLE]}
        elif not labels and before is not None:
            labels = {STABLE: int(Path(before).name)}
        else:
            raise InputError(base, f"expected a canary to promote. Received: labels {labels}")
        _tell(root, model_name, labels)
    return labels[STABLE]


def roll_back(root: str, model_name: str) -> int:
    """Withdraws the canary or, if there is none, returns to the previous version.

    With labels, only `models.config` changes: the version is kept, and no longer served. Without
    labels, the latest version is renamed as in `tfrank_sel.export.roll_back`.

    Args:
        root: Folder or URL of all served models.
        model_name: Name of the model.

    Returns:
        The version that is now served by default.

    Raises:
        tfrank_sel.data.InputError: If there is no other version to serve; if a store cannot be
            reached or denies access, or another process is publishing there.
    """
    base = stores.join(root, model_name)
    with _alone(root, base):
        labels = _labels(root, model_name)
        if not labels:
            return publication.roll_back(base)
        version = labels.get(STABLE if CANARY in labels else PREVIOUS)
        if version is None:
            reason = "expected a canary or a previous version to roll back"
            raise InputError(base, f"{reason}. Received: labels {labels}")
        _tell(root, model_name, {STABLE: version})
    return version


def remove_old(root: str, model_name: str, keep: int) -> list[int]:
    """Removes all versions except the latest ones and those with a label.

    Args:
        root: Folder or URL of all served models.
        model_name: Name of the model.
        keep: Number of latest versions to keep; positive.

    Returns:
        The removed versions, oldest first.

    Raises:
        tfrank_sel.data.InputError: If `keep` is not positive; if a store cannot be reached or
            denies access, or another process is publishing there.
    """
    base = stores.join(root, model_name)
    with _alone(root, base):
        return publication.remove_old(base, keep, spare=_labels(root, model_name).values())


@contextlib.contextmanager
def _alone(root: str, base: str) -> Iterator[None]:
    """Locks a store for this process, and tells of a publication that cannot be made."""
    try:
        with leases.held(root) if stores.is_remote(root) else contextlib.nullcontext():
            yield
    except InputError:
        raise
    except (FileExistsError, ValueError) as error:
        raise InputError(base, f"{error}") from error


def _tell(root: str, model_name: str, labels: dict[str, int]) -> None:
    """Writes the labels of a model to `models.config`; without labels, its latest is served."""
    configuration = _read(root)
    entry = _entry(configuration, model_name)
    if entry is None:
        entry = configuration.model_config_list.config.add(name=model_name)
    base = stores.join(root, model_name)
    entry.base_path = base if stores.is_remote(base) else os.path.abspath(base)
    entry.model_platform = "tensorflow"
    entry.ClearField("version_labels")
    entry.ClearField("model_version_policy")
    if labels:
        entry.version_labels.update(labels)
        entry.model_version_policy.specific.versions.extend(sorted(labels.values()))
    stores.write_text(stores.join(root, CONFIGURATION), text_format.MessageToString(configuration))


def _labels(root: str, model_name: str) -> dict[str, int]:
    entry = _entry(_read(root), model_name)
    return {} if entry is None else dict(entry.version_labels)


def _read(root: str) -> model_server_config_pb2.ModelServerConfig:
    path, found = stores.join(root, CONFIGURATION), model_server_config_pb2.ModelServerConfig()
    if stores.is_file(path):
        try:
            text_format.Parse(stores.read_text(path), found)
        except (text_format.ParseError, ValueError) as error:
            raise InputError(path, f"expected a ModelServerConfig. Received: {error}") from error
    return found


def _entry(configuration: model_server_config_pb2.ModelServerConfig, model_name: str) -> Any:
    entries = configuration.model_config_list.config
    return next((entry for entry in entries if entry.name == model_name), None)
