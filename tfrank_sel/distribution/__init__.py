"""Groups of processes, on one or several machines, that train or factorise together."""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.distribution.groups import Group as Group, SingleProcess as SingleProcess

if TYPE_CHECKING:
    from tfrank_sel.distribution.collective import CollectiveGroup as CollectiveGroup
    from tfrank_sel.distribution.logs import MeanLogs as MeanLogs

_NAMES = {"CollectiveGroup": "collective", "MeanLogs": "logs"}

__getattr__ = lazy.imports(__name__, (), _NAMES)


def __dir__() -> list[str]:
    return sorted(["Group", "SingleProcess", *_NAMES])
