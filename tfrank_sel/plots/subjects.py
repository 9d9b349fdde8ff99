"""Subjects of figure columns: a link, or a scaling and its composites."""

import dataclasses
from typing import Protocol

from tfrank_sel.links.base import ElementaryLink, Link
from tfrank_sel.links.combinators import Scaled
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.links.composite_sigmoid import CompositeSigmoid
from tfrank_sel.links.convexity import is_increasing
from tfrank_sel.plots.axes import Array, evaluate, of_lists

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
