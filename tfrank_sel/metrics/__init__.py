"""Ranking metrics."""

from tfrank_sel.metrics.base import ListwiseMetric as ListwiseMetric
from tfrank_sel.metrics.gain import NDCG as NDCG
from tfrank_sel.metrics.reciprocal_rank import MRR as MRR
