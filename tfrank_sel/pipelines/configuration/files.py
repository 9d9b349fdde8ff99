"""Configuration files: read with overrides, and written with comments."""

import dataclasses
import inspect
import os
import re
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pydantic
import tomlkit
from tomlkit.items import Item

from tfrank_sel.arguments import StrPath
from tfrank_sel.commandline import printable
from tfrank_sel.data import stores
from tfrank_sel.errors import received
from tfrank_sel.pipelines.configuration.section import ConfigurationError, Section, fields, no_key
from tfrank_sel.pipelines.configuration.sections import Configuration, place

# a key ends at the first = outside of quotes
_KEY = re.compile(r"""((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^="'])*)(=?)(.*)""", re.DOTALL)
WIDTH = 88  # maximum width of a line; longer lists are split into several lines


@dataclasses.dataclass(frozen=True)
class Override:
    """A value that replaces a value of the file.

    Args:
        key: The key, such as `training.epochs`, as TOML writes it.
        value: The value.
        origin: The option that set it, for errors.
    """

    key: str
    value: Any
    origin: str

    @classmethod
    def parse(cls, text: str) -> "Override":
        """Reads `key=value`, as in `--set`: the value is TOML, otherwise a string.

        Raises:
            ConfigurationError: If there is no key.

        Example:
            >>> Override.parse("training.loss.class=LambdaLoss").value
            'LambdaLoss'
        """
        found = _KEY.match(text)
        assert found is not None  # all of its parts may be empty
        key, equals, value = found.groups()
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value.strip()
        override = cls(key.strip(), parsed, f"--set {text}")
        if not equals or not override.path:
            raise ConfigurationError("", received("expected key=value", repr(text)), "--set")
        return override

    @property
    def path(self) -> list[str]:
        """The parts of the key; none if it is malformed."""
        try:
            table = tomllib.loads(f"{self.key} = 0")
        except tomllib.TOMLDecodeError:
            return []
        path: list[str] = []
        while isinstance(table, dict):
            [(part, table)] = table.items()
            path.append(part)
        return path


def assignment(value: Any, *key: str) -> str:
    """Returns `key=value` as `--set` takes it; a text in quotes if it would be another value.

    Args:
        value: The value.
        *key: The parts of the key.

    Example:
        >>> assignment("my query", "data", "query"), assignment("7", "data", "query")
        ('data.query=my query', 'data.query="7"')
        >>> assignment({"of": "query"}, "features", "a b")
        'features."a b"={of = "query"}'
    """
    name = tomlkit.key(key).as_string()
    if isinstance(value, str) and Override.parse(f"{name}={value}").value == value:
        return f"{name}={value}"
    return f"{name}={_item(value).as_string()}"


def load(
    path: StrPath | None = None,
    overrides: Iterable[Override] = (),
    defaults: Iterable[Override] = (),
) -> Configuration:
    """Reads a configuration.

    Args:
        path: A TOML file; None for the defaults.
        overrides: Values that replace those of the file. An override of the `class` of a table
            below a section replaces the whole table; an override of a list replaces the list.
        defaults: Values of keys that neither the file nor an override has.

    Raises:
        ConfigurationError: If the file cannot be read, or a key or value is invalid: one line for
            each.

    Example:
        >>> found = load(overrides=[Override.parse("training.loss.class=LambdaLoss")])
        >>> found.training.loss
        [{'class': 'LambdaLoss'}]
    """
    values: dict[str, Any] = Configuration().model_dump(by_alias=True, exclude_none=True)
    for default in defaults:
        _set(values, default.path, default.value)
    for section, value in ({} if path is None else _read(path)).items():
        tables = isinstance(values.get(section), dict) and isinstance(value, dict)
        values[section] = {**values[section], **value} if tables else value
    return _with_overrides(values, overrides, "" if path is None else os.fspath(path))


def with_overrides(configuration: Configuration, overrides: Iterable[Override]) -> Configuration:
    """Returns a configuration with other values.

    Args:
        configuration: The configuration.
        overrides: Values that replace those of the configuration, as in `load`.

    Raises:
        ConfigurationError: If a key or value is invalid.
    """
    values = configuration.model_dump(by_alias=True, exclude_none=True)
    return _with_overrides(values, overrides, "")


def _with_overrides(
    values: dict[str, Any], overrides: Iterable[Override], file: str
) -> Configuration:
    origins: dict[str, str] = {}
    for override in overrides:
        _set(values, override.path, override.value)
        origins[".".join(override.path)] = override.origin
    try:
        return Configuration.model_validate(values).come_from(file, origins)
    except pydantic.ValidationError as error:
        first, *others = (_error(x, file, origins) for x in _alone(error))
        first.more = others
        raise first from error


def _read(path: StrPath) -> dict[str, Any]:
    file_path = os.fspath(path)
    try:
        with stores.open_file(path) as file:
            return tomllib.load(file)
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigurationError("", received("expected TOML", error), file_path) from error
    except OSError as error:
        raise ConfigurationError(
            "", received("expected a file", error.strerror), file_path
        ) from error


