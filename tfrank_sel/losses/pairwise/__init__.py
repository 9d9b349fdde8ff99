"""Pairwise losses: each pair of items of a list, by the difference of their scores."""

from tfrank_sel.losses.pairwise.base import PairwiseLoss as PairwiseLoss
from tfrank_sel.losses.pairwise.losses import (
    LambdaLoss as LambdaLoss,
    PairwiseHingeLoss as PairwiseHingeLoss,
    PairwiseLogisticLoss as PairwiseLogisticLoss,
    PairwiseMSELoss as PairwiseMSELoss,
    PairwiseQuantileLoss as PairwiseQuantileLoss,
    PairwiseSoftZeroOneLoss as PairwiseSoftZeroOneLoss,
)
