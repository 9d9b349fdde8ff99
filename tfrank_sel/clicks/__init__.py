"""Click logs: propensities of positions, labels without position bias, values of new rankers."""

from tfrank_sel import lazy
from tfrank_sel.clicks.comparison import Fit as Fit, compare as compare
from tfrank_sel.clicks.correction import (
    CORRECTIONS as CORRECTIONS,
    effective as effective,
    labels as labels,
)
from tfrank_sel.clicks.evaluation import (
    ESTIMATORS as ESTIMATORS,
    Value as Value,
    reordered as reordered,
    value as value,
)
from tfrank_sel.clicks.interleaving import (
    credited as credited,
    drafted as drafted,
    mean_test as mean_test,
    optimised as optimised,
    sign_test as sign_test,
    team_draft as team_draft,
)
from tfrank_sel.clicks.log import Log as Log
from tfrank_sel.clicks.models import MODELS as MODELS
from tfrank_sel.clicks.pairs import groups as groups
from tfrank_sel.clicks.propensities import (
    METHODS as METHODS,
    Propensities as Propensities,
    estimate as estimate,
)

__getattr__, __dir__, __all__ = lazy.exported(__name__)
