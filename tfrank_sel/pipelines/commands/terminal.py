"""What a command shows of its errors, and what it hides of TensorFlow's start."""

import contextlib
import os
import sys
from collections.abc import Iterator

import typer


def refused(error: Exception) -> typer.Exit:
    """Prints an error of the input, and returns what a command raises to leave with status 2."""
    print(error, file=sys.stderr)
    return typer.Exit(2)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops what TensorFlow's native code prints on loading, before its log level holds."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
