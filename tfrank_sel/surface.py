"""Public names of a package, and lazy imports of its modules."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


def names(namespace: Mapping[str, Any], modules: Iterable[str] = ()) -> list[str]:
    """Returns the result of `dir` for a package: its exports, without its internal modules.

    Args:
        namespace: The `globals()` of the package.
        modules: Names of the modules that it exports.
    """
    shown = {
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    return sorted(shown | set(modules))


def lazily(
    package: str, modules: Iterable[str], names: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a package that imports modules at their first use.

    Args:
        package: The `__name__` of the package.
        modules: Names of the modules.
        names: Names that the package takes from modules, and the module of each.
    """
    homes = names or {}

    def attribute(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute
