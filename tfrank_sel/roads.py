"""Roads beside the core, which finds them here, by name, and works where one is left out.

A road imports the public names of the core. The core imports no road: where a function or a
setting leads to one, it loads the road at this place, as `export.onnx` and `[clicks]` of a
configuration do.
"""

import importlib
import importlib.util
from types import ModuleType

PACKAGES = {
    "clicks": "tfrank_sel.clicks",
    "engines": "tfrank_sel.search_engines",
    "migration": "tfrank_sel.presets",
    "onnx": "tfrank_sel.onnx",
    "tfx": "tfrank_sel.pipelines.tfx",
    "trec": "tfrank_sel.trec",
}


def exists(road: str) -> bool:
    """Whether a road is a part of this installation."""
    try:
        spec = importlib.util.find_spec(PACKAGES[road])
    except ImportError:
        # The package around the road needs an extra.
        return False
    # A folder that is left without code is no road.
    return spec is not None and spec.origin is not None


def load(road: str, user: str, module: str = "") -> ModuleType:
    """Imports a road.

    Args:
        road: Its name in `PACKAGES`.
        user: What leads to it, for the error.
        module: A module of its package; by default, the package.

    Raises:
        ImportError: If the road is not a part of this installation, or needs a package that is not
            installed.

    Example:
        >>> load("onnx", "`export.onnx`").__name__
        'tfrank_sel.onnx'
    """
    package = PACKAGES[road]
    if not exists(road):
        raise ImportError(f"{user} needs {package}, which this installation leaves out")
    return importlib.import_module(f"{package}.{module}" if module else package)
