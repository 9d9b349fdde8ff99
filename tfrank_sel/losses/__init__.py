"""Ranking losses."""

from tfrank_sel.losses.base import ListwiseLoss as ListwiseLoss
from tfrank_sel.losses.composite import SelectiveSoftmaxLoss as SelectiveSoftmaxLoss
from tfrank_sel.losses.matching import MatchingLoss as MatchingLoss
from tfrank_sel.losses.softmax import SoftmaxLoss as SoftmaxLoss
