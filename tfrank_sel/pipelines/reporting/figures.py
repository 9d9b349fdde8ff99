"""Figures of the report: SVG that takes its colours and fonts from the page."""

import html
import io
import itertools
import re
from collections.abc import Mapping
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
from tfrank_sel.training.fitting import Trained, each_once

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


_styled = matplotlib.rc_context(_STYLE)


@_styled
def learning_curves(trained: Mapping[str, Trained]) -> str:
    """Draws validation NDCG and the losses, epoch by epoch."""
    fits, drawn = each_once(trained), []
    for step in ("epoch", "tree"):
        by_step = [(name, fit) for name, fit in fits if fit.unit == step]
        axes = _axes()
        for (name, fit), line in zip(by_step, itertools.cycle(_LINES), strict=False):
            values, color = np.array(fit.history["val_ndcg"]), COLORS[name]
            best = int(values.argmax())
            label = f"{name}: {_short(fit.loss)}"
            axes.plot(np.arange(1, fit.epochs + 1), values, line, color=color, label=label)
            axes.plot(best + 1, values[best], "o", color=color)
        axes.set(title="validation NDCG@10", xlabel=step)
        if by_step:
            drawn.append(_svg(axes, f"Validation NDCG at 10 by {step}", counts=True, legend=True))
    for name, fit in fits:
        if fit.unit == "epoch":
            axes, epochs = _axes(), np.arange(1, fit.epochs + 1)
            axes.plot(epochs, fit.history["loss"], color=COLORS[name], label="training")
            axes.plot(epochs, fit.history["val_loss"], "--", color=COLORS[name], label="validation")
            axes.set(title=f"{_short(fit.loss)} of {name}", xlabel="epoch")
            drawn.append(_svg(axes, f"{fit.loss} of {name} by epoch", counts=True, legend=True))
    return "".join(drawn)


@_styled
def cutoffs(curves: Mapping[str, Curve]) -> str:
    """Draws NDCG at each cut-off, with its interval."""
    axes = _axes(4.8)
    for name, curve in curves.items():
        k = curve.cutoffs
        axes.fill_between(k, curve.low, curve.high, color=COLORS[name], alpha=0.18, lw=0)
        axes.plot(k, curve.mean, ".-", color=COLORS[name], label=name)
    axes.set(xlabel="k: how many items a user looks at", ylabel="NDCG@k")
    return _svg(axes, "NDCG at each cut-off, with 95 percent intervals", counts=True, legend=True)


@_styled
def slices(named: Mapping[str, Mapping[str, MetricComparison]], metric: str, against: str) -> str:
    """Draws the difference of our model from the baseline on each slice, with its interval."""
    if not named:
        return ""
    axes = _axes(4.8, 0.8 + 0.32 * len(named))
    for row, compared in enumerate(named.values()):
        values = compared[metric]
        axes.plot([values.low, values.high], [row, row], color=COLORS["ours"])
        axes.plot(values.difference, row, "o", color=COLORS["ours"])
    axes.axvline(0.0, color=_INK, lw=0.8)
    axes.set_yticks(range(len(named)), list(named))
    axes.set_ylim(len(named) - 0.5, -0.5)
    axes.set(xlabel=f"{metric}: ours - {against}")
    return _svg(axes, f"Difference of {metric} by slice, with 95 percent intervals")


