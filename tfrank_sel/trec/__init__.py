"""Files of TREC: evaluation as by trec_eval, comparison and fusion of runs, and their command."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.trec.comparison import Comparison as Comparison, compare as compare
    from tfrank_sel.trec.runs import (
        comb_sum as comb_sum,
        evaluate as evaluate,
        measures as measures,
        reciprocal_rank_fusion as reciprocal_rank_fusion,
    )

__getattr__, __dir__, __all__ = lazy.exported(__name__)
