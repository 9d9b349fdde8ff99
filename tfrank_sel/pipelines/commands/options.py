"""Options of commands for keys of a configuration, made from the fields of its sections."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from pydantic.fields import FieldInfo

from tfrank_sel import commandline
from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.errors import received
from tfrank_sel.pipelines.configuration import Configuration, ConfigurationError, Override, load
from tfrank_sel.pipelines.configuration.section import (
    REPEATED,
    choices,
    is_kind,
    option_name,
    split,
)
from tfrank_sel.pipelines.files import folders

Command = Callable[..., None]
REFUSES = (ConfigurationError, ImportError, InputError)
AFTER = "Pass options of Beam and its runner last, after `--`."


@dataclasses.dataclass(frozen=True)
class Given:
    """The configuration that a command line names.

    Args:
        file: The file; None if there is none.
        overrides: Values of options, which replace those of the file.
        sets: Values of `--set`, which replace those of options.
    """

    file: str | None
    overrides: Sequence[Override]
    sets: Sequence[str]

    @property
    def values(self) -> list[Override]:
        """The values of options and of `--set`."""
        return [*self.overrides, *map(Override.parse, self.sets)]

    def load(self, run: str | Path | None = None, more: Sequence[Override] = ()) -> Configuration:
        """Reads the configuration.

        Args:
            run: Folder or URL of a run, whose configuration is the file if there is no other.
            more: Defaults of keys, as in `configuration.load`.

        Raises:
            ConfigurationError: As `configuration.load`.
        """
        kept = None if run is None else stores.join(run, folders.CONFIGURATION)
        is_there = kept is not None and (stores.is_file(kept) or stores.is_dir(kept))
        return load(self.file or (kept if is_there else None), self.values, more)

    def check_read(self, *read: str) -> None:
        """Raises an error if an option, or `--set`, is of a key that a command does not read.

        Args:
            *read: The keys that it reads.

        Raises:
            ConfigurationError: If there is such an option; the error names it.
        """
        for override in self.values:
            key = ".".join(override.path)
            if not any(f"{key}.".startswith(f"{x}.") for x in read):
                reason = f"is not read by this command, which reads {choices(key, read)}"
                raise ConfigurationError(key, reason, override.origin)


def _as_it_is(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclasses.dataclass(frozen=True)
class Option:
    """An option, or argument, of a command.

    Args:
        key: The key that it replaces.
        name: Name of the parameter.
        type: Type of its value.
        typer: Description of the parameter.
        read: Function from the value to that of the key.
    """

    key: str
    name: str
    type: Any
    typer: Any
    read: Callable[[Any], Any] = _as_it_is

    @classmethod
    def of(cls, key: str, field: FieldInfo) -> Self:
        """Returns the option of a field that was made by `section.option`."""
        section, default = key.partition(".")[0], field.default
        shown = ",".join(map(str, default)) if isinstance(default, list) else default
        described = typer.Option(
            help=field.description,
            show_default=str(shown) if shown else False,
            rich_help_panel=f"Section {section}",
        )
        kind, read = _type(field)
        return cls(key, option_name(key, field), kind, described, read)

    @property
    def parameter(self) -> inspect.Parameter:
        """The parameter of a command; None if it is not given."""
        hint: Any = Annotated[self.type | None, self.typer]
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint
        )

    def override(self, value: Any) -> Override:
        """Returns the override of the key."""
        return Override(self.key, self.read(value), f"--{self.name.replace('_', '-')}")


def keys(*names: str, of: type[Configuration] = Configuration) -> list[Option]:
    """Returns the options of keys.

    Args:
        *names: Keys, or sections for their keys with an option; all sections if there is none.
        of: The configuration.
    """
    fields = {x: field for x, field in of.by_key().items() if option_name(x, field)}
    return [
        Option.of(key, field)
        for key, field in fields.items()
        if not names or key in names or key.partition(".")[0] in names
    ]


def take_options(*options: Option) -> Callable[[Command], Command]:
    """Returns a decorator that adds options to a command, which takes them as `given`.

    They stand in the place of the parameter `given`, which is a `Given`.
    """

    def collect(**chosen: Any) -> Given:
        overrides = [
            option.override(chosen[option.name])
            for option in options
            if option.key and chosen[option.name] not in (None, [], ())
        ]
        return Given(chosen.get(CONFIG.name), overrides, chosen.get(SET.name) or ())

    parameters = [option.parameter for option in options]
    return lambda command: commandline.group_parameters(command, {"given": (parameters, collect)})


def _numbers(text: str) -> list[float] | str:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        return text


def _type(field: FieldInfo) -> tuple[Any, Callable[[Any], Any]]:
    """The type of an option, and the function that reads its value."""
    origin, parts = typing.get_origin(field.annotation), typing.get_args(field.annotation)
    kinds = [getattr(x, "__origin__", x) for x in (field.annotation, *parts)]
    if origin is list and not is_kind(field, REPEATED):
        return str, _numbers if float in kinds else split
    plain = next((x for x in (bool, int, float) if x in kinds), str)
    return list[str] if origin is list else plain, _as_it_is


def _of_beam(values: list[str] | None) -> list[str] | None:
    """Refuses files that the shell made of a pattern, as all but the first would be lost."""
    if values and not values[0].startswith("-"):
        reason = received("Expected options of Beam, such as --parallelism=4", repr(values[0]))
        raise typer.BadParameter(f"{reason}. Quote patterns of files: 'logs/*.parquet'.")
    return values


CONFIG = Option("", "config", str, typer.Option(metavar="FILE", help="Configuration file (TOML)."))
SET = Option(
    "",
    "set",
    list[str],
    typer.Option(metavar="KEY=VALUE", help="Replace a key of the configuration; may be repeated."),
)
MODULE = Option(
    "modules",
    "module",
    list[str],
    typer.Option(metavar="FILE", help="Your own Python file to import first; may be repeated."),
)
BEAM = Option(
    "beam.options",
    "beam_options",
    list[str],
    typer.Argument(help="Options of Beam.", callback=_of_beam),
)
COMMON = (CONFIG, SET, MODULE, BEAM)
