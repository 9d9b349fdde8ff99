"""The figures of Selective Matching Losses, drawn with the losses of this package."""

from .catalogue import FIGURES as FIGURES, save_figures as save_figures
