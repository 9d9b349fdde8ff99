"""What every command line has: help, `--version`, and a line for warnings and refusals."""

import contextlib
import functools
import inspect
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Annotated, Any, TypeAlias

import typer

from tfrank_sel.errors import missing_package
from tfrank_sel.version import __version__

# what a terminal obeys instead of showing it: control characters, directions, halves of surrogates
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"


def printable(text: object, also: str = "") -> str:
    """Returns text that a terminal shows, and does not obey: with control characters as escapes.

    Args:
        text: The text; tabs and line feeds stay.
        also: Further characters to escape, as in a class of a regular expression.

    Example:
        >>> print(printable("\x1b[31mred"))
        \\u001b[31mred
    """
    return re.sub(f"[{_CONTROLS}{also}]", lambda x: f"\\u{ord(x[0]):04x}", str(text))


def tell(text: object, file: IO[str] | None = None) -> None:
    """Prints text of data and names, on the standard error output by default."""
    print(printable(text), file=file or sys.stderr)


def shell(*words: object) -> str:
    """Returns a command whose words a shell takes as they are, in a line.

    Example:
        >>> print(shell("run", "--output", "my runs/1"))
        run --output 'my runs/1'
    """

    def quote(word: str) -> str:
        is_plain = printable(word, r"\n") == word
        return shlex.quote(word) if is_plain else "$'" + printable(word, r"\\'\n") + "'"

    return " ".join(map(quote, map(str, words)))


def _print(is_asked: bool) -> None:
    if is_asked:
        print(f"tfrank_sel {__version__}")
        raise typer.Exit


# an argument of the callback of an application
Version: TypeAlias = Annotated[
    bool, typer.Option("--version", callback=_print, is_eager=True, help="Print the version.")
]


class Application(typer.Typer):
    """Commands whose help is their docstrings, wrapped to the width of the terminal.

    Args:
        *refuses: The errors that tell of invalid input: one ends a command with its message on the
            standard error output and status 2.
        **given: Arguments of `typer.Typer`.
    """

    def __init__(self, *refuses: type[Exception], **given: Any) -> None:
        super().__init__(**given)
        self._refuses = refuses or (OSError, ValueError)

    def command(self, name: str | None = None, **given: Any) -> Callable[[Any], Any]:
        def decorate(function: Callable[..., Any]) -> Any:
            paragraphs = (inspect.getdoc(function) or "").split("\n\n")
            text = "\n\n".join(" ".join(x.split()) for x in paragraphs)

            @functools.wraps(function)
            def take(*args: Any, **kwargs: Any) -> None:
                try:
                    function(*args, **kwargs)
                except ImportError as error:
                    tell(missing_package(error))
                    raise typer.Exit(2) from error
                except self._refuses as error:
                    tell(error)
                    raise typer.Exit(2) from error

            return super(Application, self).command(name, help=text, **given)(take)

        return decorate


Group: TypeAlias = tuple[Sequence[inspect.Parameter], Callable[..., Any]]


def group_parameters(
    command: Callable[..., None], groups: Mapping[str, Group]
) -> Callable[..., None]:
    """Gives a command other parameters in the place of some of its own.

    Args:
        command: The command.
        groups: For each parameter, those in its place, and the function that makes its value of
            theirs.
    """
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        parameters += groups[name][0] if name in groups else [parameter]

    @functools.wraps(command)
    def grouped_command(**values: Any) -> None:
        for name, (own, made) in groups.items():
            values[name] = made(**{x.name: values.pop(x.name) for x in own})
        command(**values)

    kind = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([x.replace(kind=kind) for x in parameters])
    vars(grouped_command)["__signature__"] = signature
    return grouped_command


@contextlib.contextmanager
def log_warnings(pass_on: Callable[[str], object] | None = None) -> Iterator[None]:
    """Tells each warning as one line, also before an error; on the standard error by default."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for message in dict.fromkeys(str(x.message) for x in found):
                tell(f"Warning: {message}") if pass_on is None else pass_on(message)
