"""Ranking metrics."""

from tfrank_sel.metrics.base import ListwiseMetric as ListwiseMetric
from tfrank_sel.metrics.gain import DCG as DCG, NDCG as NDCG
from tfrank_sel.metrics.logit_norm import LogitNorm as LogitNorm
from tfrank_sel.metrics.precision import (
    MAP as MAP,
    Precision as Precision,
    Recall as Recall,
)
from tfrank_sel.metrics.reciprocal_rank import MRR as MRR
from tfrank_sel.metrics.selective import (
    RegionAbsoluteError as RegionAbsoluteError,
    RegionDivergence as RegionDivergence,
    by_region as by_region,
    quantile_edges as quantile_edges,
)
