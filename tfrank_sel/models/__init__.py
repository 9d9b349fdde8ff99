"""Models that score the items of lists, imported at their first use.

The factorisation by alternating least squares is in `tfrank_sel.models.als`, which requires the
extra `als`.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.models import als
    from tfrank_sel.models.boosted_trees import BoostedTrees
    from tfrank_sel.models.ensemble import Ensemble
    from tfrank_sel.models.explanation import Contributions, explain
    from tfrank_sel.models.layers import CosineClassifier, LogQCorrection, SoftTopK
    from tfrank_sel.models.preparation import Preparation, WithinList
    from tfrank_sel.models.recalibrated import Recalibrated, recalibrate
    from tfrank_sel.models.scorers import (
        Dropout,
        ListScorer,
        Perceptron,
        Prepared,
        Scorer,
        TwoTower,
    )
    from tfrank_sel.models.sequences import SequenceEncoder
    from tfrank_sel.models.summary import moments
    from tfrank_sel.models.transfer import warm_start

_HOMES = {
    "boosted_trees": "BoostedTrees",
    "ensemble": "Ensemble",
    "explanation": "Contributions explain",
    "layers": "CosineClassifier LogQCorrection SoftTopK",
    "preparation": "Preparation WithinList",
    "recalibrated": "Recalibrated recalibrate",
    "scorers": "Dropout ListScorer Perceptron Prepared Scorer TwoTower",
    "sequences": "SequenceEncoder",
    "summary": "moments",
    "transfer": "warm_start",
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

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

__getattr__ = lazy.imports(__name__, ["als", *_HOMES], _NAMES)


def __dir__() -> list[str]:
    return __all__
