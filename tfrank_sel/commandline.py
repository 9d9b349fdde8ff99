"""What every command line has: help, `--version`, and a line for warnings and refusals."""

import contextlib
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from tfrank_sel.refusals import missing
from tfrank_sel.version import __version__


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
                except ModuleNotFoundError as error:
                    print(missing(error), file=sys.stderr)
                    raise typer.Exit(2) from error
                except self._refuses as error:
                    print(error, file=sys.stderr)
                    raise typer.Exit(2) from error

            return super(Application, self).command(name, help=text, **given)(take)

        return decorate


Group: TypeAlias = tuple[Sequence[inspect.Parameter], Callable[..., Any]]


def grouped(command: Callable[..., None], groups: Mapping[str, Group]) -> Callable[..., None]:
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
def told(tell: Callable[[str], object] | None = None) -> Iterator[None]:
    """Tells each warning as one line, on the standard error output by default."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(x.message) for x in found):
        print(f"Warning: {message}", file=sys.stderr) if tell is None else tell(message)
