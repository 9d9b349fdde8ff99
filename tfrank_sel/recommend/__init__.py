"""Recommendations in two stages, candidates and their order; requires the extra `recommend`."""

from tfrank_sel import lazy
from tfrank_sel.errors import check_installed

_NEEDED = ("lightgbm", "llvmlite", "numba", "pyarrow", "rich", "scipy", "threadpoolctl", "typer")
check_installed("`tfrank_sel.recommend`", "recommend", _NEEDED)

from tfrank_sel.recommend.candidates import (  # noqa: E402
    Factors as Factors,
    Neighbours as Neighbours,
    Popular as Popular,
    Source as Source,
    Successors as Successors,
)
from tfrank_sel.recommend.encoder import Encoder as Encoder  # noqa: E402
from tfrank_sel.recommend.recommender import Recommender as Recommender  # noqa: E402

__getattr__, __dir__, __all__ = lazy.exported(__name__)
