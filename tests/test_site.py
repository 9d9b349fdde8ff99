"""The gallery of the site: a thumbnail for each figure, and a page with the code that draws it."""

import pathlib
import runpy

import pytest

from benchmarks.pictures import PICTURES
from tfrank_sel.plots import FIGURES

SITE = pathlib.Path(__file__).parent.parent / "docs" / "site.py"


@pytest.fixture
def site(tmp_path):
    """The functions of the site, which write to `tmp_path`, with one figure of the paper."""
    functions = runpy.run_path(str(SITE))
    functions["main"].__globals__.update(PAGES=tmp_path, FIGURES={"E.2": FIGURES["E.2"]})
    return functions


def test_a_thumbnail_leads_to_the_code_that_draws_it(site, tmp_path):
    found = [*site["figures"](), *site["pictures"]()]
    assert len(found) == 1 + len(PICTURES)
    assert found[0] == (
        "\n[![](figures/E.2_small.png){ loading=lazy } What a shift changes](figures/E.2.md)\n"
    )
    page = (tmp_path / "figures" / "E.2.md").read_text()
    assert page.startswith("# What a shift changes\n\n![What a shift changes](E.2.png)\n")
    assert "--only E.2\n" in page
    assert "```python\ndef figure_e2() -> Figure:\n" in page
    small, large = (tmp_path / "figures" / f"E.2{x}.png" for x in ("_small", ""))
    assert 0 < small.stat().st_size < large.stat().st_size
    assert "def worths() -> Figure:" in (tmp_path / "figures" / "metrics.md").read_text()


def test_each_figure_has_a_title_of_its_own():
    titles = [figure.title for figure in FIGURES.values()]
    assert len({*titles}) == len(titles)
    assert max(map(len, titles)) <= 40
