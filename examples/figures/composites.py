"""Figures that compare links: 2 to 4 and H.1 to H.6, for the parameters that show each point."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from tfrank_sel import links

from . import panels
from .panels import Composite, Decomposed, Panel, Subject, figure_of

LINK = Panel("h, h' (dashed)", panels.link_and_slope)
LOSS = Panel("scalar loss", panels.scalar_losses)
SCALING = Panel("scaling q", panels.scaling)
PROBABILITY = Panel("p", panels.probability)
WITH_CROSS_ENTROPY = Panel("loss, CE (dashed)", panels.losses_and_cross_entropies)
LIST_LINK = Panel("$h_k$, $h'_k$ (dashed)", panels.list_links)
SHARES = Panel("$p_k$", panels.probabilities)
LIST_LOSS = Panel("list loss", panels.projections)

Bases = Sequence[links.ElementaryLink]

HIGH_SCORE: Bases = (
    links.Exp(scale=0.5),
    links.Sigmoid(shift=4.0),
    links.Tanh(scale=0.5, shift=4.0),
    links.SmeLU(half_width=2.0, shift=3.0),
    links.Huber(half_width=2.0, shift=3.0),
    links.Sinh(scale=0.5, shift=-3.0),
)
LOW_SCORE: Bases = (
    links.AntiExp(scale=0.5),
    links.Sigmoid(shift=-4.0),
    links.Tanh(scale=0.5, shift=-4.0),
    links.SmeLU(half_width=2.0, shift=-3.0),
    links.Huber(half_width=2.0, shift=-3.0),
    links.Sinh(scale=0.5, shift=3.0),
)
LOW_NORM: Bases = (
    links.Sigmoid(),
    links.Tanh(scale=0.5),
    links.SmeLU(half_width=2.0),
    links.Huber(half_width=2.0),
    links.Power(exponent=0.5),
    links.Arctan(),
)
HIGH_NORM: Bases = (
    links.Sinh(scale=0.5),
    links.Power(exponent=3.0, scale=0.5),
    links.Power(exponent=2.0),
    links.Power(exponent=1.5),
    links.Sinh(),
    links.Sinh(scale=0.5, shift=1.0),
)
HIGH_NORM_SCALINGS: Sequence[Composite] = (
    Composite(links.Sinh(scale=0.5)),
    Composite(links.Sinh(scale=0.75)),
    Composite(links.Identity()),
    Composite(links.Identity(scale=0.5)),
    Composite(links.Power(exponent=3.0, scale=0.5)),
    Composite(links.Cosh(scale=0.431, shift=1.7), 1.3),
)


def figure_2() -> Figure:
    """Draws the effect of the shift of a sigmoid or a sinh on the sensitivity of a loss."""
    bases = [
        links.Sigmoid(),
        links.Sigmoid(shift=4.0),
        links.Sigmoid(shift=-4.0),
        links.Sinh(scale=0.5),
    ]
    subjects = [Decomposed(base) for base in bases]
    return figure_of([(LINK, subjects), (LOSS, subjects)], "Links and their matching losses")


def figure_3() -> Figure:
    """Draws composite Sigmoids, with the cross-entropies that are not convex."""
    bases = [
        links.Sigmoid(),
        links.Sigmoid(shift=4.0),
        links.Sigmoid(shift=-4.0),
        links.Sinh(scale=0.5),
        links.Tanh(),
    ]
    rows = (SCALING, PROBABILITY, LINK, WITH_CROSS_ENTROPY)
    return _compare(rows, [Composite(base) for base in bases], "Composite Sigmoid")


def figure_4() -> Figure:
    """Draws the losses of a list of three: a decomposed one, and composite Softmaxes."""
    sinh = [Composite(links.Sinh(scale=0.5, shift=shift)) for shift in (-3.0, 3.0, 0.0)]
    return _lists([Decomposed(links.Sigmoid()), *sinh], "Decomposed loss and composite Softmax")


def figure_h1() -> Figure:
    """Draws links for high scores, low scores, low norms and high norms."""
    rows = [[Decomposed(x) for x in b] for b in (HIGH_SCORE, LOW_SCORE, LOW_NORM, HIGH_NORM)]
    return _families(rows, "Links: high score, low score, low norm, high norm")


def figure_h2() -> Figure:
    """Draws the same as scalings of a composite Sigmoid."""
    rows: list[Sequence[Composite]]
    rows = [[Composite(x) for x in bases] for bases in (HIGH_SCORE, LOW_SCORE, LOW_NORM)]
    title = "Scalings of a composite Sigmoid: high score, low score, low norm, high norm"
    return _families([*rows, HIGH_NORM_SCALINGS], title)


def figure_h3() -> Figure:
    """Draws composite Softmaxes for high scores."""
    bases = [
        links.Exp(scale=0.5),
        links.Sigmoid(shift=3.0),
        links.Sinh(scale=0.5, shift=-3.0),
        links.SmeLU(half_width=2.0, shift=3.0),
        links.Step(),
    ]
    return _lists([Composite(base) for base in bases], "Composite Softmax: high scores")


def figure_h4() -> Figure:
    """Draws composite Softmaxes for low scores."""
    subjects = [
        Composite(links.AntiExp(scale=0.5)),
        Composite(links.Sinh(scale=0.5, shift=3.0)),
        Composite(links.Identity(shift=3.0)),
        Composite(links.Cosh(scale=0.172, shift=5.3), 1.3),
    ]
    return _lists(subjects, "Composite Softmax: low scores")


def figure_h5() -> Figure:
    """Draws composite Softmaxes for high norms."""
    subjects = [
        Composite(links.Sinh(scale=0.5)),
        Composite(links.Power(exponent=3.0, scale=0.5)),
        Composite(links.Identity(scale=0.5)),
        Composite(links.Cosh(scale=0.297, shift=2.7), 1.3),
    ]
    return _lists(subjects, "Composite Softmax: high norms")


def figure_h6() -> Figure:
    """Draws scalings whose composite Softmax is sensitive elsewhere than the scalings are."""
    bases: Bases = [
        links.Sigmoid(),
        links.Sigmoid(shift=-3.0),
        links.Tanh(),
        links.Tanh(shift=3.0),
        links.Tanh(shift=-3.0),
    ]
    rows = (SCALING, SHARES, LIST_LINK, LOSS, LIST_LOSS)
    return _compare(rows, [Composite(base) for base in bases], "Composite Softmax: what fails")


def _lists(subjects: Sequence[Subject], title: str) -> Figure:
    return _compare((LIST_LINK, LOSS, LIST_LOSS), subjects, title)


def _compare(rows: Sequence[Panel], subjects: Sequence[Subject], title: str) -> Figure:
    return figure_of([(panel, subjects) for panel in rows], title)


def _families(families: Sequence[Sequence[Subject]], title: str) -> Figure:
    return figure_of([(panel, family) for family in families for panel in (LINK, LOSS)], title)
