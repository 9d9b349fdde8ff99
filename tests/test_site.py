"""The gallery of the site: a thumbnail for each figure, and a page with the code that draws it."""

import inspect
import json
import pathlib
import re
import runpy

import pytest

from benchmarks.pictures import PICTURES
from examples.figures import FIGURES
from tfrank_sel import links, losses, metrics
from tfrank_sel.pipelines import configuration
from tfrank_sel.serialization import Frozen, Named

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


TUTORIAL = """\
# ruff: noqa: D100
# %% [markdown]
# # A tutorial
#
# [A guide](../docs/data.md).

# %%
import sys
import time

import matplotlib.pyplot as plt

print("six is", 2 * 3)
sys.stdout.flush()
time.sleep(0.5)
print("seven is", 7)
print("a log", file=sys.stderr)
plt.plot([1, 2])
plt.show()
"""


def test_a_tutorial_is_a_notebook_and_a_page_with_its_output(site, tmp_path):
    (tmp_path / "tutorials").mkdir()
    (tmp_path / "short.py").write_text(TUTORIAL)
    site["main"].__globals__.update(EXAMPLES=tmp_path)
    site["write_tutorial"]("short")
    folder = tmp_path / "tutorials"
    page = (folder / "short.md").read_text()
    assert page.startswith("# A tutorial\n\nDownload: [notebook](short.ipynb){ download }")
    assert "[A guide](../data.md)" in page
    assert "    six is 6\n    seven is 7\n" in page
    assert "a log" not in page.replace('"a log"', "")
    assert "noqa" not in page
    [picture] = re.findall(r"!\[Picture that the code draws\]\((.+)\)", page)
    assert (folder / picture).stat().st_size > 0
    cells = json.loads((folder / "short.ipynb").read_text())["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code"]


def test_the_sheet_has_all_commands_and_keys(site):
    lines = site["commands_page"]().splitlines()
    assert "### `tfrank-sel-serving roll-back`" in lines
    assert any(x.startswith("| `--max-items` | Maximum number of items") for x in lines)
    keys = {line.split("`")[1] for line in lines if re.match(r"\| `[a-z]+\.\w+` \|", line)}
    known = {f"{name}.{x.alias or k}" for name, own in sections().items() for k, x in own.items()}
    assert known <= keys
    assert "| `blessing.margin` | `0.02` | Maximum allowed drop below the baseline. |" in lines


def sections():
    """The keys of the sections of a configuration."""
    return {
        name: getattr(configuration.load(), name).__class__.model_fields
        for name in ("data", "training", "blessing", "serving", "search")
    }


def test_the_reference_has_a_page_for_each_class(site, tmp_path):
    site["write_reference"](metrics.averaging)
    index = (tmp_path / "reference" / "tfrank_sel.metrics.averaging.md").read_text()
    linked = re.findall(r"^\| \[`(\w+)`\]\(tfrank_sel.metrics.averaging/\1.md\) \| \w", index, re.M)
    pages = {
        x.stem: x.read_text() for x in tmp_path.glob("reference/tfrank_sel.metrics.averaging/*")
    }
    assert linked == sorted(pages)
    name, text = next(iter(pages.items()))
    assert text.endswith(f"::: tfrank_sel.metrics.averaging.{name}\n")


def test_the_reference_shows_the_constructors_that_fields_make():
    griffe = pytest.importorskip("griffe")
    extensions = griffe.load_extensions(str(SITE.parent / "examples.py"))
    package = griffe.load(
        "tfrank_sel", search_paths=[SITE.parent.parent], submodules=True, extensions=extensions
    )

    def has_fields(value):
        return inspect.isclass(value) and issubclass(value, (Named, Frozen))

    for module in (losses, losses.lambdas, metrics, links):
        for name, cls in inspect.getmembers(module, has_fields):
            shown = [p.name for p in package[f"{cls.__module__}.{name}"[11:]].parameters]
            assert {*shown} >= {*inspect.signature(cls).parameters} - {"args", "kwargs"}, name
