"""Serving of a ranker: a local endpoint compatible with TensorFlow Serving, and its client."""

import importlib.util

from tfrank_sel import lazy

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
_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
if _missing:
    raise ImportError(
        f"`tfrank_sel.serving` needs {', '.join(_missing)}: pip install 'tfrank_sel[serving]'"
    )

__getattr__ = lazy.imports(__name__, ["client", "deployment"])
