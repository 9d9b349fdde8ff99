"""Models that score the items of lists, imported at their first use.

The factorisation by alternating least squares is in `tfrank_sel.models.als`, which requires the
extra `als`.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.models import als as als, boosted_trees as boosted_trees
    from tfrank_sel.models.boosted_trees import BoostedTrees as BoostedTrees
    from tfrank_sel.models.explanation import Contributions as Contributions, explain as explain
    from tfrank_sel.models.layers import (
        CosineClassifier as CosineClassifier,
        LogQCorrection as LogQCorrection,
        SoftTopK as SoftTopK,
    )
    from tfrank_sel.models.preparation import Preparation as Preparation, WithinList as WithinList
    from tfrank_sel.models.recalibrated import (
        Recalibrated as Recalibrated,
        recalibrate as recalibrate,
    )
    from tfrank_sel.models.scorers import (
        Dropout as Dropout,
        Ensemble as Ensemble,
        ListScorer as ListScorer,
        Perceptron as Perceptron,
        Prepared as Prepared,
        Scorer as Scorer,
        TwoTower as TwoTower,
    )
    from tfrank_sel.models.sequences import SequenceEncoder as SequenceEncoder
    from tfrank_sel.models.summary import moments as moments
    from tfrank_sel.models.transfer import warm_start as warm_start

__getattr__, __dir__, __all__ = lazy.exported(__name__)
