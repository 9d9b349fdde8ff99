"""Top-k losses."""

from tfrank_sel.losses.topk.cross_entropy import TopKCrossEntropyLoss as TopKCrossEntropyLoss
from tfrank_sel.losses.topk.forms import (
    hit_at_k as hit_at_k,
    mean_over_relevant as mean_over_relevant,
    recall_structured as recall_structured,
)
from tfrank_sel.losses.topk.losses import (
    SmoothTopKLoss as SmoothTopKLoss,
    TopKHingeLoss as TopKHingeLoss,
)
