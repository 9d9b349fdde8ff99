"""Layers of TensorFlow Recommenders."""

from tfrank_sel import lazy
from tfrank_sel.presets.tfrs.layers import dcn as dcn, factorized_top_k as factorized_top_k


def __dir__() -> list[str]:
    return lazy.names(globals(), ["dcn", "factorized_top_k"])
