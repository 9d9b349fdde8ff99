"""Models that score the items of lists.

The factorisation by alternating least squares is in `tfrank_sel.models.als`, which requires the
extra `als`.
"""

from tfrank_sel import lazy
from tfrank_sel.models.boosted_trees import BoostedTrees
from tfrank_sel.models.ensemble import Ensemble
from tfrank_sel.models.explanation import Contributions, explain
from tfrank_sel.models.layers import CosineClassifier, LogQCorrection, SoftTopK
from tfrank_sel.models.preparation import Preparation, WithinList
from tfrank_sel.models.recalibrated import Recalibrated, recalibrate
from tfrank_sel.models.scorers import Dropout, ListScorer, Perceptron, Prepared, Scorer, TwoTower
from tfrank_sel.models.sequences import SequenceEncoder
from tfrank_sel.models.summary import moments
from tfrank_sel.models.transfer import warm_start

__all__ = [
    "BoostedTrees",
    "Contributions",
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
    "SequenceEncoder",
    "SoftTopK",
    "TwoTower",
    "WithinList",
    "als",
    "explain",
    "moments",
    "recalibrate",
    "warm_start",
]

__getattr__ = lazy.imports(__name__, ["als"])


def __dir__() -> list[str]:
    return __all__
