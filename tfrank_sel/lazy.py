"""Imports at first use, of public modules and registered classes; public names of a package.

The decorator `serialization.register` registers a class when its module is imported. Here the names
of these classes are registered as soon as Keras is imported, so that it can load saved models, and
modules are imported at the first use of one.
"""

import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
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


def imports(
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


_PACKAGES = ("links", "losses", "metrics", "models", "ops", "presets")
_REGISTERED = re.compile(r"^@register\n(?:@.*\n)*(?:class|def) (\w+)", re.MULTILINE)


class _Later:
    """A registered class or function whose module is imported at the first use."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Makes the object that a config describes."""
        saving = sys.modules["keras"].saving
        made = self._imported()
        # the scope around this call may hold objects of this class
        with saving.custom_object_scope(saving.get_custom_objects()):
            return made.from_config(config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._imported()(*args, **kwargs)

    def _imported(self) -> Any:
        for package in _PACKAGES:  # also those of functions in the config
            importlib.import_module(f"tfrank_sel.{package}")
        return getattr(importlib.import_module(self._module), self._name)


class _AfterKeras(MetaPathFinder):
    """Registers the names when Keras is imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Finds Keras, with a loader that registers the names at the end."""
        if fullname != "keras":
            return None
        spec = PathFinder.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register_names() -> None:
    """Registers the names of all classes, now or when Keras is imported."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _register() -> None:
    known = sys.modules["keras"].saving.get_custom_objects()
    for module, name in _names():
        known.setdefault(f"tfrank_sel>{name}", _Later(module, name))


def _names() -> Iterator[tuple[str, str]]:
    """Yields the module and the name of each registered class and function."""
    root = pathlib.Path(__file__).parent
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            for name in _REGISTERED.findall(file.read_text("utf-8")):
                yield module.removesuffix(".__init__"), name
