"""A ranker with the conventions of scikit-learn: needs the extra `sklearn`."""

from tfrank_sel import lazy
from tfrank_sel.errors import check_installed

_NEEDED = ("scipy", "sklearn")
check_installed("`tfrank_sel.Ranker`", "sklearn", _NEEDED)

from tfrank_sel.estimator.ranker import Ranker as Ranker  # noqa: E402

__getattr__, __dir__, __all__ = lazy.exported(__name__)
