"""Our links by the names and parameters that the vectors give them."""

from typing import Any

from tests.golden.vectors import Case
from tfrank_sel import links

PLAIN = {
    "identity": links.Identity,
    "constant": links.Constant,
    "sigmoid": links.Sigmoid,
    "tanh": links.Tanh,
    "exp": links.Exp,
    "antiexp": links.AntiExp,
    "sinh": links.Sinh,
    "cosh": links.Cosh,
    "signed_log1p": links.SignedLog1p,
    "signed_expm1": links.SignedExpm1,
    "arctan": links.Arctan,
    "arcsinh": links.Arcsinh,
    "relu": links.ReLU,
    "step": links.Step,
    "sign": links.Sign,
    "sin": links.Sin,
    "arcsin": links.Arcsin,
    "arctanh": links.Arctanh,
    "tan": links.Tan,
    "logit": links.Logit,
    "neg_log1m": links.NegLog1m,
    "log": links.Log,
}
# the parameters of the paper by ours
WITH_PARAMETERS: dict[str, tuple[type[links.ElementaryLink], dict[str, str]]] = {
    "smelu": (links.SmeLU, {"half_width": "c"}),
    "huber": (links.Huber, {"half_width": "c"}),
    "power": (links.Power, {"exponent": "d"}),
    "monomial": (links.Monomial, {"exponent": "d"}),
    "abs_power_c": (links.AbsPower, {"exponent": "d", "constant": "c"}),
    "staircase": (links.Staircase, {"thresholds": "thresholds", "jumps": "jumps"}),
    "pwl": (
        links.PiecewiseLinear,
        {
            "knots": "knots",
            "values": "values",
            "slope_below": "slope_lo",
            "slope_above": "slope_hi",
        },
    ),
}


def link_of(spec: dict[str, Any], case: Case) -> links.Link:
    scale, shift = float(case["alpha"]), float(case.get("beta", 0.0))
    kind = spec["kind"]
    if kind == "capped":
        bounds = (shift + spec[end] / scale for end in ("lo", "hi"))
        return links.Capped(link_of(spec["base"], case), *bounds)
    if kind in PLAIN:
        return PLAIN[kind](scale=scale, shift=shift)
    make, names = WITH_PARAMETERS[kind]
    parameters = {ours: spec[theirs] for ours, theirs in names.items() if theirs in spec}
    return make(scale=scale, shift=shift, **parameters)


def scalar_link_of(case: Case) -> links.Link:
    link = link_of(case["link"], case)
    return links.Scaled(link, float(case["alpha"])) if case.get("norm") == "slope" else link


def scaling_of(case: Case) -> links.Link:
    """The paper's q(z) = alpha * phi(x), whose potential is Q(z) = Phi(x)."""
    return links.Scaled(link_of(case["q"], case), float(case["alpha"]))
