"""Training of networks and boosted trees on lists that are prepared and cached."""

import importlib.util
from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.training import trees as trees
    from tfrank_sel.training.callbacks import Hooks as Hooks
    from tfrank_sel.training.candidates import Candidate as Candidate
    from tfrank_sel.training.fitting import StartError as StartError, train as train
    from tfrank_sel.training.lists import PreparedLists as PreparedLists

__getattr__, __dir__, __all__ = lazy.exported(__name__)


def has_lightgbm() -> bool:
    """Whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None
