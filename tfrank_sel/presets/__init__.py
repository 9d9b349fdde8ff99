"""Losses and metrics with the numbers of other libraries."""

from tfrank_sel import lazy
from tfrank_sel.presets import tfr as tfr, tfrs as tfrs


def __dir__() -> list[str]:
    return lazy.names(globals(), ["tfr", "tfrs"])
