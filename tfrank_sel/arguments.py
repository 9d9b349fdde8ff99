"""Type checks of constructor arguments against their annotations."""

import collections.abc
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.errors import question, received, refusal

# a bound of an interval, which may be infinite; a `float` must be finite
Bound: TypeAlias = Annotated[float, "a number, finite or not, but not NaN"]


class Range(NamedTuple):
    """A range of numbers, as the second part of an `Annotated` type, also of a model of pydantic.

    Attributes:
        words: Description of the range.
        ge: The least number.
        gt: The number that all numbers are above; NaN for none.
        le: The greatest number.
        lt: The number that all numbers are below; NaN for none.
    """

    words: str
    ge: float = -math.inf
    gt: float = math.nan
    le: float = math.inf
    lt: float = math.nan

    def __repr__(self) -> str:
        return self.words

    def holds(self, number: float) -> bool:
        """Whether a number is inside."""
        return self.ge <= number <= self.le and not (number <= self.gt or number >= self.lt)

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema  # which only the pipelines need

        return core_schema.no_info_after_validator_function(self._inside, handler(source))

    def _inside(self, number: float) -> float:
        if not self.holds(number):
            raise ValueError(f"must be {self.words}")
        return number


POSITIVE, AT_LEAST_0 = Range("positive", gt=0.0), Range("at least 0", ge=0.0)
Positive: TypeAlias = Annotated[float, POSITIVE]
AtLeast0: TypeAlias = Annotated[float, AT_LEAST_0]
Share: TypeAlias = Annotated[float, Range("in [0, 1]", ge=0.0, le=1.0)]
Rate: TypeAlias = Annotated[float, Range("in [0, 1)", ge=0.0, lt=1.0)]
OpenShare: TypeAlias = Annotated[float, Range("in (0, 1)", gt=0.0, lt=1.0)]
Count: TypeAlias = Annotated[int, POSITIVE]
Natural: TypeAlias = Annotated[int, AT_LEAST_0]
Cutoff: TypeAlias = Count | None
StrPath: TypeAlias = str | os.PathLike[str]

OF_KERAS = ("name", "reduction", "dtype")  # arguments that classes of Keras take and keep
MOST_NAMED = 12  # number of choices listed in a message
F = TypeVar("F", bound=Callable[..., Any])


