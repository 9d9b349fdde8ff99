"""Terminal output of commands: errors, and suppression of TensorFlow's start-up messages."""

import contextlib
import os
import sys
from collections.abc import Iterator

import typer


def refused(error: Exception) -> typer.Exit:
    """Prints an input error, and returns the exception with which a command exits with status 2."""
    print(error, file=sys.stderr)
    return typer.Exit(2)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the output of TensorFlow's native code on import, before its log level applies."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
