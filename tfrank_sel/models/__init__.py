"""Models that score the items of lists."""

from tfrank_sel.models.cosine_classifier import CosineClassifier
from tfrank_sel.models.scorer import Scorer

__all__ = ["CosineClassifier", "Scorer"]
