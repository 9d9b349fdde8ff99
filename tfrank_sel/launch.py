"""Start of the commands, before their packages are imported."""

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator

from tfrank_sel.errors import missing_package


def run(package: str) -> None:
    """Runs the command of a package; a missing extra is one line and status 2."""
    try:
        with quiet():
            module = importlib.import_module(f"{package}.__main__")
    except ImportError as error:
        print(missing_package(error), file=sys.stderr)
        sys.exit(2)
    module.main()


# the entry points, of setup.cfg
clicks = functools.partial(run, "tfrank_sel.clicks")
engine = functools.partial(run, "tfrank_sel.search_engines")
metrics = functools.partial(run, "tfrank_sel.trec")
migrate = functools.partial(run, "tfrank_sel.migration")
pipelines = functools.partial(run, "tfrank_sel.pipelines")
recommend = functools.partial(run, "tfrank_sel.recommend")
serving = functools.partial(run, "tfrank_sel.serving")


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
