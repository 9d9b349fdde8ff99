"""Comparison page of two runs."""

from pathlib import Path

from tfrank_sel.pipelines.comparison import Compared
from tfrank_sel.pipelines.evaluation.slices import OVERALL
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.reporting import figures, pages


def write(compared: Compared, path: Path) -> None:
    """Writes the page of two runs.

    Args:
        compared: The runs.
        path: The page to write.
    """
    curves = {
        name: [(fit["loss"], fit["history"]["val_ndcg"]) for fit in fits]
        for name, fits in compared.fits.items()
    }
    found = compared.evaluation
    page = pages.render(
        "compare.html.jinja",
        names=compared.names,
        settings=compared.settings,
        fits=compared.fits,
        metrics=found.overall,
        slices={name: values for name, values in found.slices.items() if name != OVERALL},
        figures=pages.drawn({"learning": figures.compared(curves)}),
    )
    folders.write_text(path, page)
