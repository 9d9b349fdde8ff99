"""Pipelines from files of lists to a served ranker: Beam components, and runs of them."""

import importlib.util

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
_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
if _missing:
    raise ImportError(
        f"`tfrank_sel.pipelines` needs {', '.join(_missing)}: pip install 'tfrank_sel[pipelines]'"
    )
