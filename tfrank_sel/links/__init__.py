"""Links: increasing functions that define where a loss is sensitive."""

from tfrank_sel import lazy
from tfrank_sel.links import labels as labels
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
from tfrank_sel.links.composite import (
    CompositeSigmoid as CompositeSigmoid,
    CompositeSoftmax as CompositeSoftmax,
)
from tfrank_sel.links.convexity import (
    critical_constant as critical_constant,
    critical_gamma as critical_gamma,
    sigmoid_margin as sigmoid_margin,
)
from tfrank_sel.links.elementary import (
    AbsPower as AbsPower,
    AntiExp as AntiExp,
    Arcsinh as Arcsinh,
    Arctan as Arctan,
    Constant as Constant,
    Cosh as Cosh,
    Exp as Exp,
    Identity as Identity,
    Laplace as Laplace,
    Power as Power,
    Sigmoid as Sigmoid,
    SignedExpm1 as SignedExpm1,
    SignedLog1p as SignedLog1p,
    Sinh as Sinh,
    Tanh as Tanh,
)
from tfrank_sel.links.piecewise import (
    Huber as Huber,
    Interpolated as Interpolated,
    PiecewiseLinear as PiecewiseLinear,
    ReLU as ReLU,
    Sign as Sign,
    SmeLU as SmeLU,
    Staircase as Staircase,
    Step as Step,
)
from tfrank_sel.links.sensitivity import (
    Sensitivity as Sensitivity,
    best_bias as best_bias,
    blust as blust,
    bust as bust,
    class_sensitivity as class_sensitivity,
    constant_predictor as constant_predictor,
    llust as llust,
    sensitivity_table as sensitivity_table,
)

__getattr__, __dir__, __all__ = lazy.exported(__name__)
