"""Logs of a training by a group."""

from typing import Any

import keras
import numpy as np

from tfrank_sel.distribution.groups import Group


class MeanLogs(keras.callbacks.Callback):
    """Replaces the logs of each epoch by their means over the processes of a group.

    It must come before the callbacks that use the logs. The mean loss of shares of equal size is
    the mean loss of all lists.

    Args:
        group: The processes that train together.
    """

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs:
            values = np.array([float(x) for x in logs.values()])
            means = self._group.total(values) / self._group.size
            logs.update(zip(logs, means.tolist(), strict=True))
