"""Plot of speed-ups over libraries and hand-written code, a dot for each case.

`benchmarks.recorded` draws the rows of the guide, `benchmarks.speed` those that it measured.
"""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.speed.rows import Row, digits

FASTER, SLOWER = "#2470b8", "#d9822b"


def draw(found: Mapping[str, Sequence[Row]]) -> Figure:
    """Draws the rows of all areas.

    A line is of an area and a peer: a dot for each case, and the median in words.
    """
    panels: dict[str, dict[str, list[float]]] = {"libraries": {}, "code written by hand": {}}
    for area, own in found.items():
        for row in own:
            panel = panels["libraries" if row.peer.version else "code written by hand"]
            panel.setdefault(f"{area}: {row.peer}", []).append(row.ratio)
    panels = {title: lines for title, lines in panels.items() if lines}
    heights = [len(lines) + 1.0 for lines in panels.values()]
    figure = Figure((7.2, 0.9 + 0.3 * sum(heights)), layout="constrained")
    drawn = figure.subplots(len(panels), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for axes, (title, lines) in zip(drawn, panels.items(), strict=True):
        _panel(axes, lines)
        axes.set_title(f"compared with {title}", loc="left", size=11)
    drawn[-1].set_xlabel("how many times faster ours is (a dot is a case)")
    return figure


def _panel(axes: Axes, lines: Mapping[str, Sequence[float]]) -> None:
    for place, ratios in enumerate(lines.values()):
        colors = [FASTER if ratio >= 1.0 else SLOWER for ratio in ratios]
        axes.scatter(ratios, [place] * len(ratios), s=26, c=colors, alpha=0.7, linewidths=0)
        middle = digits(statistics.median(ratios), 2)
        text = middle if len(ratios) == 1 else f"median {middle} of {len(ratios)}"
        axes.annotate(
            text,
            (1.01, place),
            xycoords=("axes fraction", "data"),
            verticalalignment="center",
            fontsize=9,
        )
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set(xscale="log", ylim=(len(lines) - 0.4, -0.6))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(len(lines)), list(lines), fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
