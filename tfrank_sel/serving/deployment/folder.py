"""Deployment folder of a model: image, proxy, monitoring, Kubernetes and KServe."""

import dataclasses
import importlib.resources
import os
import pathlib
import re
import shutil
import string
import textwrap
from collections.abc import Iterator
from importlib.resources.abc import Traversable

from tfrank_sel.data import stores
from tfrank_sel.errors import received, refusal
from tfrank_sel.locks import atomic_path
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.check import check
from tfrank_sel.serving.engine import versions
from tfrank_sel.serving.status import ServingError

# Valid names and labels in Kubernetes, with room for the suffixes of pods.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,46}[a-z0-9])?")

_ROOT = re.compile(r"/[\w./-]+")  # what needs no quotes in the files
_SERVER = "2.20.0"  # tag of an image without a model
# A line that is only for images with models, or for servers that poll a disk or a store.
_ONLY = re.compile(r"^(.*?) +# @@only (\w+)\n", re.M)

# Words that YAML reads as Booleans or null.
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class _Template(string.Template):
    """Text with placeholders `@@name`, because `$` and `{{` are part of the syntax of the files."""

    delimiter = "@@"


def write(
    output: pathlib.Path,
    model_name: str,
    saved_model_base: pathlib.Path | str,
    *,
    copy_models: bool = False,
) -> None:
    """Writes the deployment folder of a model atomically.

    By default servers poll `models.config`, next to `saved_model_base`, and load what is published
    there. With `copy_models` the image holds all versions instead; the latest is served, under the
    label `stable`.

    Args:
        output: The folder, which must be new.
        model_name: Name of the model in requests, of the image and of the Kubernetes objects.
        saved_model_base: Folder of the versions, whose names are integers. A `str` is the URL of
            such a folder in a store.
        copy_models: Whether to copy the versions into the image.

    Raises:
        FileExistsError: If `output` exists.
        ValueError: If `model_name` is not valid in Kubernetes, or if a server rejects the
            folder.
        tfrank_sel.data.InputError: If the store cannot be reached or refuses.
        OSError: If `saved_model_base` cannot be read or `output` not be written.
    """
    if not _NAME.fullmatch(model_name) or model_name in _YAML_WORDS:
        raise refusal(
            "`model_name` must be at most 48 of a-z, 0-9 and inner `-`, start with a letter, and "
            "be no word of YAML",
            repr(model_name),
        )
    if output.exists():
        raise FileExistsError(received("`output` must not exist", output, "which exists"))
    folders = versions.find(saved_model_base)
    if not folders:
        raise refusal("`saved_model_base` must hold a version", saved_model_base)
    base = None if copy_models else _watched_folder(model_name, saved_model_base)
    with atomic_path(output) as folder:
        if base is not None:
            render(folder, model_name, base=base)
        else:
            render(folder, model_name, max(folders))
            models = folder / "models" / model_name
            for version, path in folders.items():
                shutil.copytree(stores.near_folder(path), models / str(version))
            for fault in check(folder, root=folder):
                relative = fault.file.relative_to(folder)
                raise ValueError(str(dataclasses.replace(fault, file=relative)))


def _watched_folder(model_name: str, base: pathlib.Path | str) -> str:
    """Returns a folder or URL of versions, once the `models.config` that servers poll names it."""
    base = base if isinstance(base, str) else base.resolve()
    root = os.path.dirname(base)
    path = stores.join(root, "models.config")
    try:
        models = model_config.read(path)
    except ServingError as error:
        raise ValueError(
            f"{error}; publish a version, or copy the models into the image"
        ) from error
    if not any(model.name == model_name and model.base_path == base for model in models):
        raise refusal(f"{path} must name the model {model_name} in {base}", models)
    if not stores.is_remote(root):
        if not _ROOT.fullmatch(root):
            raise refusal("The folder of models must be a plain path", root)
        for fault in check(pathlib.Path(root)):
            raise ValueError(str(fault))
    return str(base)


def render(
    folder: pathlib.Path, model_name: str, version: int | None = None, base: str | None = None
) -> None:
    """Writes the files of a deployment folder, without the model.

    Args:
        folder: The folder; it is created if it does not exist.
        model_name: As in `write`.
        version: The version to serve, which the image holds. None if servers poll `base`.
        base: Folder or URL of the versions, next to the `models.config` that servers poll; one of
            the model's name in `/srv/models` if None.
    """
    base = base or f"/srv/models/{model_name}"
    root = os.path.dirname(base)
    if version is not None:
        kinds, tag, models = {"image", "closed"}, str(version), "/config/models.config"
    else:
        kinds = {"polled", "store"} if stores.is_remote(root) else {"polled", "disk", "closed"}
        tag, models = _SERVER, stores.join(root, "models.config")
    values = {"model_name": model_name, "tag": tag, "root": root, "models_config": models}
    served = base if version is None else f"/models/{model_name}"
    # a pattern of paths: what may have a meaning in it, or in its quotes, is any character
    values["model_path"] = re.sub(r"[^\w/:-]", ".", served)
    templates = dict(_texts(importlib.resources.files(__package__) / "templates", folder))
    alerts = _Template(templates[folder / "alerts.yml"]).substitute(values)
    values["alerts"] = textwrap.indent(alerts, "  ").strip()
    for target, text in templates.items():
        if version is not None or target.name != "models.config":
            target.parent.mkdir(parents=True, exist_ok=True)
            text = _ONLY.sub(lambda x: f"{x[1]}\n" if x[2] in kinds else "", text)
            target.write_text(_Template(text).substitute(values), encoding="utf-8")


def _texts(templates: Traversable, folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Yields each template of a folder as the file that it becomes, and its text."""
    for entry in templates.iterdir():
        if entry.is_dir():
            yield from _texts(entry, folder / entry.name)
        else:
            yield folder / entry.name, entry.read_text(encoding="utf-8")
