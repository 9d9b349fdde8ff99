"""Deployment folder of a model: image, proxy, monitoring, Kubernetes and KServe."""

import importlib.resources
import pathlib
import re
import shutil
import string
import tempfile
import textwrap

from tfrank_sel.data import stores
from tfrank_sel.serving.deployment.check import check
from tfrank_sel.serving.engine import versions

_TEMPLATES = importlib.resources.files(__package__) / "templates"
# Valid names and labels in Kubernetes, with room for the suffixes of pods.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,46}[a-z0-9])?")

# Words that YAML reads as Booleans or null.
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class _Template(string.Template):
    """Text with placeholders `@@name`, because `$` and `{{` are part of the syntax of the files."""

    delimiter = "@@"


def write(output: pathlib.Path, model_name: str, saved_model_base: pathlib.Path | str) -> None:
    """Writes the deployment folder of a model atomically.

    The folder holds a copy of all versions of the model; the latest is served, under the label
    `stable`.

    Args:
        output: The folder, which must be new.
        model_name: Name of the model in requests, of the image and of the Kubernetes objects.
        saved_model_base: Folder of the versions, whose names are integers. A `str` is the URL of
            such a folder in a store.

    Raises:
        FileExistsError: If `output` exists.
        ValueError: If `model_name` is not valid in Kubernetes, or if a server rejects the
            folder.
        tfrank_sel.data.InputError: If the store cannot be reached or refuses.
        OSError: If `saved_model_base` cannot be read or `output` not be written.
    """
    if not _NAME.fullmatch(model_name) or model_name in _YAML_WORDS:
        raise ValueError(
            "`model_name` must be at most 48 of a-z, 0-9 and inner `-`, start with a letter, and "
            f"be no word of YAML. Received: {model_name!r}"
        )
    if output.exists():
        raise FileExistsError(f"`output` must not exist. Received: {output}, which exists")
    found = versions.find(saved_model_base)
    if not found:
        raise ValueError(f"`saved_model_base` must hold a version. Received: {saved_model_base}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".deployment-", dir=output.parent) as aside:
        folder = pathlib.Path(aside, output.name)
        render(folder, model_name, max(found))
        for version, path in found.items():
            shutil.copytree(stores.near_folder(path), folder / "models" / model_name / str(version))
        for fault in check(folder, root=folder):
            place = fault.file.relative_to(folder)
            raise ValueError(f"{place}: {fault.field} {fault.rule}")
        folder.rename(output)


def render(folder: pathlib.Path, model_name: str, version: int) -> None:
    """Writes the files of a deployment folder, without the model.

    Args:
        folder: The folder; it is created if it does not exist.
        model_name: As in `write`.
        version: The version to serve.
    """
    values = {"model_name": model_name, "version": str(version)}
    with importlib.resources.as_file(_TEMPLATES) as templates:
        alerts = _Template((templates / "alerts.yml").read_text()).substitute(values)
        values["alerts"] = textwrap.indent(alerts, "  ").strip()
        for path in templates.rglob("*"):
            if path.is_file():
                target = folder / path.relative_to(templates)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_Template(path.read_text()).substitute(values))