def _set(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *tables, name = path
    for depth, part in enumerate(tables):
        is_new_class = name == "class" and 0 < depth == len(tables) - 1
        if is_new_class or not isinstance(values.get(part), dict):
            values[part] = {}
        values = values[part]
    values[name] = value


def _alone(error: pydantic.ValidationError) -> list[Any]:
    """The errors; those of the members of a union, each at its own place, as one of the key."""
    by_place: dict[tuple[Any, ...], Any] = {}
    for details in error.errors(include_url=False):
        location = details["loc"]
        field = Configuration.by_key().get(".".join(map(str, location[:2])))
        if field and typing.get_origin(field.annotation) in (typing.Union, types.UnionType):
            location = location[:2]
        if first := by_place.get(location):
            first["msg"] += details["msg"].replace("Input should be", ", or")
        else:
            by_place[location] = {**details, "loc": location}
    return list(by_place.values())


def _error(details: Any, file: str, origins: Mapping[str, str]) -> ConfigurationError:
    """Converts an error of pydantic to our wording."""
    *parents, last = details["loc"] or [""]
    key = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in details["loc"])[1:]
    if details["type"] == "extra_forbidden":
        section: Any = Configuration
        for name in parents:
            section = section.model_fields[name].annotation
        origin_keys = [x for x in origins if f"{x}.".startswith(f"{key}.")]
        key, reason = ".".join(parents) or "the file", no_key(str(last), section)
        return ConfigurationError(key, reason, place((origin_keys or [key])[0], file, origins))
    if details["type"] == "value_error":
        reason = str(details["ctx"]["error"])
    else:
        reason = re.sub("^(Input|List|String) should ", "must ", details["msg"])
    if "Received: " not in reason:
        reason += f". Received: {details['input']!r}"
    # an error of a whole section contains the names of its keys
    origin_keys = [x for x in origins if x.startswith(key) and x.rpartition(".")[2] in reason]
    return ConfigurationError(key, reason, place((origin_keys or [key])[0], file, origins))


def text(
    configuration: Configuration,
    left_out: Mapping[str, str] | None = None,
    clicks: str = "",
    suspects: Mapping[str, str] | None = None,
    *,
    only_changed: bool = False,
) -> str:
    """Returns a configuration as TOML, with a comment on each key.

    Args:
        configuration: The configuration.
        left_out: Columns that are not features, with the reasons, for comments.
        clicks: Why the section `clicks` is as it is, for a comment.
        suspects: Features that may leak the label, with the reasons, for comments.
        only_changed: Whether to leave out the keys that have their defaults.

    Example:
        >>> print(text(load()).splitlines()[1])
        modules = []
        >>> print(text(load(overrides=[Override("training.epochs", 9, "")]), only_changed=True))
        [training]
        # Losses, optimizer and early stopping.
        <BLANKLINE>
        # Maximum number of epochs.
        epochs = 9
        <BLANKLINE>
    """
    document, defaults = tomlkit.document(), Configuration() if only_changed else None
    _write(document, configuration, defaults)
    for name, field in Configuration.model_fields.items():
        section, default = getattr(configuration, name), getattr(defaults, name, None)
        if not isinstance(section, Section | dict) or section == default:
            continue
        table = tomlkit.table()
        summary, _, _ = (inspect.getdoc(type(section)) or "").partition("\n\n")
        _comment(table, field.description or summary)
        _comment(table, clicks if name == "clicks" else "")
        if isinstance(section, dict):
            for feature, value in section.items():
                if reason := (suspects or {}).get(feature):
                    advice = "list it in data.omit, unless it is known before the label"
                    _comment(table, f"{feature} is suspect: {reason}; {advice}")
                table[feature] = _item(value)
            for column, reason in (left_out or {}).items():
                _comment(table, f"{column} is omitted: {reason}")
        else:
            table.add(tomlkit.nl())
            _write(table, section, default)
        document.add(tomlkit.nl())
        document[name] = table
    return tomlkit.dumps(document).lstrip("\n")


def reference(of: type[Configuration] = Configuration) -> str:
    """Returns a table of all keys in Markdown: default and meaning.

    Args:
        of: The configuration.

    Example:
        >>> reference().splitlines()[3]
        '| `data.train` | `[]` | Files or globs for training. |'
    """
    lines = ["| key | default | meaning |", "|---|---|---|"]
    defaults = of().model_dump(by_alias=True)
    for key, field in of.by_key().items():
        section, _, name = key.partition(".")
        default = defaults[section][name] if name else defaults[section]
        shown = "unset" if default is None else f"`{_item(default).as_string()}`"
        lines.append(f"| `{key}` | {shown} | {field.description} |")
    return "\n".join(lines) + "\n"


def _write(table: Any, section: Section, default: Section | None = None) -> None:
    """Writes the keys of a section that are not sections; keys without a value as comments.

    Those that have the value of a default are left out.
    """
    values = section.model_dump(by_alias=True)
    defaults = {} if default is None else default.model_dump(by_alias=True)
    for key, field in fields(type(section)).items():
        value = values.pop(key)
        if isinstance(section, Configuration) and isinstance(value, dict):
            # A section becomes a table of its own, later.
            continue
        if key in defaults and value == defaults[key]:
            continue
        _comment(table, field.description or "")
        if value is None:
            example = tomlkit.dumps({key: _item((field.examples or [""])[0])})
            table.add(tomlkit.comment(example.strip()))
        else:
            table[key] = _item(value)
    for key, value in (section.model_extra or {}).items():
        table[key] = _item(value)


def _comment(table: Any, text: str) -> None:
    for line in textwrap.wrap(printable(text), WIDTH):
        table.add(tomlkit.comment(line))


def _item(value: Any) -> Item:
    """Returns a value as TOML in one line, or a long list in several lines."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, inner in value.items():
            table[key] = _item(inner)
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        for inner in value:
            array.append(_item(inner))
        return array.multiline(len(array.as_string()) > WIDTH)
    return tomlkit.item(value)
