"""Groups of processes, on one or several machines, that train or factorise together."""

from tfrank_sel import lazy
from tfrank_sel.distribution.groups import (
    CollectiveGroup as CollectiveGroup,
    Group as Group,
    SingleProcess as SingleProcess,
)
from tfrank_sel.distribution.logs import MeanLogs as MeanLogs


def __dir__() -> list[str]:
    return lazy.names(globals())
