"""Losses and metrics with the numbers of other libraries."""

from tfrank_sel import lazy
from tfrank_sel.presets import tfr as tfr, tfrs as tfrs

__getattr__, __dir__, __all__ = lazy.exported(__name__)
