"""Links: increasing functions that define where a loss is sensitive."""

from tfrank_sel import surface
from tfrank_sel.links import labels as labels
from tfrank_sel.links.algebraic import (
    Arcsinh as Arcsinh,
    Arctan as Arctan,
    Power as Power,
    SignedLog1p as SignedLog1p,
)
from tfrank_sel.links.base import ElementaryLink as ElementaryLink, Link as Link
from tfrank_sel.links.bounded import (
    Arcsin as Arcsin,
    Arctanh as Arctanh,
    Log as Log,
    Logit as Logit,
    Monomial as Monomial,
    NegLog1m as NegLog1m,
    Sin as Sin,
    Tan as Tan,
)
from tfrank_sel.links.combinators import (
    Capped as Capped,
    Inverse as Inverse,
    Scaled as Scaled,
    Sum as Sum,
)
from tfrank_sel.links.composite import CompositeSoftmax as CompositeSoftmax
from tfrank_sel.links.composite_sigmoid import CompositeSigmoid as CompositeSigmoid
from tfrank_sel.links.convexity import (
    critical_constant as critical_constant,
    critical_gamma as critical_gamma,
    sigmoid_margin as sigmoid_margin,
)
from tfrank_sel.links.elementary import (
    Constant as Constant,
    Identity as Identity,
    Laplace as Laplace,
    Sigmoid as Sigmoid,
    Tanh as Tanh,
)
from tfrank_sel.links.exponential import (
    AntiExp as AntiExp,
    Exp as Exp,
    SignedExpm1 as SignedExpm1,
    Sinh as Sinh,
)
from tfrank_sel.links.piecewise import (
    Huber as Huber,
    PiecewiseLinear as PiecewiseLinear,
    ReLU as ReLU,
    SmeLU as SmeLU,
)
from tfrank_sel.links.scaling import AbsPower as AbsPower, Cosh as Cosh
from tfrank_sel.links.sensitivity import (
    Sensitivity as Sensitivity,
    blust as blust,
    bust as bust,
    class_sensitivity as class_sensitivity,
    constant_predictor as constant_predictor,
    llust as llust,
    sensitivity_table as sensitivity_table,
)
from tfrank_sel.links.steps import Sign as Sign, Staircase as Staircase, Step as Step


def __dir__() -> list[str]:
    return surface.names(globals(), ["labels"])
