"""Registration, constructors, names and configs of this package's objects in Keras."""

import dataclasses
import functools
import inspect
import numbers
import re
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from tfrank_sel.arguments import (
    OF_KERAS,
    Checked,
    ReadableSignature,
    argument,
    constructor_arguments,
    passed_arguments,
    take_plain,
)
from tfrank_sel.lazy import of_name, register as register

LONGEST_LIST = 40  # maximum characters of a list of values in a name
UNSET: Any = None  # the default of an argument that Keras sets
_FOR_USERS = ("curve", "default_name", "evaluate", "over_ties", "probabilities", "reliability")
_MISSING = inspect.Parameter.empty
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KERAS = ("keras", "tf_keras", "tensorflow")
_FUNCTION = {"module": "builtins", "class_name": "function", "registered_name": "function"}
_SET_LATER = (
    "`{}` of {} cannot be set after its construction, since graphs hold its value: make a new "
    "object, or give it a tf.Variable"
)


class Configurable(Checked):
    """Mixin: the config is the constructor's own arguments, kept as attributes of the same names.

    It serves value objects, which have no other config, and Keras objects, whose base class adds
    its own (`name`, `reduction`, `dtype`). Arguments are checked as in `Checked`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        kind: type = cls
        others = sorted(
            passed_arguments(kind, args, kwargs).keys() - {*constructor_arguments(kind), *OF_KERAS}
        )
        if passed_on := tuple(name for name in others if argument(kind, name)):
            object.__setattr__(self, "_passed_on", passed_on)
        return self

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal object, as JSON-ready values."""
        base: dict[str, Any] = getattr(super(), "get_config", dict)()
        cls: type = type(self)
        names = [n for n, a in constructor_arguments(cls).items() if a.is_own or n not in base]
        # what a constructor of a user passes on, and a base keeps
        names += [n for n in vars(self).get("_passed_on", ()) if n not in base and hasattr(self, n)]
        return {**base, **{n: _serialize(getattr(self, n)) for n in names}}

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, unchanged."""
        cls: type = type(self)
        return {name: getattr(self, name) for name in constructor_arguments(cls)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the object that `get_config` described."""
        return cls(**{n: _deserialize(v) for n, v in config.items()})


