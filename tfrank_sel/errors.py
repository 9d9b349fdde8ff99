"""The sentence of a refusal: what must hold, and what was received, or what to install."""

import contextlib
import difflib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def received(expected: str, *values: object, **named: object) -> str:
    """Returns the text of an error about values that cannot be accepted.

    Args:
        expected: What must hold, as a sentence; its full stop may be left out.
        *values: What was received, as text or a value.
        **named: The same, with the names of arguments.

    Example:
        >>> received("`lower` must be below `upper`", lower=2.0, upper=1.0)
        '`lower` must be below `upper`. Received: lower=2.0, upper=1.0'
        >>> received("`qid` or `group` must be given", "both")
        '`qid` or `group` must be given. Received: both'
    """
    shown = [*map(str, values), *(f"{name}={_quote(x)}" for name, x in named.items())]
    end = "" if expected.endswith((".", "?", ":", "!")) else "."
    return f"{expected}{end} Received: {', '.join(shown)}"


def refusal(expected: str, *values: object, **named: object) -> ValueError:
    """Returns the error with the text of `received`."""
    return ValueError(received(expected, *values, **named))


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Returns up to three of the names that are spelt most like another, in upper or lower case."""
    by_lower = {x.lower(): x for x in names}
    return [by_lower[x] for x in difflib.get_close_matches(name.lower(), by_lower)]


def question(name: str, names: Iterable[str]) -> str:
    """Asks for the names that were perhaps meant, after a space; empty if none is near.

    Example:
        >>> question("topk", ["k", "top_k"])
        " Did you mean 'top_k'?"
    """
    near = " or ".join(map(repr, nearest(name, names)))
    return f" Did you mean {near}?" if near else ""


def missing_package(error: ImportError) -> str:
    """Returns an error about a missing package in one line, which says what to install."""
    if error.name in ("keras", "tensorflow"):
        return "This needs TensorFlow and Keras: pip install tensorflow keras"
    return " ".join(str(error).split())


@contextlib.contextmanager
def require_extra(user: str, extra: str, package: str | None = None) -> Iterator[None]:
    """Refuses an import of a package that is not installed, and names the extra that has it.

    Args:
        user: What needs it.
        extra: The extra.
        package: Its name, if it is not that of the module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise _not_installed(user, extra, package or error.name) from error


def check_installed(user: str, extra: str, modules: Sequence[str]) -> None:
    """Raises an error about those modules of an extra that are not installed."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if absent:
        raise _not_installed(user, extra, ", ".join(absent))


def _not_installed(user: str, extra: str, packages: object) -> ImportError:
    return ImportError(f"{user} needs {packages}: pip install 'tfrank_sel[{extra}]'")


def _quote(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