@_styled
def calibration(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Draws the mean label by score, a figure for each model."""
    drawn = []
    for name, (scores, labels) in curves.items():
        axes = _axes()
        axes.plot(scores, labels, "o-", color=COLORS[name])
        axes.set(title=name, xlabel="mean score of a tenth of the items", ylabel="mean label")
        drawn.append(_svg(axes, f"Mean label by score of {name}"))
    return "".join(drawn)


@_styled
def errors(by_model: Mapping[str, tuple[np.ndarray, np.ndarray]], above: float) -> str:
    """Draws the error of each model by tenths of the labels."""
    axes = _axes(4.8)
    for name, (labels, error) in by_model.items():
        tenths = np.arange(1, len(labels) + 1)
        axes.plot(tenths, error, "o-", color=COLORS[name], label=name)
    axes.set_xticks(tenths, [f"{x:.3g}" for x in labels])
    axes.axvline(0.5 + np.searchsorted(labels, above), color=_INK, lw=0.8, ls=":")
    axes.set(xlabel="mean label of a tenth of the items", ylabel="root mean square error")
    text = "Root mean square error by label; the region is right of the dotted line"
    return _svg(axes, text, legend=True)


@_styled
def shares(splits: Mapping[str, Statistics]) -> str:
    """Draws the shares of the labels and of the list sizes of each split."""
    axes = _axes()
    grades = sorted({grade for split in splits.values() for grade in split.labels}, key=float)
    if len(grades) > GRADES:
        for name, split in splits.items():
            _draw_shares(axes, name, split.labels, split.items)
        axes.set(xlabel="label", ylabel="share of items up to it")
    else:
        width = 0.8 / len(splits)
        for i, (name, split) in enumerate(splits.items()):
            counts = np.array([split.labels.get(grade, 0) for grade in grades])
            places = np.arange(len(grades)) + width * (i - 0.5 * (len(splits) - 1))
            axes.bar(places, counts / split.items, width, color=SPLITS[name], label=name)
        if len(grades) <= 12:
            axes.set_xticks(range(len(grades)), grades)
        axes.set(xlabel="label", ylabel="share of the items")
    labels, axes = _svg(axes, "Shares of labels by split", legend=True), _axes()
    for name, split in splits.items():
        _draw_shares(axes, name, split.list_sizes, split.lists)
    axes.set(xlabel="list size", ylabel="share of lists up to it", xscale="log")
    # the default is mathematical text
    axes.xaxis.set(major_formatter=LogFormatter(), minor_formatter=LogFormatter())
    return labels + _svg(axes, "List sizes by split")


def _draw_shares(axes: Axes, name: str, counts: Mapping[Any, int], total: int) -> None:
    """Draws the share up to each value."""
    values = sorted(counts, key=float)
    drawn = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(int))
    shares = np.cumsum([counts[x] for x in values]) / total
    places = np.array(values, float)[drawn]
    axes.step(places, shares[drawn], where="post", color=SPLITS[name], label=name)


@_styled
def propensities(estimate: Any) -> str:
    """Draws the propensity of each position, with its interval."""
    axes = _axes(4.8)
    estimate.draw(axes)
    return _svg(axes, "Propensity of each position, with 95 percent intervals")


def _short(loss: str) -> str:
    """Returns the name of a loss, cut to the room that a figure has."""
    return loss if len(loss) <= 24 else f"{loss[:23]}…"


def _axes(width: float = 3.8, height: float = 2.8) -> Axes:
    return Figure(figsize=(width, height), dpi=72).subplots()  # dots as in a file of SVG


def _svg(axes: Axes, alternative: str, *, counts: bool = False, legend: bool = False) -> str:
    """Returns a figure as an element of a page, without anything that points elsewhere."""
    if counts:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if legend:
        axes.legend()
    figure, file = axes.figure, io.StringIO()
    assert isinstance(figure, Figure)  # no part of one
    ConstrainedLayoutEngine().execute(figure)  # the figure's own would draw it twice
    for ground in (figure.patch, axes.patch):
        ground.set_alpha(0.0)
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    for outside in (r"<metadata>.*?</metadata>", r"<!--.*?-->\s*", r' xmlns(:xlink)?="[^"]*"'):
        text = re.sub(outside, "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    width = figure.get_figwidth()
    style = f'style="flex: 1 1 {5.6 * width:.0f}rem; max-width: {8.0 * width:.0f}rem"'
    element = f'<svg role="img" aria-label="{html.escape(alternative)}" {style}'
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', element, text, count=1)
