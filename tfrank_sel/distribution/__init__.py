"""Training on several machines, where `fit` of Keras 3 does not reach."""

from tfrank_sel import surface
from tfrank_sel.distribution.loop import fit as fit


def __dir__() -> list[str]:
    return surface.names(globals())
