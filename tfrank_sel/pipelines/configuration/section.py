"""Base of the sections of a configuration: fields, their options, and errors that name the key."""

import inspect
import os
import re
import typing
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from tfrank_sel import artefacts
from tfrank_sel.arguments import MOST_NAMED
from tfrank_sel.errors import nearest, received

PATH, REPEATED, URI = "path", "repeated", "uri"  # kinds of values, in the annotation of a field


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A path may be a URL.
Path = Annotated[str, PATH]
# a list, or a single item; on a command line, separated by commas or one for each option
Names = Annotated[list[str], BeforeValidator(_as_list)]
Values = Annotated[list[str], BeforeValidator(_as_list), REPEATED]
Paths = Annotated[list[str], BeforeValidator(_as_list), REPEATED, PATH]


class Section(BaseModel):
    """Base of all sections: strict types, and no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True
    )


def key(default: Any, description: str, **more: Any) -> Any:
    """Returns the field of a key.

    Args:
        default: Default value; None if the key may be unset.
        description: Description for configuration files, `--help` and the reference.
        **more: Arguments of `pydantic.Field`: `alias`, `examples` of a key without a default.
    """
    return Field(default=default, description=description, **more)


def option(default: Any, description: str, *, name: str = "", **more: Any) -> Any:
    """Returns the field of a key that has an option of its own on command lines.

    Args:
        default: As in `key`.
        description: As in `key`.
        name: Name of the option as that of a parameter; by default that of the key.
        **more: As in `key`.
    """
    return key(default, description, json_schema_extra={"option": name}, **more)


def fields(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the fields of a section by key, as in files: its own, then those of its bases."""
    annotations = inspect.get_annotations(section)
    ordered = sorted(section.model_fields.items(), key=lambda item: item[0] not in annotations)
    return {field.alias or name: field for name, field in ordered}


def option_name(key: str, field: FieldInfo) -> str:
    """Returns the name of the parameter for a key; empty if the key has no option."""
    extra: Any = field.json_schema_extra
    return (extra["option"] or key.rpartition(".")[2]) if extra else ""


_NAME = re.compile(r'\s*"((?:[^"]|"")*)"\s*(?:,|$)|([^,]+)')


def split(names: str) -> list[str]:
    """Splits comma-separated names; one with a comma stands in quotes, as in CSV.

    Example:
        >>> split('price, "width, inches", clicks')
        ['price', 'width, inches', 'clicks']
    """
    found = (quoted.replace('""', '"') or x.strip() for quoted, x in _NAME.findall(names))
    return [name for name in found if name]


def join(names: Iterable[str]) -> str:
    """Returns names as `split` reads them."""
    return ",".join(
        x if split(x) == [x] and x[0] != '"' else f'"{x.replace(chr(34), chr(34) * 2)}"'
        for x in names
    )


def is_kind(field: FieldInfo, kind: str) -> bool:
    """Whether a field has paths (`PATH`), or one value for each option (`REPEATED`)."""
    inner = (getattr(x, "__metadata__", ()) for x in typing.get_args(field.annotation))
    return any(kind in metadata for metadata in (field.metadata, *inner))


def absolute(path: str) -> str:
    """Returns the same path or URL for any working directory."""
    return path if "://" in path else os.path.abspath(path)


def absolute_uri(uri: str) -> str:
    """Returns the same tracking URI of MLflow for any working directory.

    Example:
        >>> absolute_uri("sqlite:////srv/mlflow.db"), absolute_uri("http://localhost:5000")
        ('sqlite:////srv/mlflow.db', 'http://localhost:5000')
        >>> absolute_uri("databricks"), absolute_uri("file:/srv/mlruns")
        ('databricks', 'file:/srv/mlruns')
    """
    local = re.match(r"sqlite:///|file:(?!/)|(?!databricks(-uc)?$|(?i:[a-z][a-z0-9+.-]+:))", uri)
    return uri if local is None else f"{local[0]}{os.path.abspath(uri[local.end() :])}"


class ConfigurationError(ValueError):
    """An invalid configuration.

    Args:
        key: The key, such as `training.loss`; empty for an error without a key.
        reason: The accepted and the received value; printed after the key.
        place: The file or option that set the value, if known.

    Attributes:
        more: Further errors, one line each.

    Example:
        >>> print(ConfigurationError("data.label", "must be a column. Received: 3", "run.toml"))
        run.toml: data.label must be a column. Received: 3
    """

    def __init__(self, key: str, reason: str, place: str = "") -> None:
        super().__init__(key, reason, place)
        self.key, self.reason, self.place = key, reason, place
        self.more: Sequence[ConfigurationError] = ()

    def __str__(self) -> str:
        prefix = f"{self.place}: " if self.place else ""
        line = artefacts.text_with_addresses(" ".join(f"{prefix}{self.key} {self.reason}".split()))
        return "\n".join([line, *map(str, self.more)])


def choices(name: str, accepted: Iterable[str]) -> str:
    """Lists the accepted values, nearest first, and the received value.

    Example:
        >>> choices("epoch", ["seed", "epochs"])
        "epochs, seed. Received: 'epoch'"
    """
    names = list(accepted)
    near = nearest(name, names)
    ordered = [*near, *(x for x in names if x not in near)]
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return received(f"{', '.join(ordered[:MOST_NAMED])}{more}", repr(name))


def no_key(name: str, section: type[BaseModel]) -> str:
    """Returns the error text for an unknown key, with the known keys, nearest first."""
    return f"has no such key. Accepted: {choices(name, fields(section))}"
