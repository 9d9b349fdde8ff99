"""Commands, configurations, requests and files that are refused: `refusals.json`, with messages."""

import json
import pathlib
from typing import Any

ROWS: dict[str, list[Any]] = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())


def of(section: str) -> list[tuple[Any, ...]]:
    """The rows of a section, as `pytest.mark.parametrize` takes them."""
    return [tuple(row) for row in ROWS[section]]
