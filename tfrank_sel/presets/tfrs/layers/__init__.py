"""Layers of TensorFlow Recommenders."""

from tfrank_sel import lazy
from tfrank_sel.presets.tfrs.layers import dcn as dcn, factorized_top_k as factorized_top_k

__getattr__, __dir__, __all__ = lazy.exported(__name__)
