"""What every command line has: `--version`, and a line for what it refuses."""

import sys
from typing import Annotated, TypeAlias

import typer

from tfrank_sel.version import __version__


def _print(is_asked: bool) -> None:
    if is_asked:
        print(f"tfrank_sel {__version__}")
        raise typer.Exit


# an argument of the callback of an application
Version: TypeAlias = Annotated[
    bool, typer.Option("--version", callback=_print, is_eager=True, help="Print the version.")
]


def refused(problem: object) -> typer.Exit:
    """Prints a problem of the input; returns the exception that ends a command with status 2."""
    print(problem, file=sys.stderr)
    return typer.Exit(2)
