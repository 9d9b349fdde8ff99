"""Groups of processes, on one or several machines, that train or factorise together."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy

if TYPE_CHECKING:
    from tfrank_sel.distribution.collective import (
        CollectiveGroup as CollectiveGroup,
        MeanLogs as MeanLogs,
    )
    from tfrank_sel.distribution.groups import Group as Group, SingleProcess as SingleProcess

__getattr__, __dir__, __all__ = lazy.exported(__name__)
