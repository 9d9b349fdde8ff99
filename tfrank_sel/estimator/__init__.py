"""A ranker with the conventions of scikit-learn: needs the extra `sklearn`."""

import importlib.util

_NEEDED = ("scipy", "sklearn")
_missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
if _missing:
    raise ImportError(
        f"`tfrank_sel.Ranker` needs {', '.join(_missing)}: pip install 'tfrank_sel[sklearn]'"
    )

from tfrank_sel.estimator.ranker import Ranker  # noqa: E402

__all__ = ["Ranker"]


def __dir__() -> list[str]:
    return __all__
