"""Command line of `tfrank-sel-pipelines`."""

import gc
import logging
import os

# TensorFlow reads it only once, at import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tfrank_sel.commandline import Application, Version
from tfrank_sel.pipelines.commands import run, runs, scoring
from tfrank_sel.pipelines.console import interrupts

app = Application(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(run.app)
app.add_typer(scoring.app)
app.add_typer(runs.app, name="runs")


@app.callback()
def _commands(version: Version = False) -> None:
    """Train, evaluate and publish a ranker from files of lists."""


def main() -> None:
    """Runs the command line."""
    # by default, Python searches the modules and graphs of a run for garbage for 1/15 of its time
    gc.set_threshold(20_000, 20, 100)
    # Beam warns about cloud clients that are not used here
    logging.basicConfig(level=logging.ERROR)
    # and logs with its traceback what it then raises
    logging.getLogger("apache_beam.runners.common").setLevel(logging.CRITICAL)
    interrupts.listen()
    app()


if __name__ == "__main__":
    main()
