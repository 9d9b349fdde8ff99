"""Every public link, loss and metric beside its independent reference: one line each.

The contracts run over these tables, and `test_no_public_formula_is_missing` holds them complete.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.references import links as ref_links, losses as ref_losses, metrics as ref_metrics
from tfrank_sel import links, losses, metrics

Array = NDArray[np.float64]
Labels = Callable[[np.random.Generator, tuple[int, ...]], Array]


def grades(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 5, shape).astype(np.float64)


def real_scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(0.0, 1.5, shape).round(3)


class LinkCase(NamedTuple):
    link: links.Link
    reference: ref_links.Formula


class Case(NamedTuple):
    make: Callable[..., Any]  # takes dtype and reduction
    reference: Callable[..., float]  # of labels, scores, weights of one list
    labels: Labels


def loss(make: Callable[..., Any], reference: Any, labels: Labels, *args: Any, **ref: Any) -> Case:
    return Case(functools.partial(make, *args), functools.partial(reference, **ref), labels)


def metric(make: Callable[..., Any], reference: Any, k: int | None) -> Case:
    return Case(functools.partial(make, k=k), functools.partial(reference, k=k), grades)


R, RL, RM = ref_links, ref_losses, ref_metrics

LINKS = [
    LinkCase(links.Identity(), R.IDENTITY),
    LinkCase(links.Identity(scale=2.0, shift=-1.0), R.scaled(R.IDENTITY, 2.0, -1.0)),
    LinkCase(links.Sigmoid(), R.SIGMOID),
    LinkCase(links.Sigmoid(scale=0.5, shift=1.5), R.scaled(R.SIGMOID, 0.5, 1.5)),
    LinkCase(links.Exp(), R.EXP),
    LinkCase(links.Exp(scale=0.5, shift=-1.0), R.scaled(R.EXP, 0.5, -1.0)),
    LinkCase(links.Sinh(), R.SINH),
    LinkCase(links.Sinh(scale=0.5, shift=1.0), R.scaled(R.SINH, 0.5, 1.0)),
    LinkCase(links.Scaled(links.Sinh(scale=0.5), 0.5), R.scaled(R.SINH, 0.5, 0.0, 0.5)),
]

# fmt: off
LOSSES = [
    loss(losses.MatchingLoss, RL.matching, real_scores, LINKS[1].link, link=LINKS[1].reference),
    loss(losses.MatchingLoss, RL.matching, real_scores, LINKS[7].link, link=LINKS[7].reference),
    *(loss(losses.SelectiveSoftmaxLoss, RL.selective_softmax, real_scores, link, 0.5,
           scaling=formula, gamma=0.5) for link, formula in LINKS[::2]),
    loss(losses.SoftmaxLoss, RL.softmax, grades, temperature=1.0),
    loss(losses.SoftmaxLoss, RL.softmax, grades, 0.5, temperature=0.5),
]

METRICS = [
    metric(metrics.NDCG, RM.ndcg, None),
    metric(metrics.NDCG, RM.ndcg, 3),
    metric(metrics.MRR, RM.reciprocal_rank, None),
    metric(metrics.MRR, RM.reciprocal_rank, 2),
]
# fmt: on


def name_of(case: Any) -> str:
    """Names a test by its formula and parameters, e.g. `SoftmaxLoss-0.5`."""
    if isinstance(case, LinkCase):
        return repr(case.link)
    return "-".join(
        [type(case.make()).__name__, *map(str, (*case.make.args, *case.make.keywords.values()))]
    )


def one_per_class(cases: list[Case]) -> list[Case]:
    """The first case of each class, for what its parameters cannot change."""
    return list({case.make.func: case for case in reversed(cases)}.values())
