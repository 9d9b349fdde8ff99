"""How many times faster ours is, row by row: beside libraries, and beside plain code."""

import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.speed.rows import Row, digits

FASTER, SLOWER = "tab:blue", "tab:orange"


def draw(found: Mapping[str, Sequence[Row]], path: pathlib.Path) -> None:
    """Draws the rows of all areas, and writes the picture as PNG."""
    panels = {
        "beside libraries": [(a, x) for a in found for x in found[a] if x.peer.version],
        "beside plain code": [(a, x) for a in found for x in found[a] if not x.peer.version],
    }
    height = 1.0 + 0.17 * max(map(len, panels.values()))
    figure = Figure((14.0, height), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        _panel(axes, rows)
        axes.set(title=title, xlabel="how many times faster ours is")
    figure.savefig(path, format="png", dpi=90)


def _panel(axes: Axes, rows: Sequence[tuple[str, Row]]) -> None:
    """Draws a row a line, with the peer's name at its dot, and a line between areas."""
    for place, (_, row) in enumerate(rows):
        color = FASTER if row.ratio >= 1.0 else SLOWER
        axes.plot([1.0, row.ratio], [place, place], color=color, lw=1.0)
        axes.plot(row.ratio, place, "o", color=color, ms=3.5)
        axes.annotate(
            f"{row.peer}  {digits(row.ratio, 2)}",
            (max(row.ratio, 1.0), place),
            (5, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=6,
        )
    for place in range(1, len(rows)):
        if rows[place][0] != rows[place - 1][0]:
            axes.axhline(place - 0.5, color="gray", lw=0.5)
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set(xscale="log", ylim=(len(rows) - 0.3, -0.7))
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.9)  # room for the names
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    labels = [f"{area}: {row.case}".replace("`", "") for area, row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=6.5)
    axes.grid(axis="x", alpha=0.3)
