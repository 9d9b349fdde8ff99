"""Imports at first use, of public modules and registered classes; public names of a package.

The decorator `serialization.register` registers a class when its module is imported. Here the names
of these classes are registered as soon as Keras is imported, so that it can load saved models, and
modules are imported at the first use of one.
"""

import functools
import importlib
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TypeVar

from tfrank_sel.refusals import missing, question, received


def public(
    namespace: Mapping[str, Any], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package: its exports, without internal modules.

    Args:
        namespace: The `globals()` of the package.
        modules: Names of the modules that it exports.
    """

    def attribute(name: str) -> Any:
        raise _no_attribute(namespace["__name__"], name, names())

    def names() -> list[str]:
        exports = {
            name
            for name, value in namespace.items()
            if not name.startswith("_") and not isinstance(value, ModuleType)
        }
        return sorted(exports | set(modules))

    return attribute, names


def _no_attribute(package: str, name: str, names: Iterable[str]) -> AttributeError:
    hint = "" if name.startswith("_") else question(name, names)
    return AttributeError(f"module {package!r} has no attribute {name!r}.{hint}")


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
        if name not in modules and name not in homes:
            raise _no_attribute(package, name, {*modules, *homes})
        try:
            module = importlib.import_module(f".{homes.get(name, name)}", package)
        except ModuleNotFoundError as error:
            raise ImportError(f"{package}.{name}: {missing(error)}", name=error.name) from error
        return getattr(module, name) if name in homes else module

    return attribute


def exported(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` for a package that imports at first use.

    Args:
        package: The `__name__` of the package: what its source imports in a block, as in
            `from module import name as name`, is what it exports.

    Raises:
        ImportError: If the package is installed without its source.
    """
    spec = sys.modules[package].__spec__
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(package)  # of a zip, too
    if source is None:
        raise ImportError(received(f"{package} needs the source of its packages", "none"))
    homes = {
        name: module.removeprefix(f"{package}.")
        for module, taken in _EXPORTED.findall(source)
        for name in _TAKEN.findall(taken)
    }
    taken = {name: home for name, home in homes.items() if home != package}
    shown = sorted(homes)
    return imports(package, {*homes, *taken.values()}, taken), lambda: shown, shown


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
_PACKAGES = ("links", "losses", "metrics", "models", "ops", "presets")
_EXPORTED = re.compile(r"^    from (\S+) import (\([^)]*\)|.+)$", re.MULTILINE)
_TAKEN = re.compile(r"\b(\w+) as \1\b")
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
    for registered_name, module in _homes().items():
        known.setdefault(registered_name, _Later(module, registered_name.partition(">")[2]))


def of_name(registered_name: object) -> Any:
    """Returns what Keras knows by a name, without Keras; None if it is not of this package."""
    module = _homes().get(str(registered_name))
    if module is None:
        return None
    return getattr(importlib.import_module(module), str(registered_name).partition(">")[2])


@functools.cache
def _homes() -> dict[str, str]:
    """The module of each registered class and function, by its name in Keras."""
    root, homes = pathlib.Path(__file__).parent, {}
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            for name in _REGISTERED.findall(file.read_text("utf-8")):
                homes[f"tfrank_sel>{name}"] = module.removesuffix(".__init__")
    return homes
