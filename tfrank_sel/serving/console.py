"""Messages of the command line."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Ends the command with one line on stderr and status 2."""
    print(" ".join(message.split()), file=sys.stderr)
    raise typer.Exit(2)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides the messages that TensorFlow prints at start and that no setting turns off."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
