"""Lays out the pages of the site in build/docs: README, the guides, the gallery, and the reference.

    python docs/site.py && zensical build

The gallery gets the figures of `tfrank_sel.plots`. The reference has a page for each public module,
with what its docstrings say of each public name.
"""

import importlib
import inspect
import pathlib
import re
import shutil
from collections.abc import Iterator
from types import ModuleType

from tfrank_sel.plots import FIGURES

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ROOT / "build" / "docs"
MODULES = (
    "tfrank_sel.losses",
    "tfrank_sel.losses.lambdas",
    "tfrank_sel.metrics",
    "tfrank_sel.metrics.averaging",
    "tfrank_sel.metrics.ties",
    "tfrank_sel.links",
    "tfrank_sel.links.labels",
    "tfrank_sel.models",
    "tfrank_sel.models.als",
    "tfrank_sel.data",
    "tfrank_sel.data.elwc",
    "tfrank_sel.data.parsing",
    "tfrank_sel.data.formats",
    "tfrank_sel.data.frames",
    "tfrank_sel.data.letor",
    "tfrank_sel.distribution",
    "tfrank_sel.export",
    "tfrank_sel.callbacks",
    "tfrank_sel.plots",
    "tfrank_sel.bounds",
    "tfrank_sel.serving.client",
)


def main() -> None:
    """Writes all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for guide in PAGES.glob("*.md"):
        guide.write_text(guide.read_text().replace("](../README.md", "](index.md"))
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, PAGES)
    (PAGES / "index.md").write_text(re.sub(r"\]\(docs/", "](", (ROOT / "README.md").read_text()))
    with open(PAGES / "gallery.md", "a") as gallery:
        gallery.writelines(figures())
    (PAGES / "reference").mkdir()
    for name in MODULES:
        module = importlib.import_module(name)
        (PAGES / "reference" / f"{name}.md").write_text(page(module))


def figures() -> Iterator[str]:
    """Draws the figures, and tells of each."""
    (PAGES / "figures").mkdir()
    for name, figure in FIGURES.items():
        print(f"Drawing figure {name}", flush=True)
        figure.draw().savefig(PAGES / "figures" / f"{name}.png", dpi=100)
        yield f"\n## Figure {name}\n\n{figure.caption}\n\n![{figure.caption}](figures/{name}.png)\n"


def page(module: ModuleType) -> str:
    """Returns the reference of a module: a table of what is in it, then each in full."""
    names = sorted(name for name in vars(module) if is_public(module, name))
    lines = [f"# `{module.__name__}`", "", inspect.getdoc(module) or "", ""]
    lines += ["| name | what it is |", "|---|---|"]
    for name in names:
        summary = (inspect.getdoc(getattr(module, name)) or "").partition("\n\n")[0]
        text = " ".join(summary.split()).replace("|", "\\|")
        lines.append(f"| [`{name}`][{module.__name__}.{name}] | {text} |")
    for name in names:
        lines += ["", f"::: {module.__name__}.{name}"]
    return "\n".join(lines) + "\n"


def is_public(module: ModuleType, name: str) -> bool:
    """Returns whether a name of a module is a class or function of ours for its users."""
    value = getattr(module, name)
    package = module.__name__.partition(".")[0]
    return not name.startswith("_") and callable(value) and value.__module__.startswith(package)


if __name__ == "__main__":
    main()
