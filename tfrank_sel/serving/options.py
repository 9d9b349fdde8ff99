"""Options of a server: annotated fields of dataclasses, which are also options of a command."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from tfrank_sel import commandline


@dataclasses.dataclass(frozen=True)
class Following:
    """How a server follows its models; the help of the options describes the fields."""

    config_file: Annotated[
        str | None,
        typer.Option(
            "--model-config-file", help="Path or URL of a `models.config`, instead of one model."
        ),
    ] = None
    config_poll_seconds: Annotated[
        float,
        typer.Option(
            "--model-config-file-poll-wait-seconds",
            min=0.0,
            help="Seconds between reads of that file; 0 to read it once.",
        ),
    ] = 0.0
    allow_labels_for_unavailable: Annotated[
        bool,
        typer.Option(
            "--allow-version-labels-for-unavailable-models/"
            "--no-allow-version-labels-for-unavailable-models",
            help="Accept a new label for a version that is not served yet.",
        ),
    ] = False
    poll_seconds: Annotated[
        float,
        typer.Option(
            "--file-system-poll-wait-seconds",
            min=0.01,
            help="Seconds between checks for new versions.",
        ),
    ] = 1.0


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each annotated field of its parameters that are dataclasses."""
    groups: dict[str, commandline.Group] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind: Any = parameter.annotation
        if dataclasses.is_dataclass(kind):
            # Of the constructor itself, since `Checked` takes any argument in `__new__`.
            fields = inspect.signature(vars(kind)["__init__"]).parameters.values()
            own = [x for x in fields if _is_option(x)]
            groups[parameter.name] = own, parameter.annotation
    return commandline.grouped(command, groups)


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(x, OptionInfo) for x in typing.get_args(parameter.annotation))
