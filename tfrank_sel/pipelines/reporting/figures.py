"""Figures of the report: SVG that takes its colours and fonts from the page."""

import functools
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatter, MaxNLocator

from tfrank_sel.pipelines.analysis.drift import GRADES
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.evaluation.evaluation import Curve, MetricComparison
from tfrank_sel.pipelines.evaluation.inspection import Calibration, Errors
from tfrank_sel.training.fitting import MemberFit, Trained, each_once

COLORS = {"baseline": "#d9822b", "ours": "#3b82c4"}
SPLITS = {"train": "#3b82c4", "validation": "#d9822b", "test": "#4d9f5b"}
POINTS = 500  # of a step function, at most
_LINES = ("-", "--", "-.", ":")
_INK = "#010203"  # stands for the colour of the text until the figure is a text itself
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    # Names may have dollars, which start formulas otherwise.
    "text.parse_math": False,
}


def learning_curves(trained: Mapping[str, Trained]) -> str:
    """Draws validation NDCG and the losses, epoch by epoch."""

    fits = each_once(trained)
    networks = [named for named in fits if named[1].unit == "epoch"]
    forests = [named for named in fits if named[1].unit == "tree"]

    def ndcg(axes: Axes, fits: Sequence[tuple[str, MemberFit]], step: str) -> None:
        for number, (name, fit) in enumerate(fits):
            line = _LINES[number % len(_LINES)]
            values, color = np.array(fit.history["val_ndcg"]), COLORS[name]
            best = int(values.argmax())
            label = f"{name}: {_short(fit.loss)}"
            axes.plot(np.arange(1, fit.epochs + 1), values, line, color=color, label=label)
            axes.plot(best + 1, values[best], "o", color=color)
        axes.set(title="validation NDCG@10", xlabel=step)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()

    def loss(axes: Axes, name: str, fit: MemberFit) -> None:
        epochs = np.arange(1, fit.epochs + 1)
        axes.plot(epochs, fit.history["loss"], color=COLORS[name], label="training")
        axes.plot(epochs, fit.history["val_loss"], "--", color=COLORS[name], label="validation")
        axes.set(title=f"{_short(fit.loss)} of {name}", xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()

    drawn = [
        _svg(f"Validation NDCG at 10 by {step}", functools.partial(ndcg, fits=named, step=step))
        for step, named in (("epoch", networks), ("tree", forests))
        if named
    ]
    for name, fit in networks:
        draw = functools.partial(loss, name=name, fit=fit)
        drawn.append(_svg(f"{fit.loss} of {name} by epoch", draw))
    return "".join(drawn)


def cutoffs(curves: Mapping[str, Curve]) -> str:
    """Draws NDCG at each cut-off, with its interval."""

    def draw(axes: Axes) -> None:
        for name, curve in curves.items():
            k = curve.cutoffs
            axes.fill_between(k, curve.low, curve.high, color=COLORS[name], alpha=0.18, lw=0)
            axes.plot(k, curve.mean, ".-", color=COLORS[name], label=name)
        axes.set(xlabel="k: how many items a user looks at", ylabel="NDCG@k")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()

    return _svg("NDCG at each cut-off, with 95 percent intervals", draw, width=4.8)


def slices(named: Mapping[str, Mapping[str, MetricComparison]], metric: str, against: str) -> str:
    """Draws the difference of our model from the baseline on each slice, with its interval."""

    def draw(axes: Axes) -> None:
        for row, compared in enumerate(named.values()):
            values = compared[metric]
            axes.plot([values.low, values.high], [row, row], color=COLORS["ours"])
            axes.plot(values.ours - values.baseline, row, "o", color=COLORS["ours"])
        axes.axvline(0.0, color=_INK, lw=0.8)
        axes.set_yticks(range(len(named)), list(named))
        axes.set_ylim(len(named) - 0.5, -0.5)
        axes.set(xlabel=f"{metric}: ours - {against}")

    if not named:
        return ""
    text = f"Difference of {metric} by slice, with 95 percent intervals"
    return _svg(text, draw, width=4.8, height=0.8 + 0.32 * len(named))


def calibration(curves: Mapping[str, Calibration]) -> str:
    """Draws the mean label by score, a figure for each model."""

    def draw(axes: Axes, name: str, curve: Calibration) -> None:
        axes.plot(curve.scores, curve.labels, "o-", color=COLORS[name])
        axes.set(title=name, xlabel="mean score of a tenth of the items", ylabel="mean label")

    return "".join(
        _svg(f"Mean label by score of {name}", functools.partial(draw, name=name, curve=curve))
        for name, curve in curves.items()
    )


def errors(by_model: Mapping[str, Errors], above: float) -> str:
    """Draws the error of each model by tenths of the labels."""

    def draw(axes: Axes) -> None:
        for name, curve in by_model.items():
            axes.plot(
                np.arange(1, len(curve.error) + 1),
                curve.error,
                "o-",
                color=COLORS[name],
                label=name,
            )
        labels = next(iter(by_model.values())).labels
        axes.set_xticks(range(1, len(labels) + 1), [f"{x:.3g}" for x in labels])
        axes.axvline(0.5 + np.searchsorted(labels, above), color=_INK, lw=0.8, ls=":")
        axes.set(xlabel="mean label of a tenth of the items", ylabel="root mean square error")
        axes.legend()

    text = "Root mean square error by label; the region is right of the dotted line"
    return _svg(text, draw, width=4.8) if by_model else ""


def shares(splits: Mapping[str, Statistics]) -> str:
    """Draws the shares of the labels and of the list sizes of each split."""

    def upto(axes: Axes, name: str, counts: Mapping[Any, int], total: int) -> None:
        values = sorted(counts, key=float)
        drawn = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(int))
        shares = np.cumsum([counts[x] for x in values]) / total
        places = np.array(values, float)[drawn]
        axes.step(places, shares[drawn], where="post", color=SPLITS[name], label=name)

    def labels(axes: Axes) -> None:
        grades = sorted({grade for split in splits.values() for grade in split.labels}, key=float)
        if len(grades) > GRADES:
            for name, split in splits.items():
                upto(axes, name, split.labels, split.items)
            axes.set(xlabel="label", ylabel="share of items up to it")
            axes.legend()
            return
        width = 0.8 / len(splits)
        for i, (name, split) in enumerate(splits.items()):
            counts = np.array([split.labels.get(grade, 0) for grade in grades])
            places = np.arange(len(grades)) + width * (i - 0.5 * (len(splits) - 1))
            axes.bar(places, counts / split.items, width, color=SPLITS[name], label=name)
        if len(grades) <= 12:
            axes.set_xticks(range(len(grades)), grades)
        axes.set(xlabel="label", ylabel="share of the items")
        axes.legend()

    def list_sizes(axes: Axes) -> None:
        for name, split in splits.items():
            upto(axes, name, split.list_sizes, split.lists)
        axes.set(xlabel="list size", ylabel="share of lists up to it", xscale="log")
        # the default is mathematical text
        axes.xaxis.set(major_formatter=LogFormatter(), minor_formatter=LogFormatter())

    return _svg("Shares of labels by split", labels) + _svg("List sizes by split", list_sizes)


def propensities(estimate: Any) -> str:
    """Draws the propensity of each position, with its interval."""
    return _svg("Propensity of each position, with 95 percent intervals", estimate.draw, width=4.8)


def _short(loss: str) -> str:
    """Returns the name of a loss, cut to the room that a figure has."""
    return loss if len(loss) <= 24 else f"{loss[:23]}…"


def _svg(
    alternative: str, draw: Callable[[Axes], None], *, width: float = 3.8, height: float = 2.8
) -> str:
    """Returns a figure as an element of a page, without anything that points elsewhere."""
    file = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), dpi=72)  # as in a file of SVG
        axes = figure.subplots()
        draw(axes)
        ConstrainedLayoutEngine().execute(figure)  # the figure's own would draw it twice
        for ground in (figure.patch, axes.patch):
            ground.set_alpha(0.0)
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    for outside in (r"<metadata>.*?</metadata>", r"<!--.*?-->\s*", r' xmlns(:xlink)?="[^"]*"'):
        text = re.sub(outside, "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    style = f'style="flex: 1 1 {5.6 * width:.0f}rem; max-width: {8.0 * width:.0f}rem"'
    element = f'<svg role="img" aria-label="{html.escape(alternative)}" {style}'
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', element, text, count=1)
