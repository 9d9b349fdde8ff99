"""Models that score the items of lists.

The factorisation by alternating least squares is in `tfrank_sel.models.als`, which requires the
extra `als`.
"""

from tfrank_sel import surface
from tfrank_sel.models.boosted_trees import BoostedTrees
from tfrank_sel.models.cosine_classifier import CosineClassifier
from tfrank_sel.models.dropout import Dropout
from tfrank_sel.models.ensemble import Ensemble
from tfrank_sel.models.list_scorer import ListScorer
from tfrank_sel.models.log_q import LogQCorrection
from tfrank_sel.models.perceptron import Perceptron
from tfrank_sel.models.preparation import Preparation
from tfrank_sel.models.prepared import Prepared
from tfrank_sel.models.recalibrated import Recalibrated, recalibrate
from tfrank_sel.models.scorer import Scorer
from tfrank_sel.models.soft_top_k import SoftTopK
from tfrank_sel.models.summary import moments
from tfrank_sel.models.transfer import warm_start
from tfrank_sel.models.two_tower import TwoTower
from tfrank_sel.models.within_list import WithinList

__all__ = [
    "BoostedTrees",
    "CosineClassifier",
    "Dropout",
    "Ensemble",
    "ListScorer",
    "LogQCorrection",
    "Perceptron",
    "Preparation",
    "Prepared",
    "Recalibrated",
    "Scorer",
    "SoftTopK",
    "TwoTower",
    "WithinList",
    "als",
    "moments",
    "recalibrate",
    "warm_start",
]

__getattr__ = surface.lazily(__name__, ["als"])


def __dir__() -> list[str]:
    return __all__