class Checked:
    """Mixin: the constructor raises an error for arguments of the wrong type or range.

    An `int` may be a NumPy integer, but not a `bool`; numbers of NumPy become those of Python. A
    `float` is any finite real number; a `Bound` may also be infinite. A `Callable` must not be a
    class. A `Sequence` may be an array, but not a string. Defaults are always accepted. Arguments
    with another annotation that is not a class are not checked. Arguments passed on by `**kwargs`
    are checked by the annotations of the bases.

    Raises:
        TypeError: If an argument has the wrong type, or there is none of that name.
        ValueError: If a number is NaN, a `float` is infinite, or a number is outside of the `Range`
            of its annotation.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_plain(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        _check_names(cls, kwargs)
        for name, value in passed_arguments(cls, args, kwargs).items():
            _check(cls.__name__, name, argument(cls, name), value)
        make: Callable[..., Self] = super().__new__
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    def _complete(self) -> None:
        """Is called when the constructor has ended."""

    def __repr__(self) -> str:
        """Returns the class with the arguments that differ from their defaults."""
        cls: type = type(self)
        values = {
            name: (repr(getattr(self, name, x.default)), repr(x.default))
            for name in (*constructor_arguments(cls), *vars(self).get("_passed_on", ()))
            if name not in OF_KERAS and (x := argument(cls, name))
        }
        shown = ", ".join(f"{name}={x}" for name, (x, default) in values.items() if x != default)
        return f"{cls.__name__}({shown})"


class ReadableSignature(inspect.Signature):
    """A signature whose text, as in `help`, is a call with the defaults, without types."""

    def __str__(self) -> str:
        return str(self._brief())

    def format(self, **given: Any) -> str:
        """Returns the text, as Python 3.13 asks for it."""
        return self._brief().format(**given)

    def _brief(self) -> Any:
        parameters = self.parameters.values()
        return inspect.Signature(
            [p.replace(annotation=p.empty, default=_Brief.of(p.default)) for p in parameters]
        )


class _Brief(str):
    """A text that is its own `repr`."""

    __repr__ = str.__str__

    @classmethod
    def of(cls, default: Any) -> Any:
        if isinstance(default, Checked):
            return cls(Checked.__repr__(default))  # shorter than that of a dataclass
        return cls(default.__name__) if inspect.isfunction(default) else default


def take_plain(cls: type) -> None:
    """Makes the constructor of a class convert numbers of NumPy to those of Python.

    Those of Python have no dtype of their own, so that a graph takes them beside any tensor.
    """
    construct = vars(cls).get("__init__")
    if construct is None or hasattr(construct, "__wrapped__"):
        return

    @functools.wraps(construct)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *map(_plain, args), **{name: _plain(x) for name, x in kwargs.items()})
        if type(self).__init__ is init:  # not a base of what is being constructed
            self._complete()

    # Keras reads the signature of the constructor from here.
    vars(init)["__signature__"] = ReadableSignature.from_callable(construct)
    type.__setattr__(cls, "__init__", init)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


class Argument(NamedTuple):
    """An argument of a constructor.

    Attributes:
        hint: Annotated type; `Any` without an annotation.
        default: Default value; `inspect.Parameter.empty` for a required argument.
        is_own: Whether it belongs to the class's own constructor and is not passed on to a base.
    """

    hint: Any
    default: Any
    is_own: bool


@functools.cache
def constructor_arguments(cls: type) -> Mapping[str, Argument]:
    """Returns the arguments of a constructor, by name: its own, and those that it passes on.

    A constructor with `**kwargs` passes on the keyword-only arguments of its bases.
    """
    arguments: dict[str, Argument] = {}
    for base in (c for c in cls.__mro__ if "__init__" in vars(c)):
        own = not arguments
        if not own and not issubclass(base, Checked):
            break  # a class of Keras, which checks its own arguments
        constructor = vars(base)["__init__"]
        hints = _hints(constructor)
        _, *parameters = inspect.signature(constructor).parameters.values()
        for p in parameters:
            if p.kind is p.KEYWORD_ONLY or (own and p.kind is p.POSITIONAL_OR_KEYWORD):
                is_own = own and p.name not in OF_KERAS
                arguments.setdefault(p.name, Argument(hints.get(p.name, Any), p.default, is_own))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return types.MappingProxyType(arguments)


def argument(cls: type, name: str) -> Argument | None:
    """Returns an argument of a constructor, or else of a base that it may be passed on to."""
    bases: list[type] = [base for base in cls.__mro__ if issubclass(base, Checked)]
    arguments = (constructor_arguments(base) for base in bases)
    return next((names[name] for names in arguments if name in names), None)


@functools.cache
def _positions(cls: type) -> tuple[str, ...]:
    """The names of the arguments by position, also those that `*args` passes on."""
    names = list[str]()
    for base in (c for c in cls.__mro__ if "__init__" in vars(c)):
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        names += [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            break
    return tuple(names)


@functools.cache
def _takes_any_name(cls: type) -> bool:
    """Whether an unknown name is passed on, to Keras or by a `**kwargs` without names."""
    for base in (c for c in cls.__mro__ if "__init__" in vars(c)):
        constructor = vars(base)["__init__"]
        parameters = inspect.signature(constructor).parameters.values()
        rest = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        if not issubclass(base, Checked):
            return True
        if not rest:
            return False
        if typing.get_origin(_hints(constructor).get(rest[0])) is not typing.Unpack:
            return True
    return True


def passed_arguments(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values passed in a call of a constructor, by argument name."""
    return {**dict(zip(_positions(cls), args, strict=False)), **kwargs}


def check_arguments(function: F) -> F:
    """Makes a function check its arguments by their annotations, as in `Checked`."""
    parameters = inspect.signature(function).parameters
    arguments = {
        name: Argument(p.annotation, p.default, True)
        for name, p in parameters.items()
        if p.annotation is not p.empty  # as that of `self`
    }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in {**dict(zip(parameters, args, strict=False)), **kwargs}.items():
            _check(function.__name__, name, arguments.get(name), value)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def accepted_values(hint: Any, default: Any = inspect.Parameter.empty) -> str:
    """Describes the accepted values of an argument, such as "an integer or None".

    Args:
        hint: Annotated type.
        default: Default value, which serves as an example of a function.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(accepted_values(part, default) for part in parts)
    if origin is Annotated:
        return str(parts[1]) if hint == Bound else accepted_values(parts[0], default)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is collections.abc.Callable:
        example = getattr(default, "__qualname__", None)
        return "a function" + (f" such as {default.__module__}.{example}" if example else "")
    if origin is collections.abc.Sequence:
        of_what = "" if parts[0] is Any else f" in which each item is {accepted_values(parts[0])}"
        return f"a sequence{of_what}"
    if origin is collections.abc.Mapping:
        return f"a mapping in which each key is {accepted_values(parts[0])}"
    return _of_kind(origin or hint)


def check_object(name: str, value: object, kind: type) -> None:
    """Raises a TypeError unless `value`, the argument `name` of a function, is of the class."""
    if not isinstance(value, kind):
        raise TypeError(received(f"`{name}` must be {accepted_values(kind)}", **{name: value}))


def number_array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Converts the argument `name` of a function to float64, or raises a ValueError."""
    try:
        array = np.asarray(values)
    except ValueError:  # of lists of several lengths
        description = "rows of unequal length"
    else:
        if array.dtype.kind in "biuf":
            return array.astype(np.float64)
        description = "None" if values is None else f"{type(values).__name__} of {array.dtype}"
    raise refusal(f"`{name}` must be an array of numbers", description)


