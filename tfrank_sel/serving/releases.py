"""The commands that release versions of a model to all servers of a folder."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tfrank_sel.serving.console import fail, quiet

app = typer.Typer()

Folder = Annotated[
    str, typer.Option(help="Folder or URL of all served models, which holds models.config.")
]
ModelName = Annotated[str, typer.Option(help="Name of the model in the folder and in requests.")]


@app.command()
def publish(
    saved_model: Annotated[str, typer.Argument(help="Folder or URL of the SavedModel.")],
    folder: Folder,
    model_name: ModelName = "ranker",
    version: Annotated[
        int | None, typer.Option(help="Version; one more than the latest if unset.")
    ] = None,
    canary: Annotated[
        bool, typer.Option(help="Publish with the label `canary`, beside the stable version.")
    ] = False,
) -> None:
    """Publish a SavedModel as a version that servers of the folder load."""
    with _release() as release:
        place = release.publish(saved_model, folder, model_name, version, canary=canary)
    print(f"{place} is {'the canary' if canary else 'served'}")


@app.command()
def promote(folder: Folder, model_name: ModelName = "ranker") -> None:
    """Make the canary the stable version; the one before is still served, as `previous`."""
    with _release() as release:
        version = release.promote(folder, model_name)
    print(f"version {version} is stable")


@app.command()
def roll_back(folder: Folder, model_name: ModelName = "ranker") -> None:
    """Withdraw the canary or, if there is none, return to the previous version."""
    with _release() as release:
        version = release.roll_back(folder, model_name)
    print(f"version {version} is served")


@app.command()
def remove_old(
    folder: Folder,
    keep: Annotated[int, typer.Option(min=1, help="Number of latest versions to keep.")],
    model_name: ModelName = "ranker",
) -> None:
    """Remove all versions but the latest ones and those with a label."""
    with _release() as release:
        removed = release.remove_old(folder, model_name, keep)
    print(f"removed: {', '.join(map(str, removed)) or 'none'}")


@contextlib.contextmanager
def _release() -> Iterator[Any]:
    """Imports what a release needs, and tells of what cannot be released."""
    with quiet():
        from tfrank_sel.export import release
    try:
        yield release
    except (OSError, ValueError) as error:
        fail(str(error))
