"""Terminal output of commands: errors, and suppression of TensorFlow's start-up messages."""

import sys

import typer

from tfrank_sel.launch import quiet as quiet


def refused(error: Exception) -> typer.Exit:
    """Prints an input error, and returns the exception with which a command exits with status 2."""
    print(error, file=sys.stderr)
    return typer.Exit(2)
