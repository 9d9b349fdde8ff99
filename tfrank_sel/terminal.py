"""Terminal of commands, which shows texts of data as they are."""

from typing import Any

from rich.console import Console
from rich.text import Text

from tfrank_sel.commandline import printable


class Terminal(Console):
    """Console without markup, emoji codes and highlights, and with control characters as escapes.

    Tables and lines may hold any text: rich renders each of them by `render_str`.

    Args:
        **given: Arguments of `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)
