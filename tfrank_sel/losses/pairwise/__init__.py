"""Pairwise losses, which depend on the score differences of pairs of items."""

from tfrank_sel.losses.pairwise.base import PairwiseLoss as PairwiseLoss
from tfrank_sel.losses.pairwise.losses import (
    LambdaLoss as LambdaLoss,
    PairwiseHingeLoss as PairwiseHingeLoss,
    PairwiseLogisticLoss as PairwiseLogisticLoss,
    PairwiseMSELoss as PairwiseMSELoss,
    PairwiseQuantileLoss as PairwiseQuantileLoss,
    PairwiseSoftZeroOneLoss as PairwiseSoftZeroOneLoss,
)
