"""The command line: `tfrank-sel-plots`, or `python -m tfrank_sel.plots`."""

import pathlib
import sys
from typing import Annotated

try:
    import rich.console
    import rich.progress
    import typer
except ModuleNotFoundError as error:
    raise ImportError(
        f"tfrank-sel-plots needs {error.name}: pip install 'tfrank_sel[plots]'"
    ) from error

from tfrank_sel.commandline import Application, Version
from tfrank_sel.plots.catalogue import FIGURES, save_figures

app = Application(no_args_is_help=True)


@app.callback()
def pictures(version: Version = False) -> None:
    """Draw the figures of Selective Matching Losses."""


@app.command()
def figures(
    output: Annotated[pathlib.Path, typer.Option(help="Output folder.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Number of a figure, such as H.6; may be repeated.")
    ] = None,
    dpi: Annotated[int, typer.Option(min=20, max=600, help="Dots per inch.")] = 100,
) -> None:
    """Write the figures as PNG files, and a page with all of them, index.html."""
    names = only or list(FIGURES)
    console = rich.console.Console(stderr=True)
    try:
        files = save_figures(output, names, dpi)
        for path in rich.progress.track(files, "Drawing", len(names) + 1, console=console):
            print(path)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error


def main() -> None:
    """Runs the command line; a wrong name or folder ends it with a message and status 2."""
    app()


if __name__ == "__main__":
    main()