@typing.dataclass_transform(frozen_default=True)
class Frozen(Configurable):
    """A frozen dataclass: objects with the same parameters are equal, and have the same hash.

    A subclass declares its parameters as annotated attributes; it needs no decorator.
    """

    def __init_subclass__(cls, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)
        take_plain(cls)
        # those below serve all; a decorator of a subclass would refuse to replace them
        del cls.__setattr__, cls.__delattr__

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@typing.dataclass_transform(field_specifiers=(dataclasses.field,))
class Named(Configurable):
    """Mixin of Keras objects whose annotated attributes are the arguments of the constructor.

    As in a dataclass, a subclass takes the fields of its bases, then its own, and `__post_init__`
    checks them or derives attributes. `name`, `reduction` and `dtype` go to the class of Keras. The
    default of `name` is made of the class and its options. Sequences become tuples.

    When the constructor has ended, attributes cannot be set, but for those of Keras: graphs hold
    their values. What changes in training is a variable.

    Raises:
        AttributeError: If an attribute is set later.

    Attributes:
        default_name: The name of the class, its cutoff and the options that differ from their
            defaults, such as `ndcg_at_5` or `rbp_persistence_0_5`. It consists of letters, digits
            and underscores.
    """

    default_name: str
    _of_keras: set[str]  # names of the attributes that Keras has set
    # The names of all other arguments.
    _own: tuple[str, ...]
    _fields: ClassVar[Mapping[str, inspect.Parameter]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._fields = dict(_own_fields(cls))
        if cls._fields and "__init__" not in vars(cls):
            type.__setattr__(cls, "__init__", _constructor(cls))
            take_plain(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        # unchanged: Keras 2 wraps attributes, but not at this point
        object.__setattr__(self, "default_name", _name(cls, passed_arguments(cls, args, kwargs)))
        object.__setattr__(self, "_of_keras", {"_of_keras", *vars(self)})
        return self

    def _complete(self) -> None:
        """Fixes the attributes."""
        names = tuple(sorted(vars(self).keys() - self._of_keras))
        object.__setattr__(self, "_own", names)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_fixed(name):
            raise AttributeError(_SET_LATER.format(name, type(self).__name__))
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_fixed(name):
            raise AttributeError(_SET_LATER.format(name, type(self).__name__))
        super().__delattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, without graphs and others that are made of the original."""
        state: Any = super().__getstate__()
        cls, made = type(self), functools.cached_property
        return {n: x for n, x in state.items() if not isinstance(getattr(cls, n, None), made)}

    def _is_fixed(self, name: str) -> bool:
        """Whether an attribute cannot be set any more: one that is not of Keras."""
        if "_own" not in vars(self) or name == "name":
            return False
        cls: type = type(self)
        if name in constructor_arguments(cls) or name in self._own:
            return True
        by_keras = name in self._of_keras or any(
            name in vars(c) for c in cls.__mro__ if c.__module__.partition(".")[0] in _KERAS
        )
        is_inner = name.startswith("_") and not hasattr(cls, name)
        return not (by_keras or is_inner)

    def __dir__(self) -> list[str]:
        """Returns the names for users: not those that classes of this package share."""
        cls: type = type(self)
        inner, names = set[str](), {*_FOR_USERS, *constructor_arguments(cls)}
        for base in cls.__mro__:
            is_inner = base.__module__.partition(".")[0] == "tfrank_sel"
            (inner if is_inner else names).update(vars(base))
        return [x for x in super().__dir__() if x in names or x not in inner or x[0] == "_"]

    def __post_init__(self) -> None:
        """Checks the arguments, or derives further attributes from them."""


def _own_fields(cls: type) -> Iterator[tuple[str, inspect.Parameter]]:
    hints: dict[str, Any] = inspect.get_annotations(cls)
    for name, hint in hints.items():
        if typing.get_origin(hint) is ClassVar:
            continue
        default = vars(cls).get(name, _MISSING)
        is_named = isinstance(default, dataclasses.Field)
        kind = inspect.Parameter.KEYWORD_ONLY if is_named else _POSITIONAL
        default = default.default if is_named else default
        if name in OF_KERAS:
            # Keras sets this attribute itself.
            delattr(cls, name)
            hint = hint | None
        else:  # in place of a property of a base, which could not be assigned
            setattr(cls, name, None if default is _MISSING else default)
        yield name, inspect.Parameter(name, kind, default=default, annotation=hint)


def _constructor(cls: type[Named]) -> Callable[..., None]:
    fields: dict[str, inspect.Parameter] = {}
    for base in reversed(cls.__mro__):
        fields |= vars(base).get("_fields", {})
    first = inspect.Parameter("self", _POSITIONAL)
    if "name" in fields:  # as in Keras, also by position, after all others
        fields["name"] = fields.pop("name").replace(kind=_POSITIONAL)
    # Arguments by keyword only come last.
    parameters = sorted(fields.values(), key=lambda p: p.kind)
    signature = ReadableSignature([first, *parameters], return_annotation=None)

    def construct(self: Named, *args: Any, **kwargs: Any) -> None:
        try:
            values = signature.bind(self, *args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{type(self).__name__}() {e}") from None
        values.apply_defaults()
        arguments = {n: v for n, v in values.arguments.items() if n != "self"}
        of_keras = {n: arguments.pop(n) for n in OF_KERAS if n in arguments}
        before = set(vars(self))
        super(Named, self).__init__(**{**of_keras, "name": of_keras["name"] or self.default_name})
        self._of_keras.update(vars(self).keys() - before)
        for name, value in arguments.items():
            setattr(self, name, _immutable(value))
        self.__post_init__()

    construct.__name__, construct.__qualname__ = "__init__", f"{cls.__qualname__}.__init__"
    construct.__annotations__ = {p.name: p.annotation for p in parameters}
    vars(construct)["__signature__"] = signature
    return construct


def _immutable(value: Any) -> Any:
    """Returns a sequence of values as a tuple, which nobody changes later."""
    if isinstance(value, np.ndarray) and value.ndim:
        return tuple(value.tolist())
    return tuple(map(_immutable, value)) if type(value) in (list, tuple) else value


def _name(cls: type, options: Mapping[str, Any]) -> str:
    words = [re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()]
    for option in {**constructor_arguments(cls), **options}:
        declaration = argument(cls, option)
        if declaration is None:
            continue
        value = options.get(option, declaration.default)
        if option in OF_KERAS or value is inspect.Parameter.empty:
            continue  # they do not change the computation, or are missing
        text = _in_words(value)
        if option == "k":
            words += [] if value is None else ["at", text]
        elif text != _in_words(declaration.default):
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


def _serialize(value: Any) -> Any:
    # plain values are kept: when Keras 2 exports a SavedModel, it handles only objects
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) in (list, tuple):
        return list(map(_serialize, value))
    is_function = inspect.isfunction(value)
    cls: Any = type(value)
    known = value if is_function else cls
    name = f"tfrank_sel>{known.__name__}"
    is_own = of_name(name) is known
    if not (is_own and isinstance(value, Frozen)) and _has_keras():
        import keras

        return keras.saving.serialize_keras_object(value)
    if not is_own:
        raise TypeError(f"{value!r} is none of tfrank_sel, and saving it needs Keras")
    # as Keras, but without it
    if is_function:
        return {**_FUNCTION, "config": name}
    kind = {"module": cls.__module__, "class_name": cls.__name__}
    return {**kind, "config": value.get_config(), "registered_name": name}


def _deserialize(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, Frozen)):
        return value
    if isinstance(value, list):
        return list(map(_deserialize, value))
    if isinstance(value, dict):
        is_function = _FUNCTION.items() <= value.items()
        known = of_name(value["config"] if is_function else value.get("registered_name"))
        if is_function and known is not None:
            return known
        if isinstance(known, type) and (issubclass(known, Frozen) or not _has_keras()):
            return known.from_config(value["config"])  # type: ignore[attr-defined]
    import keras

    return keras.saving.deserialize_keras_object(value)


def _has_keras() -> bool:
    from tfrank_sel import numerics  # here, as it imports TensorFlow

    return numerics.NAME != "numpy"
