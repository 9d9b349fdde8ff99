"""The one place that knows how this package's objects are named and saved by Keras."""

import inspect
from typing import Any, Self, TypeVar

import keras

T = TypeVar("T")


def register(symbol: T) -> T:
    """Registers a class or function with Keras as `"tfrank_sel>Name"`."""
    registered: T = keras.saving.register_keras_serializable(package="tfrank_sel")(symbol)
    return registered


class Configurable:
    """Mixin: the constructor's own arguments, kept as attributes of the same names, are the config.

    It serves value objects, which have no other config, and Keras objects alike, whose base class
    adds its own (`name`, `reduction`, `dtype`).
    """

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that make an equal object, as JSON-ready values."""
        base: dict[str, Any] = getattr(super(), "get_config", dict)()
        own, passed_on = _arguments(self)
        names = [*own, *(n for n in passed_on if n not in base)]
        return {**base, **{n: _serialized(getattr(self, n)) for n in names}}

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, as they are."""
        return {name: getattr(self, name) for names in _arguments(self) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the object that `get_config` described."""
        return cls(**{n: keras.saving.deserialize_keras_object(v) for n, v in config.items()})


def _arguments(obj: object) -> tuple[list[str], list[str]]:
    """Names the constructor's own arguments, and those that its `**kwargs` pass on to its bases.

    Of a base, these are the keyword-only ones.
    """
    parameters = inspect.signature(type(obj)).parameters.values()
    own = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    if len(own) == len(parameters):
        return own, []
    bases = (c for c in type(obj).__mro__ if issubclass(c, Configurable) and "__init__" in vars(c))
    options = {
        p.name: None
        for c in bases
        for p in inspect.signature(c).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    return own, [name for name in options if name not in own]


def _serialized(value: Any) -> Any:
    # plain values as they are: where Keras 2 exports a SavedModel, it knows of objects alone
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return keras.saving.serialize_keras_object(value)
