"""Losses as objectives of boosted trees, and metrics as evaluation of trees."""

from tfrank_sel import lazy
from tfrank_sel.objectives.boosters import (
    lightgbm as lightgbm,
    lightgbm_metric as lightgbm_metric,
    train_catboost as train_catboost,
    xgboost as xgboost,
    xgboost_metric as xgboost_metric,
)
from tfrank_sel.objectives.derivatives import Derivatives as Derivatives

__getattr__, __dir__, __all__ = lazy.exported(__name__)
