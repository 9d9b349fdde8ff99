"""A ranker with the conventions of scikit-learn: needs the extra `sklearn`."""

from tfrank_sel.refusals import check_installed

_NEEDED = ("scipy", "sklearn")
check_installed("`tfrank_sel.Ranker`", "sklearn", _NEEDED)

from tfrank_sel.estimator.ranker import Ranker  # noqa: E402

__all__ = ["Ranker"]


def __dir__() -> list[str]:
    return __all__
