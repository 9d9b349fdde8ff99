"""Serving of a ranker: a local endpoint compatible with TensorFlow Serving, and its client."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.errors import check_installed

_NEEDED = (
    "grpc",
    "grpc_health",
    "httptools",
    "orjson",
    "prometheus_client",
    "rich",
    "simdjson",
    "tensorflow_serving",
    "typer",
    "urllib3",
    "uvicorn",
    "uvloop",
)
check_installed("`tfrank_sel.serving`", "serving", _NEEDED)

if TYPE_CHECKING:
    from tfrank_sel.serving import client as client, deployment as deployment

__getattr__, __dir__, __all__ = lazy.exported(__name__)
