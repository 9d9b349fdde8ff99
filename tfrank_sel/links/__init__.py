"""Links: increasing functions that choose where a loss is sensitive."""

from tfrank_sel.links.base import ElementaryLink as ElementaryLink, Link as Link, Scaled as Scaled
from tfrank_sel.links.composite import CompositeSoftmax as CompositeSoftmax
from tfrank_sel.links.elementary import (
    Exp as Exp,
    Identity as Identity,
    Sigmoid as Sigmoid,
    Sinh as Sinh,
)
