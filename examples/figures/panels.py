"""Panels of the figures: their subjects (a link, or a scaling and its composites) and grid."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfrank_sel.links.base import ElementaryLink, Link
from tfrank_sel.links.combinators import Scaled
from tfrank_sel.links.composite import CompositeSigmoid, CompositeSoftmax
from tfrank_sel.links.convexity import is_increasing
from tfrank_sel.plots.axes import (
    AROUND,
    LOW_MIDDLE_HIGH,
    Array,
    colors,
    draw_link,
    evaluate,
    grid,
    of_lists,
    vary_score,
)

_PARAMETERS = {
    "scale": ("a", 1.0),
    "shift": ("b", 0.0),
    "exponent": ("d", None),
    "half_width": ("c", None),
}


class Subject(Protocol):
    """A link of one score, and a link of a list."""

    @property
    def title(self) -> str:
        """The title of the subject."""
        ...

    @property
    def link(self) -> Link:
        """The link of one score."""
        ...

    def list_link(self, s: Array) -> Array:
        """Computes the link of lists, `[lists, items]`."""
        ...

    def list_sensitivity(self, s: Array) -> Array:
        """Computes the slope of the link of each item in its own score."""
        ...

    def list_loss(self, z: Array, s: Array) -> Array:
        """Computes the matching loss of lists, `[lists]`."""
        ...


@dataclasses.dataclass(frozen=True)
class Decomposed:
    """A link, whose losses are summed over a list."""

    link: Link

    @property
    def title(self) -> str:
        return caption(self.link)

    def list_link(self, s: Array) -> Array:
        return evaluate(self.link, s)

    def list_sensitivity(self, s: Array) -> Array:
        return evaluate(self.link.slope, s)

    def list_loss(self, z: Array, s: Array) -> Array:
        loss: Array = evaluate(self.link.divergence, z, s).sum(axis=-1)
        return loss


@dataclasses.dataclass(frozen=True)
class Composite:
    """A scaling, its composite Sigmoid and its composite Softmax."""

    base: ElementaryLink
    gamma: float = 1.0

    @property
    def title(self) -> str:
        gamma = "" if self.gamma == 1.0 else rf", $\gamma$={self.gamma:g}"
        warning = "" if is_increasing(self.base) else "\nSoftmax not convex"
        return f"q: {caption(self.base)}{gamma}{warning}"

    @property
    def scaling(self) -> Link:
        """The scaling of the paper, whose potential is that of the unscaled function."""
        return Scaled(self.base, self.base.scale)

    @property
    def link(self) -> CompositeSigmoid:
        return CompositeSigmoid(self.scaling, self.gamma, allow_nonconvex=True)

    @property
    def softmax(self) -> CompositeSoftmax:
        """The link of a list."""
        return CompositeSoftmax(self.scaling, self.gamma, allow_nonconvex=True)

    def list_link(self, s: Array) -> Array:
        return of_lists(self.softmax, s)

    def list_sensitivity(self, s: Array) -> Array:
        return of_lists(self.softmax.sensitivity, s)

    def list_loss(self, z: Array, s: Array) -> Array:
        return of_lists(self.softmax.divergence, z, s)


def caption(link: Link) -> str:
    """Returns the name of a link with its non-default parameters."""
    inner = link.link if isinstance(link, Scaled) else link
    values = [
        f"{letter}={getattr(inner, name):g}"
        for name, (letter, usual) in _PARAMETERS.items()
        if getattr(inner, name, usual) != usual
    ]
    return ", ".join([type(inner).__name__, *values])


Scores = Sequence[float]


class Panel(NamedTuple):
    """The plot of each subject of a row, and the label of the vertical axis."""

    label: str
    draw: Callable[[Axes, Subject], None]


def figure_of(rows: Sequence[tuple[Panel, Sequence[Subject]]], title: str) -> Figure:
    """Draws a panel of each subject, row by row, above a legend of all rows."""
    columns = max(len(subjects) for _, subjects in rows)
    figure = Figure(figsize=(2.9 * columns + 0.4, 2.3 * len(rows) + 0.6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    above: Sequence[Subject] = ()
    for row, (panel, subjects) in zip(axes, rows, strict=True):
        for place, subject in zip(row, subjects, strict=False):
            panel.draw(place, subject)
            place.grid(alpha=0.3)
            place.tick_params(labelsize=8)
            if subjects is not above:
                place.set_title(subject.title, fontsize=9)
        row[0].set_ylabel(panel.label, fontsize=9)
        for place in row[len(subjects) :]:
            place.set_visible(False)
        above = subjects
    for place in axes[-1]:
        place.set_xlabel("score", fontsize=9)
    legend_below(figure, [row[0] for row in axes])
    return figure


def legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    """Adds one legend below a figure."""
    entries: dict[str, Artist] = {}
    for place in axes:
        handles, labels = place.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=len(entries))


def link_and_slope(axes: Axes, subject: Subject) -> None:
    """Draws the link of one score and its slope."""
    draw_link(axes, subject.link)


def scaling(axes: Axes, subject: Subject) -> None:
    """Draws the scaling of composites."""
    s = grid(AROUND)
    axes.plot(s, evaluate(_composite(subject).scaling, s), color="black", label="q")


def probability(axes: Axes, subject: Subject) -> None:
    """Draws the probability of a composite Sigmoid."""
    s = grid(AROUND)
    axes.plot(s, evaluate(_composite(subject).link.probability, s), color="black", label="p")
    axes.set_ylim(-0.05, 1.05)


def scalar_losses(axes: Axes, subject: Subject, scores: Scores = LOW_MIDDLE_HIGH) -> None:
    """Draws the matching loss of one score, for some observed ones."""
    z = grid(AROUND, subject.link.domain)
    curves = [evaluate(subject.link.divergence, z, np.full_like(z, s)) for s in scores]
    for s, curve, color in zip(scores, curves, colors(len(scores)), strict=True):
        axes.plot(z, curve, color=color, label=f"s = {s:g}")
    _zoom(axes, z, curves, scores)


def losses_and_cross_entropies(axes: Axes, subject: Subject) -> None:
    """Draws the matching loss of a composite Sigmoid, and dashed its cross-entropy's excess."""
    scalar_losses(axes, subject)
    z = grid(AROUND)
    for s, color in zip(LOW_MIDDLE_HIGH, colors(3), strict=True):
        curve = evaluate(_composite(subject).link.cross_entropy, z, np.full_like(z, s))
        axes.plot(z, curve - curve.min(), color=color, linestyle="--", linewidth=1.0)


