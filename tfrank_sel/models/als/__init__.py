"""Factorisation by alternating least squares in compiled loops; requires the extra `als`."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.refusals import check_installed

_NEEDED = ("llvmlite", "numba", "rich", "scipy", "threadpoolctl")
check_installed("`tfrank_sel.models.als`", "als", _NEEDED)

from tfrank_sel.models.als.factorizer import RGFactorizer  # noqa: E402
from tfrank_sel.models.als.objectives import RG2, Objective, RGCross, WeightedSquare  # noqa: E402
from tfrank_sel.models.als.tuning import tune  # noqa: E402

if TYPE_CHECKING:
    from tfrank_sel.distribution import CollectiveGroup
    from tfrank_sel.models.als.alternation import ItemSolver
    from tfrank_sel.models.als.towers import fit_towers

__all__ = [
    "RG2",
    "CollectiveGroup",
    "ItemSolver",
    "Objective",
    "RGCross",
    "RGFactorizer",
    "WeightedSquare",
    "fit_towers",
    "tune",
]

# these need TensorFlow
__getattr__ = lazy.imports(
    __name__,
    (),
    {"CollectiveGroup": "..distribution", "ItemSolver": "alternation", "fit_towers": "towers"},
)


def __dir__() -> list[str]:
    return __all__
