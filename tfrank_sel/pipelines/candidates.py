"""Candidates, which `training` has, and the settings of a run, under their public path."""

from tfrank_sel.pipelines.configuration.training import Settings as Settings
from tfrank_sel.training.candidates import (
    Candidate as Candidate,
    Trees as Trees,
    default_losses as default_losses,
    list_scorer as list_scorer,
    scorer as scorer,
)