def check_heads(hidden_units: collections.abc.Sequence[int], num_heads: int) -> None:
    """Checks that the heads of an attention can share the units of the last layer."""
    if num_heads and (not hidden_units or hidden_units[-1] % num_heads):
        expected = "`num_heads` must divide the last of `hidden_units` or be 0"
        raise refusal(expected, hidden_units=hidden_units, num_heads=num_heads)


_WORDS = {
    int: "an integer",
    float: "a finite number",
    bool: "True or False",
    str: "a string",
    types.NoneType: "None",
    Any: "anything",
}


def _check_names(cls: type, names: Iterable[str]) -> None:
    known = constructor_arguments(cls)
    unknown = [name for name in names if name not in {*known, *OF_KERAS}]
    if unknown and not _takes_any_name(cls):
        expected = f"{cls.__name__} takes {', '.join(known)}.{question(unknown[0], known)}"
        raise TypeError(received(expected, *unknown))


def _check(owner: str, name: str, argument: Argument | None, value: Any) -> None:
    if argument is None or value is argument.default:
        return
    if _fits(argument.hint, value):
        if outside := _outside(argument.hint, value):
            raise refusal(f"`{name}` must be {outside}", f"{name}={value}")
        return
    kind = ValueError if _fits(argument.hint, value, finite=False) else TypeError
    expected = f"`{name}` of {owner} must be {accepted_values(argument.hint, argument.default)}"
    raise kind(received(expected, f"{name}={value!r}"))


def _fits(hint: Any, value: Any, finite: bool = True) -> bool:
    """Whether a value is of a type; with `finite`, its numbers must also be finite, if required."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(part, value, finite) for part in parts)
    if hint == Bound:
        return _fits(float, value, finite=False) and not (finite and math.isnan(value))
    if origin is Annotated:
        return _fits(parts[0], value, finite)
    if hint is float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_number and not (finite and not math.isfinite(value))
    if hint is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, (bool, np.bool_))
    if origin is collections.abc.Callable:
        return callable(value) and not isinstance(value, type)
    if origin is collections.abc.Sequence:
        if isinstance(value, (str, bytes)):
            return False
        is_array = isinstance(value, np.ndarray) and value.ndim > 0
        is_sequence = is_array or isinstance(value, collections.abc.Sequence)
        return is_sequence and all(_fits(parts[0], item, finite) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(_fits(parts[0], key) for key in value)
    kind = origin or hint
    is_class = isinstance(kind, type) and not getattr(kind, "_is_protocol", False)
    return not is_class or isinstance(value, kind)


def _outside(hint: Any, value: Any) -> str:
    """Describes the range of a type that a value of the type is outside of; empty if inside."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        outside = [_outside(part, value) for part in parts if _fits(part, value)]
        none = " or None" if types.NoneType in parts else ""
        return outside[0] + none if all(outside) else ""
    if origin is collections.abc.Sequence:
        outside = [words for item in value if (words := _outside(parts[0], item))]
        return f"a sequence in which each item is {outside[0]}" if outside else ""
    if origin is Annotated and isinstance(parts[1], Range) and not parts[1].holds(value):
        return parts[1].words
    return ""


def _hints(constructor: Any) -> Mapping[str, Any]:
    try:
        # unwrapped: from Python 3.14 on, `functools.wraps` copies no annotations that were set
        return typing.get_type_hints(inspect.unwrap(constructor), include_extras=True)
    except NameError:  # a type that is imported only for type checkers
        return {}


def _of_kind(kind: type) -> str:
    """Names a class, or the public classes of a base if there are few, and their package."""
    choices = {c.__name__: c.__module__ for c in _concrete(kind)}
    if not choices:
        return f"an object of {kind.__name__}"
    folders = {*choices.values()}
    folder = folders.pop() if len(folders) == 1 else kind.__module__.rpartition(".")[0]
    *names, last = sorted(choices)
    if len(choices) > MOST_NAMED:
        names, last = [], f"a subclass of {kind.__name__}"
    return f"an object of {' or '.join([', '.join(names), last] if names else [last])} ({folder})"


def _concrete(kind: type) -> Iterator[type]:
    """Yields the concrete subclasses of a class in this package."""
    if kind.__module__.startswith("tfrank_sel"):
        if not inspect.isabstract(kind) and not kind.__name__.startswith("_"):
            yield kind
        subclasses: list[type] = kind.__subclasses__()
        for subclass in subclasses:
            yield from _concrete(subclass)
