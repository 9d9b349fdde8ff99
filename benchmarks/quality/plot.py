"""Picture of the table of quality: each row's difference to LightGBM, with its interval.

`benchmarks.recorded` draws recorded rows, `benchmarks.quality judge --plot` those that it
measured.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# The mean of the difference, and the ends of its interval.
Gap: TypeAlias = tuple[float, float, float]

LOWEST = -0.03  # a row below it is an arrow with its number
LIBRARIES = (
    "LightGBM",
    "XGBoost",
    "CatBoost",
    "scikit-learn",
    "keras-rs",
    "tensorflow-ranking",
)
OF_LISTS = ("ListScorer", "Ensemble", "tfrank-sel-pipelines")
COLORS = {
    "other libraries": "#d9822b",
    "our losses, boosted trees of LightGBM": "#8a5fbf",
    "our losses, a network that sees each item alone": "#6b7785",
    "our models that see the whole list, and ensembles": "#2470b8",
}
_ROW = re.compile(r"\| ([^|]+?) \|(?: [\d.]+ \|)+ (\S+) \((\S+) to (\S+)\) \|")


def recorded(text: str) -> dict[str, Gap]:
    """Returns the differences to LightGBM that a table of `benchmarks.quality judge` holds."""
    return {name: (float(x), float(a), float(b)) for name, x, a, b in _ROW.findall(text)}


def draw(gaps: Mapping[str, Gap]) -> Figure:
    """Draws the differences to LightGBM with their intervals, by group, the best first."""
    groups: dict[str, list[str]] = {group: [] for group in COLORS}
    for name in sorted(gaps, key=lambda name: -gaps[name][0]):
        groups[_group(name)].append(name)
    figure = Figure(figsize=(7.2, 0.27 * len(gaps) + 1.4), layout="constrained")
    axes, names = figure.subplots(), []
    for group, own in reversed(groups.items()):
        for name in own:
            _mark(axes, len(names), gaps[name], COLORS[group])
            names.append(name)
        if own:
            axes.plot([], [], "o", color=COLORS[group], label=group)
    axes.axvline(0.0, color="black", lw=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="NDCG@10 - LightGBM's, with its 95 % interval")
    left = max(LOWEST, min(low for _, low, _ in gaps.values()) - 0.002)
    axes.set(xlim=(left, None), ylim=(len(names) - 0.4, -0.6))
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", frameon=False)
    return figure


def _mark(axes: Axes, place: int, gap: Gap, color: str) -> None:
    mean, low, high = gap
    if mean > LOWEST:
        ends = [[mean - low], [high - mean]]
        axes.errorbar([mean], [place], xerr=ends, fmt="o", ms=5, capsize=2.5, color=color)
        return
    axes.plot(LOWEST, place, "<", color=color, ms=7, clip_on=False)
    text = f"{mean:+.3f} ({low:+.3f} to {high:+.3f}), left of the axis"
    axes.annotate(text, (LOWEST, place), (9, 0), textcoords="offset points", va="center", size=9)


def _group(name: str) -> str:
    libraries, trees, items, lists = COLORS
    if name.startswith("LightGBM, our "):
        return trees
    if any(library in name for library in LIBRARIES) and "ListScorer" not in name:
        return libraries
    return lists if name.startswith(OF_LISTS) else items
