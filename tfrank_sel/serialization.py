"""Registration, names and configs of this package's objects in Keras."""

import inspect
import numbers
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import keras
import numpy as np

from tfrank_sel.arguments import Checked, declared, given

T = TypeVar("T")

LONGEST_LIST = 40  # maximum characters of a list of values in a name


def register(symbol: T) -> T:
    """Registers a class or function with Keras as `"tfrank_sel>Name"`."""
    registered: T = keras.saving.register_keras_serializable(package="tfrank_sel")(symbol)
    return registered


class Configurable(Checked):
    """Mixin: the config is the constructor's own arguments, kept as attributes of the same names.

    It serves value objects, which have no other config, and Keras objects, whose base class adds
    its own (`name`, `reduction`, `dtype`). Arguments are checked as in `Checked`.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal object, as JSON-ready values."""
        base: dict[str, Any] = getattr(super(), "get_config", dict)()
        cls: type = type(self)
        names = [n for n, a in declared(cls).items() if a.is_own or n not in base]
        return {**base, **{n: _serialized(getattr(self, n)) for n in names}}

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, unchanged."""
        cls: type = type(self)
        return {name: getattr(self, name) for name in declared(cls)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the object that `get_config` described."""
        return cls(**{n: keras.saving.deserialize_keras_object(v) for n, v in config.items()})


class Named(Configurable):
    """Mixin of objects that Keras reports by name: by default that of the class and its options.

    Attributes:
        default_name: The name of the class, its cutoff and the options that differ from their
            defaults, such as `ndcg_at_5` or `rbp_persistence_0_5`. It consists of letters, digits
            and underscores.
    """

    default_name: str

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        # unchanged: Keras 2 wraps attributes, but not at this point
        object.__setattr__(self, "default_name", _name(cls, given(cls, args, kwargs)))
        return self


def _name(cls: type, options: Mapping[str, Any]) -> str:
    words = [re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()]
    for option, argument in declared(cls).items():
        value = options.get(option, argument.default)
        if option in ("name", "reduction", "dtype") or value is inspect.Parameter.empty:
            continue  # they do not change the computation, or are missing
        text = _in_words(value)
        if option == "k":
            words += [] if value is None else ["at", text]
        elif text != _in_words(argument.default):
            words.append(text if option in text else f"{option}_{text}")
    return "_".join(words)


def _in_words(value: Any) -> str:
    if isinstance(value, Configurable):
        return _name(type(value), value.arguments())
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
        words = "_".join(map(_in_words, value))
        brief = f"{len(value)}_values_{zlib.crc32(words.encode()):08x}"
        return words if len(words) <= LONGEST_LIST else brief
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = repr(float(value)).removesuffix(".0").replace("-", "minus_")
    elif callable(value):
        value = getattr(value, "__name__", type(value).__name__)
    return re.sub("[^a-z0-9]+", "_", str(value).lower()).strip("_")


def _serialized(value: Any) -> Any:
    # plain values are kept: when Keras 2 exports a SavedModel, it handles only objects
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return keras.saving.serialize_keras_object(value)
