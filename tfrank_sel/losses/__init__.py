"""Ranking losses."""

from tfrank_sel.losses.base import ListwiseLoss as ListwiseLoss
from tfrank_sel.losses.choice import design as design, judge as judge
from tfrank_sel.losses.composite import (
    SelectiveSigmoidLoss as SelectiveSigmoidLoss,
    SelectiveSoftmaxLoss as SelectiveSoftmaxLoss,
)
from tfrank_sel.losses.cross_entropy import (
    SelectiveSigmoidCrossEntropyLoss as SelectiveSigmoidCrossEntropyLoss,
    SelectiveSoftmaxCrossEntropyLoss as SelectiveSoftmaxCrossEntropyLoss,
)
from tfrank_sel.losses.matching import (
    ContrastiveMatchingLoss as ContrastiveMatchingLoss,
    DecomposedMatchingLoss as DecomposedMatchingLoss,
    FenchelYoungLoss as FenchelYoungLoss,
    MatchingLoss as MatchingLoss,
)
from tfrank_sel.losses.softmax import SoftmaxLoss as SoftmaxLoss
from tfrank_sel.losses.topk import (
    SmoothTopKLoss as SmoothTopKLoss,
    TopKHingeLoss as TopKHingeLoss,
    hit_at_k as hit_at_k,
    mean_over_relevant as mean_over_relevant,
    recall_structured as recall_structured,
)
