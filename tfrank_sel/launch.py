"""Start of the commands, before their packages are imported."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tfrank_sel.refusals import missing

COMMANDS = {
    "tfrank-sel-clicks": "tfrank_sel.clicks",
    "tfrank-sel-engine": "tfrank_sel.engines",
    "tfrank-sel-metrics": "tfrank_sel.trec",
    "tfrank-sel-migrate": "tfrank_sel.migration",
    "tfrank-sel-pipelines": "tfrank_sel.pipelines",
    "tfrank-sel-serving": "tfrank_sel.serving",
}


def main() -> None:
    """Runs the command of this process; a missing extra is one line and status 2."""
    package = COMMANDS[Path(sys.argv[0]).stem]
    try:
        with quiet():
            module = importlib.import_module(f"{package}.__main__")
    except ImportError as error:
        print(missing(error), file=sys.stderr)
        sys.exit(2)
    module.main()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides the messages that TensorFlow prints at start and that no setting turns off."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # 2 tells of an absent GPU
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
