"""Factorisation by alternating least squares in compiled loops; requires the extra `als`."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.errors import check_installed

_NEEDED = ("llvmlite", "numba", "rich", "scipy", "threadpoolctl")
check_installed("`tfrank_sel.models.als`", "als", _NEEDED)

from tfrank_sel.models.als.factorizer import RGFactorizer as RGFactorizer  # noqa: E402
from tfrank_sel.models.als.objectives import (  # noqa: E402
    RG2 as RG2,
    Objective as Objective,
    RGCross as RGCross,
    WeightedSquare as WeightedSquare,
)
from tfrank_sel.models.als.tuning import tune as tune  # noqa: E402

# these need TensorFlow
if TYPE_CHECKING:
    from tfrank_sel.distribution import CollectiveGroup as CollectiveGroup
    from tfrank_sel.models.als.alternation import ItemSolver as ItemSolver
    from tfrank_sel.models.als.towers import fit_towers as fit_towers

__getattr__, __dir__, __all__ = lazy.exported(__name__)
