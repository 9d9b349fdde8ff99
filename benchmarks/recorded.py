"""Pictures of recorded tables.

python -m benchmarks.recorded docs [--only speed]
"""

import argparse
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.evidence import stored
from benchmarks.quality import plot as quality
from benchmarks.speed import plot as speed, rows

AREAS = ("losses", "metrics", "data", "training", "als", "topk", "serving")


def gaps(name: str) -> dict[str, quality.Gap]:
    """The differences to LightGBM in the table of a command."""
    return quality.recorded("\n".join(stored(name)[0]))


def times() -> dict[str, list[rows.Row]]:
    """The rows of `benchmarks.speed`, by area."""
    tables = zip(AREAS, stored("speed"), strict=True)
    return rows.from_markdown("".join(f"### {a}\n\n" + "\n".join(t) + "\n\n" for a, t in tables))


def cells(name: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the first table of a command."""
    head, _, *others = ([x.strip() for x in row.split("|")[1:-1]] for row in stored(name)[0])
    return head, others


def numbers(texts: Iterable[str]) -> list[list[float]]:
    """The numbers in each text."""
    return [[float(x) for x in re.findall(r"[\d.]+", text.replace(",", ""))] for text in texts]


def label_noise() -> Figure:
    """Accuracy by the share of random labels, for each set and loss."""
    head, found = cells("label-noise")
    shares = [share for [share] in numbers(head[3:])]
    sets, names = (list(dict.fromkeys(row[i] for row in found)) for i in (0, 2))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True)
    for name, top, loss, *values in found:
        axes: Axes = panels[sets.index(name)]
        means, deviations = zip(*numbers(values), strict=True)
        style = {"color": f"C{names.index(loss)}", "ls": "-" if top == "1" else "--", "ms": 4}
        label = loss if (name, top) == (sets[0], "1") else None
        axes.errorbar(shares, means, deviations, marker="o", label=label, **style)
        axes.set(title=name, xlabel="share of random labels", ylim=(0, 102))
        axes.grid(alpha=0.3)
    panels[0].set(ylabel="top-1 (solid), top-5 (dashed), %")
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    return figure


def topk() -> Figure:
    """Time of the smooth top-k loss by the number of classes, and relative to a softmax by k."""
    _, found = cells("topk")
    measured = [[x for [x] in numbers(row[:5])] for row in found]
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    by_classes, by_k = figure.subplots(1, 2)
    for k in sorted({row[1] for row in measured}):
        line = [(n, ms) for n, own, _, ms, _ in measured if own == k]
        if len(line) > 1:
            by_classes.plot(*zip(*line, strict=True), "o-", ms=3, label=f"k = {k:.0f}")
    softmax = {n: ms / ratio for n, _, _, ms, ratio in measured}
    by_classes.plot(list(softmax), list(softmax.values()), "--", color="gray", label="softmax")
    by_classes.set(xscale="log", yscale="log", xlabel="classes", ylabel="ms")
    for n in softmax:
        line = [(k, ratio) for own, k, _, _, ratio in measured if own == n]
        if len(line) > 1:
            by_k.plot(*zip(*line, strict=True), "o-", ms=3, label=f"{n:,.0f} classes")
    by_k.set(xscale="log", xlabel="k", ylabel="multiple of softmax's time", ylim=(0, None))
    for axes in (by_classes, by_k):
        axes.legend(fontsize=8)
    return figure


def recommendation() -> Figure:
    """NDCG@20 by the seconds of a fit on each set, a line for each method."""
    sets = {"MovieLens-1M": "movielens", "Gowalla": "gowalla", "Yelp2018": "yelp2018"}
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    lines: dict[str, str] = {}
    for axes, (title, name) in zip(figure.subplots(1, len(sets)), sets.items(), strict=True):
        found = cells(f"recommendation-{name}")[1]
        methods = [row[0].partition(", K = ")[0] for row in found]
        for method in dict.fromkeys(methods):
            if method in ("popularity", "implicit BPR"):  # far below
                continue
            own = [row for row, x in zip(found, methods, strict=True) if x == method]
            ndcgs = [values[0] for values in numbers(row[3] for row in own)]
            seconds = [x for [x] in numbers(row[-1] for row in own)]
            label = None if method in lines else method
            color = lines.setdefault(method, f"C{len(lines)}")
            axes.plot(seconds, ndcgs, "o-", ms=3, color=color, label=label)
        axes.set(title=title, xscale="log", xlabel="seconds of the fit")
        axes.xaxis.set(major_formatter="{x:g}", minor_formatter="")
        axes.grid(alpha=0.3)
    figure.axes[0].set(ylabel="NDCG@20")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def ensembles() -> Figure:
    """NDCG@10 less that of tuned LightGBM, with its interval, by CPU seconds; some have names."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    colors = {"networks": "C0", "trees": "C2", "both": "C3", "other packages, defaults": "C1"}
    for name, _, seconds, _, gap, *_ in cells("ensembles")[1]:
        mean, low, high = (float(x) for x in re.findall(r"[+-][\d.]+", gap))
        kind = "networks" if name.startswith(("network", "three networks")) else "trees"
        kind = "both" if kind == "networks" and "trees" in name else kind
        kind = "other packages, defaults" if name.endswith("defaults") else kind
        ends = [[mean - low], [high - mean]]
        axes.errorbar([float(seconds)], [mean], yerr=ends, fmt="o", ms=4, color=colors[kind])
        shown = re.search(r"\((default|low|high)\)", name)
        text = shown[1] if shown else name.partition(",")[0] if name.endswith("defaults") else ""
        place, offset = (high, (-12, 4)) if shown else (mean, (6, -4))
        axes.annotate(text, (float(seconds), place), offset, textcoords="offset points", size=9)
    for kind, color in colors.items():
        axes.plot([], [], "o", color=color, label=kind)
    axes.axhline(0.0, color="black", lw=0.8)
    axes.set(xscale="log", xlabel="CPU seconds of a fold", ylabel="NDCG@10 - tuned LightGBM's")
    axes.set(xlim=(0.6, 50.0), ylim=(None, 0.02))
    axes.xaxis.set(major_formatter="{x:g}", minor_formatter="")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(colors), frameon=False)
    return figure


PICTURES: Mapping[str, Callable[[], Figure]] = {
    "quality": lambda: quality.draw(gaps("equal-mq2008")),
    "ensembles": ensembles,
    "speed": lambda: speed.draw(times()),
    "label_noise": label_noise,
    "topk": topk,
    "recommendation": recommendation,
}


def main() -> None:
    """Draws the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="folder of the pictures")
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    options = parser.parse_args()
    for name in options.only:
        PICTURES[name]().savefig(options.folder / f"{name}.png", dpi=200)


if __name__ == "__main__":
    main()