def list_links(axes: Axes, subject: Subject, scores: Scores = LOW_MIDDLE_HIGH) -> None:
    """Draws the link of each item of a list in its own score, and dashed its slope."""
    s = grid(AROUND)
    for k, color in enumerate(colors(len(scores))):
        lists = vary_score(scores, k, s)
        axes.plot(s, subject.list_link(lists)[:, k], color=color, label=f"s = {scores[k]:g}")
        slope = subject.list_sensitivity(lists)[:, k]
        axes.plot(s, slope, color=color, linestyle="--", linewidth=1.0)


def probabilities(axes: Axes, subject: Subject, scores: Scores = LOW_MIDDLE_HIGH) -> None:
    """Draws the probability of each item of a list in its own score."""
    s = grid(AROUND)
    for k, color in enumerate(colors(len(scores))):
        p = of_lists(_composite(subject).softmax.probabilities, vary_score(scores, k, s))[:, k]
        axes.plot(s, p, color=color, label=f"s = {scores[k]:g}")
    axes.set_ylim(-0.05, 1.05)


def projections(axes: Axes, subject: Subject, scores: Scores = LOW_MIDDLE_HIGH) -> None:
    """Draws the loss of a list in the score of each item, dotted with the others moved by 1."""
    z = grid(AROUND)
    s = np.tile(scores, [len(z), 1])
    curves = []
    for k, color in enumerate(colors(len(scores))):
        curves.append(subject.list_loss(vary_score(scores, k, z), s))
        axes.plot(z, curves[-1], color=color, label=f"s = {scores[k]:g}")
        for move in (-1.0, 1.0):
            moved = subject.list_loss(vary_score([x + move for x in scores], k, z), s)
            axes.plot(z, moved - moved.min(), color=color, linestyle=":", linewidth=1.0)
    _zoom(axes, z, curves, scores)


def _composite(subject: Subject) -> Composite:
    if not isinstance(subject, Composite):
        raise TypeError(f"The panel needs a composite. Received: {subject}")
    return subject


def _zoom(axes: Axes, z: Array, curves: Sequence[Array], scores: Scores) -> None:
    """Limits the axis to errors of up to 3, so that steep curves do not flatten the others."""
    near = [
        np.max(curve[np.abs(z - s) <= 3.0], initial=0.0)
        for s, curve in zip(scores, curves, strict=True)
    ]
    top = float(max(near))
    lowest = min(0.0, *(float(curve.min()) for curve in curves))
    axes.set_ylim(max(lowest, -top) - 0.05 * top, 1.05 * top)
