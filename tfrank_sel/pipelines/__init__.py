"""Pipelines from files of lists to a served ranker: Beam components, and runs of them."""

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
