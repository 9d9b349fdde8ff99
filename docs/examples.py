"""What the generator of the reference cannot know of our docstrings and classes."""

from collections.abc import Iterator
from typing import Any

import griffe

_KEYWORD = griffe.ParameterKind.keyword_only
_POSITIONAL = griffe.ParameterKind.positional_or_keyword


class Examples(griffe.Extension):
    """Names the section `Example:` as griffe does, and gives losses and metrics a constructor."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with each object that was read."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Called with a package, of which all modules were read."""
        made = [(cls, fields) for cls in _classes(pkg) if (fields := _fields(cls))]
        for cls, fields in made:
            first = griffe.Parameter("self", kind=_POSITIONAL)
            last = sorted(fields.values(), key=lambda p: p.kind is _KEYWORD)
            function = griffe.Function("__init__", parameters=griffe.Parameters(first, *last))
            cls.set_member("__init__", function)


def _classes(obj: griffe.Object) -> Iterator[griffe.Class]:
    for member in obj.members.values():
        if not member.is_alias and (member.is_module or member.is_class):
            if member.is_class:
                yield member
            yield from _classes(member)


def _ancestors(cls: griffe.Class) -> list[griffe.Class]:
    """A class and its bases, the last first."""
    found: list[griffe.Class] = []
    for base in (x for x in cls.resolved_bases if x.is_class):
        found += [x for x in _ancestors(base) if x not in found]
    return [*found, cls]


def _fields(cls: griffe.Class) -> dict[str, griffe.Parameter]:
    """The arguments of the constructor that `serialization.Named` or `Frozen` makes."""
    found: dict[str, griffe.Parameter] = {}
    ancestors = _ancestors(cls)
    names = [x.name for x in ancestors]
    below = [x for x in ancestors if {"Named", "Frozen"} & {b.name for b in _ancestors(x)[:-1]}]
    positional = _KEYWORD if "ElementaryLink" in names else _POSITIONAL
    if any("__init__" in base.members for base in below):
        return {}
    for base in below:
        for name, member in base.members.items():
            # griffe has read `ClassVar` as the lack of this label
            is_field = "instance-attribute" in member.labels and "property" not in member.labels
            if not is_field or not member.annotation:
                continue
            default, kind = member.value, positional
            if isinstance(default, griffe.ExprCall):
                given = {x.name: x.value for x in default.arguments if hasattr(x, "name")}
                if str(default.function) == "field":
                    default, kind = given["default"], _KEYWORD
            default = "None" if str(default) == "UNSET" else default
            found[name] = griffe.Parameter(
                name, annotation=member.annotation, kind=kind, default=default
            )
    return found
