"""Messages of the command line."""

import sys
from typing import NoReturn

import typer

from tfrank_sel.launch import quiet as quiet


def fail(message: str) -> NoReturn:
    """Ends the command with one line on stderr and status 2."""
    print(" ".join(message.split()), file=sys.stderr)
    raise typer.Exit(2)
