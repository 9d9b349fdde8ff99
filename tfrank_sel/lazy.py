"""Imports at first use, of public modules and registered classes; public names of a package.

The decorator `serialization.register` registers a class when its module is imported. Here the names
of these classes are registered as soon as Keras is imported, so that it can load saved models, and
modules are imported at the first use of one.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, TypeVar

from tfrank_sel.errors import missing_package, question
from tfrank_sel.exports import EXPORTS, REGISTERED


def exported(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` for a package that imports at first use.

    Args:
        package: The `__name__` of the package. What it imports as in `from module import name as
            name`, also for type checkers alone, is what it exports: `make exports` writes the
            table of these.
    """
    homes = {name: module for module, names in EXPORTS[package].items() for name in names.split()}
    exports = sorted(homes)

    def attribute(name: str) -> Any:
        home, inner = homes.get(name), f"{package}.{name}"
        if home is None and inner not in homes.values():
            hint = "" if name.startswith("_") else question(name, exports)
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")
        is_module = home in (None, package)
        try:
            module = importlib.import_module(inner if is_module else str(home))
        except ModuleNotFoundError as error:
            raise ImportError(f"{inner}: {missing_package(error)}", name=error.name) from error
        return module if is_module else getattr(module, name)

    return attribute, lambda: exports, exports


class Module:
    """A module that is imported at its first use, for files of which only a part needs it.

    Args:
        name: Its full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


T = TypeVar("T")

_waiting: list[Any] = []  # symbols that were defined before Keras was imported
# no model of Keras has a retriever, whose package needs an extra
_PACKAGES = sorted({module.split(".")[1] for module in REGISTERED} - {"recommend"})
_MODULES = {
    f"tfrank_sel>{name}": module for module, names in REGISTERED.items() for name in names.split()
}


class _Later:
    """A registered class or function whose module is imported at the first use."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Makes the object that a config describes."""
        saving = sys.modules["keras"].saving
        made = self._import()
        # the scope around this call may hold objects of this class
        with saving.custom_object_scope(saving.get_custom_objects()):
            return made.from_config(config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._import()(*args, **kwargs)

    def _import(self) -> Any:
        # The config may hold functions of any package; an installation may lack roads.
        for package in (f"tfrank_sel.{x}" for x in _PACKAGES):
            if importlib.util.find_spec(package) is not None:
                importlib.import_module(package)
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


def register(symbol: T) -> T:
    """Registers a class or function with Keras as `"tfrank_sel>Name"`, once Keras is imported."""
    if "keras" not in sys.modules:
        _waiting.append(symbol)
        return symbol
    decorate = sys.modules["keras"].saving.register_keras_serializable(package="tfrank_sel")
    registered: T = decorate(symbol)
    return registered


def register_names() -> None:
    """Registers the names of all classes, now or when Keras is imported."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _register() -> None:
    while _waiting:
        register(_waiting.pop())
    known = sys.modules["keras"].saving.get_custom_objects()
    for registered_name, module in _MODULES.items():
        known.setdefault(registered_name, _Later(module, registered_name.partition(">")[2]))


def of_name(registered_name: object) -> Any:
    """Returns what Keras knows by a name, without Keras; None if it is not of this package."""
    module = _MODULES.get(str(registered_name))
    if module is None:
        return None
    return getattr(importlib.import_module(module), str(registered_name).partition(">")[2])
