"""Plots of links, losses, sensitivities and calibration."""

from tfrank_sel import lazy

try:
    from tfrank_sel.plots.axes import (
        draw_link as draw_link,
        draw_loss as draw_loss,
        draw_reliability as draw_reliability,
        draw_sensitivity as draw_sensitivity,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        f"`tfrank_sel.plots` needs {error.name}: pip install 'tfrank_sel[plots]'"
    ) from error


def __dir__() -> list[str]:
    return lazy.names(globals())
