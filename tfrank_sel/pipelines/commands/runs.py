"""The commands `runs list` and `runs compare`."""

import typer

app = typer.Typer(no_args_is_help=True, help="Lists and compares runs.")


@app.callback()
def _commands() -> None:
    """Lists and compares runs."""
