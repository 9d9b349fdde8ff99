"""Pipelines from files of lists to a served ranker: Beam components, and runs of them.

Names are imported at their first use.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.refusals import check_installed

_NEEDED = (
    "google_crc32c",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "pydantic",
    "rich",
    "tensorflow_metadata",
    "tensorflow_serving",
    "tomlkit",
    "typer",
)
check_installed("`tfrank_sel.pipelines`", "pipelines", _NEEDED)

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run as Run, open_run as open_run

__getattr__, __dir__, __all__ = lazy.exported(__name__)
