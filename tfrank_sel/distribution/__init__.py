"""Training on several processes or machines, each on a share of every batch."""

from tfrank_sel import lazy
from tfrank_sel.distribution.cluster import Cluster as Cluster, launch as launch
from tfrank_sel.distribution.workers import (
    LostWorkerError as LostWorkerError,
    MeanLogs as MeanLogs,
    Workers as Workers,
)


def __dir__() -> list[str]:
    return lazy.names(globals())
