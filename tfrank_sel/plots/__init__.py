"""Plots of links, losses and calibration."""

from tfrank_sel import errors, lazy

with errors.require_extra("`tfrank_sel.plots`", "plots"):
    from tfrank_sel.plots.axes import (
        draw_link as draw_link,
        draw_loss as draw_loss,
        draw_reliability as draw_reliability,
    )

__getattr__, __dir__, __all__ = lazy.exported(__name__)
