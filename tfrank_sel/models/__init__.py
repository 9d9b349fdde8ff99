"""Models that score the items of lists.

The factorisation by alternating least squares stands apart in `tfrank_sel.models.als`, which needs
the extra `als`.
"""

from tfrank_sel.models.cosine_classifier import CosineClassifier
from tfrank_sel.models.scorer import Scorer
from tfrank_sel.models.two_tower import TwoTower

__all__ = ["CosineClassifier", "Scorer", "TwoTower"]
