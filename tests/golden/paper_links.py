"""Our links by the names and parameters that the vectors give them."""

from typing import Any

from tests.golden.vectors import Case
from tfrank_sel import links

# links without parameters but scale and shift
PLAIN = {
    name.lower(): make
    for name, make in vars(links).items()
    if isinstance(make, type) and issubclass(make, links.ElementaryLink)
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
    if kind not in WITH_PARAMETERS:
        return PLAIN[kind.replace("_", "")](scale=scale, shift=shift)
    make, names = WITH_PARAMETERS[kind]
    parameters = {ours: spec[theirs] for ours, theirs in names.items() if theirs in spec}
    return make(scale=scale, shift=shift, **parameters)


def scalar_link_of(case: Case) -> links.Link:
    link = link_of(case["link"], case)
    return links.Scaled(link, float(case["alpha"])) if case.get("norm") == "slope" else link


def scaling_of(case: Case) -> links.Link:
    """The paper's q(z) = alpha * phi(x), whose potential is Q(z) = Phi(x)."""
    return links.Scaled(link_of(case["q"], case), float(case["alpha"]))
