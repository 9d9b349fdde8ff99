"""Ranking metrics, imported at their first use, with TensorFlow."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.metrics import (
        averaging as averaging,
        significance as significance,
        ties as ties,
    )
    from tfrank_sel.metrics.base import (
        BinaryMetric as BinaryMetric,
        ComparingMetric as ComparingMetric,
        ListwiseMetric as ListwiseMetric,
        RankedMetric as RankedMetric,
    )
    from tfrank_sel.metrics.calibration import (
        ECE as ECE,
        PCOC as PCOC,
        BrierScore as BrierScore,
        ItemMetric as ItemMetric,
        LogitNorm as LogitNorm,
        Reliability as Reliability,
    )
    from tfrank_sel.metrics.correlation import (
        ARP as ARP,
        AUC as AUC,
        OPA as OPA,
        BPref as BPref,
        KendallTau as KendallTau,
        SpearmanRho as SpearmanRho,
    )
    from tfrank_sel.metrics.diversity import (
        AlphaDCG as AlphaDCG,
        AlphaNDCG as AlphaNDCG,
        DiversityMetric as DiversityMetric,
        PrecisionIA as PrecisionIA,
        SubtopicRecall as SubtopicRecall,
    )
    from tfrank_sel.metrics.evaluator import Evaluator as Evaluator
    from tfrank_sel.metrics.presets import tfr as tfr, trec_eval as trec_eval
    from tfrank_sel.metrics.ranked import (
        DCG as DCG,
        ERR as ERR,
        MAP as MAP,
        MRR as MRR,
        NDCG as NDCG,
        PWA as PWA,
        RBP as RBP,
        Hits as Hits,
        Precision as Precision,
        Recall as Recall,
        RPrecision as RPrecision,
    )
    from tfrank_sel.metrics.runs import (
        comb_sum as comb_sum,
        compare as compare,
        reciprocal_rank_fusion as reciprocal_rank_fusion,
    )
    from tfrank_sel.metrics.selective import (
        ExcessError as ExcessError,
        RegionAbsoluteError as RegionAbsoluteError,
        RegionDivergence as RegionDivergence,
        by_region as by_region,
        quantile_edges as quantile_edges,
    )

__getattr__, __dir__, __all__ = lazy.exported(__name__)
