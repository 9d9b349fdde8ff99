"""Catalogue of the figures of the paper, by number or name, and files of them."""

import base64
import html
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from matplotlib.figure import Figure

from . import composites, singles


class Entry(NamedTuple):
    """A figure.

    Attributes:
        draw: Function that draws the figure.
        caption: Caption of the figure.
        title: Title of the figure.
    """

    draw: Callable[[], Figure]
    caption: str
    title: str


FIGURES: dict[str, Entry] = {
    "1": Entry(
        singles.figure_1,
        "A matching loss is the area between a link and its value at s.",
        "A matching loss is an area",
    ),
    "2": Entry(
        composites.figure_2,
        "The loss is sensitive where the link is steep. With b=4, overestimates of s=3 cost more "
        "than underestimates.",
        "Sensitive where the link is steep",
    ),
    "3": Entry(
        composites.figure_3,
        "A scaling q and its composite Sigmoid. The matching loss is convex; the cross-entropy, "
        "dashed and less its minimum, is not.",
        "A scaling and its composite Sigmoid",
    ),
    "4": Entry(
        composites.figure_4,
        "Three items with s = -3, 0, 3. Dotted: the other items predicted 1 too low or too high, "
        "less the minimum. The decomposed loss does not see them.",
        "List losses of three items",
    ),
    "5": Entry(
        singles.figure_5,
        "Two items. Contours from 0.05 to 6.4, each twice the one before; surfaces are cut at 20.",
        "Losses of two items as landscapes",
    ),
    "E.1": Entry(
        singles.figure_e1,
        "A weight by the observed score scales a whole curve; one by the predicted score makes the "
        "loss lopsided, and not convex.",
        "Weights and links",
    ),
    "E.2": Entry(
        singles.figure_e2,
        "A shift b changes the scalar loss, but neither the probabilities nor the list loss.",
        "What a shift changes",
    ),
    "F.1": Entry(
        singles.figure_f1,
        "Two features, each a score in one regime and a nuisance in the other. The sigmoid's shift "
        "chooses which regime is fitted; squared errors fit neither. Left: the links, and the loss "
        "by both weights, whose minimum is the fit.",
        "Choosing the regime that is fitted",
    ),
    "H.1": Entry(
        composites.figure_h1,
        "Links by what they are sensitive to, with scalar losses.",
        "Links by what they are sensitive to",
    ),
    "H.2": Entry(
        composites.figure_h2,
        "The same as scalings of a composite Sigmoid, whose probability adds high scores.",
        "Composite Sigmoids",
    ),
    "H.3": Entry(
        composites.figure_h3,
        "Scalings for high scores; Step clips low ones.",
        "Losses for high scores",
    ),
    "H.4": Entry(
        composites.figure_h4,
        "Scalings for low scores. Cosh does not increase: its list loss is not convex, and falls "
        "below 0.",
        "Losses for low scores",
    ),
    "H.5": Entry(
        composites.figure_h5,
        "Scalings for high norms. Cosh does not increase.",
        "Losses for high norms",
    ),
    "H.6": Entry(
        composites.figure_h6,
        "Probabilities move the sensitivity: tanh for low norms becomes one for high norms, and "
        "shifted by 3 one for low scores.",
        "Probabilities move the sensitivity",
    ),
    "I.1": Entry(
        singles.figure_i1,
        "The steeper exp, the nearer the best bias to the highest label.",
        "The best bias under steeper links",
    ),
    "BUST": Entry(
        singles.figure_bust,
        "The update of a bias by an error at one score, for three distributions of the others; "
        "right, the best bias if all scores are wrong. Steep regions decide, rare ones too.",
        "Which errors a bias follows",
    ),
}


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
