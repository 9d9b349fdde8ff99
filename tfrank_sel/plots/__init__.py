"""Plots of links, losses, sensitivities and calibration."""

from tfrank_sel import lazy, refusals

with refusals.needed("`tfrank_sel.plots`", "plots"):
    from tfrank_sel.plots.axes import (
        draw_link as draw_link,
        draw_loss as draw_loss,
        draw_reliability as draw_reliability,
        draw_sensitivity as draw_sensitivity,
    )

__getattr__, __dir__ = lazy.public(globals())
