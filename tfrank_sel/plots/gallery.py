"""Figures as files, and a page with all of them."""

import base64
import html
import pathlib
from collections.abc import Iterable, Iterator

from tfrank_sel.plots.catalogue import FIGURES

_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Selective matching losses</title>
<style>
  body {{ font-family: sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }}
  figure {{ margin: 0 0 3rem }}
  img {{ max-width: 100%; height: auto }}
</style>
<h1>Selective matching losses</h1>
<p>The figures of Shamir and Warmuth,
<a href="https://arxiv.org/abs/2506.04446">Selective Matching Losses</a>, 2025.
Red, green and blue: a low, a middle and a high observed score.</p>
<nav>{contents}</nav>
{figures}
</html>
"""
_FIGURE = """<figure id="{name}">
<h2>Figure {name}</h2>
<img alt="{caption}" src="data:image/png;base64,{data}">
<figcaption>{caption}</figcaption>
</figure>"""


def save_figures(
    folder: pathlib.Path, names: Iterable[str] = tuple(FIGURES), dpi: int = 100
) -> Iterator[pathlib.Path]:
    """Saves figures one by one, and then `index.html`, a self-contained page.

    Args:
        folder: Output folder; created if missing.
        names: The figures to draw, such as `"1"` and `"H.6"`.
        dpi: Dots per inch.

    Yields:
        The path of each file, after it is written.

    Raises:
        ValueError: If a name is not that of a figure.

    Example:
        >>> import pathlib, tempfile
        >>> from tfrank_sel import plots
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> [path.name for path in plots.save_figures(folder, ["1"], dpi=50)]
        ['figure_1.png', 'index.html']
    """
    names = list(names)
    if unknown := [name for name in names if name not in FIGURES]:
        raise ValueError(f"`names` must be among {', '.join(FIGURES)}. Received: {unknown}")
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name in names:
        written[name] = folder / f"figure_{name}.png"
        FIGURES[name].draw().savefig(written[name], dpi=dpi)
        yield written[name]
    page = folder / "index.html"
    page.write_text(_page(written), encoding="utf-8")
    yield page


def _page(pictures: dict[str, pathlib.Path]) -> str:
    figures = (
        _FIGURE.format(
            name=name,
            caption=html.escape(FIGURES[name].caption),
            data=base64.b64encode(path.read_bytes()).decode(),
        )
        for name, path in pictures.items()
    )
    contents = " ".join(f'<a href="#{name}">{name}</a>' for name in pictures)
    return _PAGE.format(contents=contents, figures="\n".join(figures))
