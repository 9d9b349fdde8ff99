"""Errors of losses relative to mpmath, for inputs that are hard for float32.

    pip install '.[benchmarks]'
    python -m benchmarks.robustness.adversarial

Every loss of every link, and losses of labels, are computed as a user computes them, in float32 and
compiled, on lists made to break them: scores that nearly agree, agree in all but one, lie far
apart, at kinks, caps and mirrors, at 1e4, at 1e-40; items without probability; weights from 1e-12
to 1e12. The reference takes the same float32 numbers to 100 digits. An error of a loss is relative
to it, or, where it can be negative, to its largest term; one of a gradient is relative to its
largest entry. Lists whose loss or gradient float32 cannot hold do not count.
"""

import argparse
import dataclasses
import datetime
import functools
import math
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import tensorflow as tf

from benchmarks.robustness import exact, exact_labels
from benchmarks.robustness.adversarial_lists import (
    BOUNDED,
    BOUNDED_REGIMES,
    LONG,
    LONG_REGIMES,
    ON_THE_LINE,
    REGIMES,
    Array,
    Lists,
    lists,
)
from benchmarks.speed.interleaved import machine
from tfrank_sel import links, losses

tf.get_logger().setLevel("ERROR")
PROMISE = 2e-5
DIGITS = 100
SIZE = 6
HELD = (1e-30, 1e37)

HEAD = """| loss | lists | error of the loss | error of the gradient |
|---|---|---|---|"""


@dataclasses.dataclass(frozen=True)
class Family:
    """A loss of a link, and what it is exactly.

    Args:
        make: Makes the loss of a link.
        exact: Computes it, and its gradient, from labels, scores and weights.
        allows: Whether it takes a link.
        targets: Whether labels are values of the link.
        multiplies: Whether the weight of an item multiplies its loss; else it is a share.
        least: Smallest loss of an item that is promised.
    """

    make: Callable[[links.Link], losses.ListwiseLoss]
    exact: Callable[[exact.Formula], Callable[..., Any]]
    allows: Callable[[links.Link], bool] = lambda link: True
    targets: bool = False
    multiplies: bool = True
    least: float = 1e-20


def softmaxes(gamma: float) -> dict[str, Family]:
    return {
        "SelectiveSoftmaxLoss": Family(
            lambda q: losses.SelectiveSoftmaxLoss(q, gamma, reduction="none"),
            lambda f: lambda *x: exact.softmax(f, gamma, *x),
            multiplies=False,
        ),
        "SelectiveSoftmaxCrossEntropyLoss": Family(
            lambda q: losses.SelectiveSoftmaxCrossEntropyLoss(q, gamma, reduction="none"),
            lambda f: lambda *x: exact.softmax_cross_entropy(f, gamma, *x),
            multiplies=False,
        ),
        "SelectiveSigmoidLoss": Family(
            lambda q: losses.SelectiveSigmoidLoss(q, gamma, reduction="none"),
            lambda f: lambda *x: exact.matching(exact.composite_sigmoid(f, gamma, 0.0), *x),
        ),
        "SelectiveSigmoidCrossEntropyLoss": Family(
            lambda q: losses.SelectiveSigmoidCrossEntropyLoss(q, gamma, reduction="none"),
            lambda f: lambda *x: exact.sigmoid_cross_entropy(f, gamma, 0.0, *x),
        ),
    }


SCALAR: dict[str, Family] = {
    "MatchingLoss": Family(
        lambda q: losses.MatchingLoss(q, reduction="none"),
        lambda f: lambda *x: exact.matching(f, *x),
    ),
    "DecomposedMatchingLoss": Family(
        lambda q: losses.DecomposedMatchingLoss(q, reduction="none"),
        lambda f: lambda *x: exact.decomposed(f, *x),
    ),
    "ContrastiveMatchingLoss": Family(
        lambda q: losses.ContrastiveMatchingLoss(q, reduction="none"),
        lambda f: lambda *x: exact.contrastive(f, *x),
        allows=lambda link: link.is_odd and link.domain[1] == math.inf,
    ),
    "FenchelYoungLoss": Family(
        lambda q: losses.FenchelYoungLoss(q, reduction="none"),
        lambda f: lambda *x: exact.fenchel_young(f, *x),
        allows=lambda link: link.is_invertible and not link.kinks,
        targets=True,
        least=1e-13,
    ),
}


LABELLED: dict[str, tuple[losses.ListwiseLoss, exact_labels.Terms]] = {
    type(loss).__name__: (loss, terms)
    for loss, terms in (
        (losses.SoftmaxLoss(reduction="none"), exact_labels.softmax),
        (losses.CalibratedSoftmaxLoss(1.0, reduction="none"), exact_labels.calibrated),
        (losses.PolyOneSoftmaxLoss(reduction="none"), exact_labels.poly_one),
        (losses.InfoNCELoss(reduction="none"), exact_labels.infonce),
        (losses.ListMLELoss(reduction="none"), exact_labels.list_mle),
        (losses.ZLPRLoss(reduction="none"), exact_labels.zlpr),
        (losses.RG2Loss(reduction="none"), exact_labels.rg2),
        (losses.RGCrossLoss(reduction="none"), exact_labels.rg_cross),
        (losses.SmoothTopKLoss(2, 0.1, reduction="none"), exact_labels.smooth_top_k(2, 0.1)),
        (losses.PairwiseLogisticLoss(reduction="none"), exact_labels.pairwise_logistic),
        (losses.SigmoidCrossEntropyLoss(reduction="none"), exact_labels.sigmoid_cross_entropy),
    )
}
PROBABILITIES = ("ZLPRLoss", "SigmoidCrossEntropyLoss")  # their labels are at most 1
SIGNED = ("RG2Loss", "RGCrossLoss")


@dataclasses.dataclass(frozen=True)
class Case:
    """A loss of a link.

    Args:
        loss: The loss.
        family: What it is exactly.
        link: The link.
        gamma: Temperature, where there is one.
    """

    loss: losses.ListwiseLoss
    family: Family
    link: links.Link
    gamma: float

    @property
    def name(self) -> str:
        """What a reader finds it by."""
        return f"{type(self.loss).__name__}, {self.link}, gamma={self.gamma}"


@dataclasses.dataclass
class Worst:
    """The largest errors of a family.

    Args:
        lists: Number of lists compared.
        loss: The largest error of a loss, and of what.
        gradient: The largest error of a gradient, and of what.
    """

    lists: int = 0
    loss: tuple[float, str] = (0.0, "")
    gradient: tuple[float, str] = (0.0, "")

    def add(self, name: str, loss: float, gradient: float, *rows: Array) -> None:
        """Counts a list, and prints it if it is beyond the promise."""
        self.lists += 1
        self.loss = max(self.loss, (loss, name))
        self.gradient = max(self.gradient, (gradient, name))
        if not max(loss, gradient) < PROMISE:
            lists = [row.tolist() for row in rows]
            print(f"{name}: {loss:.1e}, {gradient:.1e}: {lists}", file=sys.stderr)

    def join(self, other: "Worst") -> None:
        """Takes in the errors of others."""
        self.lists += other.lists
        self.loss = max(self.loss, other.loss)
        self.gradient = max(self.gradient, other.gradient)


def computed(loss: losses.ListwiseLoss, made: Lists) -> tuple[Array, Array]:
    """The loss of each list, and its gradient, by the public call."""
    z = tf.constant(made.z)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = loss(made.s, z, made.w)
    return value.numpy(), tape.gradient(value, z).numpy()


def is_held(formula: exact.Formula, gamma: float, *lists: list[mp.mpf]) -> bool:
    """Whether float32 holds what the loss of observed and predicted scores and weights adds up."""
    s, z, w = lists
    potential = max(abs(formula.potential(x)) for x in (*s, *z)) / min(gamma, 1.0)
    link = max(abs(formula.h(x)) for x in (*s, *z))
    step = max(1.0, *(abs(b - a) for a, b in zip(s, z, strict=True)))
    return max(potential, link * step) * max(1.0, *w) < HELD[1]


def errors(
    found: tuple[float, Array],
    exactly: tuple[mp.mpf, list[mp.mpf]],
    size: mp.mpf,
    weight: mp.mpf,
    scale: mp.mpf | None = None,
    least: float = HELD[0],
) -> tuple[float, float]:
    """The errors of a loss and its gradient; 0 where float32 cannot hold them before weighting.

    A gradient is the difference of values of the link: below 1e-9 of their `size` it is not held.
    The error of a loss is relative to `scale`, by default the loss, and below `least` it is not.
    """
    (value, gradient), (exact_value, exact_gradient) = found, exactly
    top = max(map(abs, exact_gradient))
    scale = abs(exact_value) if scale is None else scale
    in_loss = in_gradient = 0.0
    if least * weight < scale < HELD[1]:
        in_loss = relative(value, exact_value, scale)
    if max(HELD[0], size * 1e-9) * weight < top < HELD[1]:
        pairs = zip(gradient, exact_gradient, strict=True)
        in_gradient = max(relative(a, b, top) for a, b in pairs)
    return in_loss, in_gradient


def relative(a: float, b: mp.mpf, size: mp.mpf) -> float:
    return float(abs(mp.mpf(float(a)) - b) / size) if math.isfinite(a) else math.inf


def compare(case: Case, made: Lists, worst: Worst) -> None:
    """Compares the lists of a class, and keeps its largest errors."""
    formula, (low, high) = exact.formula_of(case.link), case.link.domain
    exactly = case.family.exact(formula)
    values, gradients = computed(case.loss, made)
    for k, regime in enumerate(made.regimes):
        is_item = ~np.isnan(made.s[k])
        rows = [row[k][is_item] for row in (made.s, made.z, made.w)]
        s, z, w = ([mp.mpf(float(x)) for x in row] for row in rows)
        observed = s
        if case.family.targets:
            if not all(case.link.image[0] < y < case.link.image[1] for y in s):
                continue
            observed = [formula.inverse(y) for y in s]
            if any(
                abs(formula.h(x) - y) > 1e-20 * abs(y) for x, y in zip(observed, s, strict=True)
            ):
                continue
        if not all(low < x < high for x in (*observed, *z)):
            continue
        if not is_held(formula, case.gamma, observed, z, w):
            continue
        size = max(map(abs, map(formula.h, (*observed, *z))))
        weight = max(1.0, *w) if case.family.multiplies else 1.0
        found = values[k], gradients[k][is_item]
        found = errors(found, exactly(s, z, w), size, weight, least=case.family.least)
        worst.add(f"{case.name}, {regime}", *found, *rows)


def labels(rng: np.random.Generator, n: int, top: int) -> Array:
    """One relevant item, or some: never none, never all."""
    y = np.zeros(n) if rng.random() < 0.3 else rng.integers(top + 1, size=n)
    relevant, other = rng.permutation(n)[:2]
    y[relevant], y[other] = 1.0, 0.0
    return y


def compare_labels(rng: np.random.Generator, name: str, made: Lists, worst: Worst) -> None:
    """Compares a loss of labels on lists of scores, of which some are in the right order."""
    loss, terms = LABELLED[name]
    y = np.array([labels(rng, made.z.shape[1], 1 if name in PROBABILITIES else 3) for _ in made.z])
    right = rng.random(len(y)) < 0.3
    y[right], made.z[right] = np.sort(y[right]), np.sort(made.z[right])
    made = dataclasses.replace(made, s=y.astype(np.float32))
    values, gradients = computed(loss, made)
    for k, regime in enumerate(made.regimes):
        rows = made.s[k], made.z[k], made.w[k]
        numbers = [[mp.mpf(float(x)) for x in row] for row in rows]
        *exactly, largest = exact_labels.with_gradient(terms, *numbers)
        scale, weight = largest if name in SIGNED else None, max(1.0, *numbers[2])
        found = errors((values[k], gradients[k]), exactly, mp.mpf(0), weight, scale)
        worst.add(f"{name}, {regime}", *found, *rows)


def cases(names: Sequence[str]) -> list[Case]:
    """All losses of all links; `SelectiveSoftmaxLoss` at three temperatures, the rest at one."""
    made = []
    for number, link in enumerate(ON_THE_LINE + BOUNDED):
        for turn, gamma in enumerate((1.0, 0.1, 10.0)):
            families = {**softmaxes(gamma), **(SCALAR if gamma == 1.0 else {})}
            made += [
                Case(family.make(link), family, link, gamma)
                for name, family in families.items()
                if name in names
                and family.allows(link)
                and (name in SCALAR or name == "SelectiveSoftmaxLoss" or turn == number % 3)
            ]
    return made


@functools.cache
def everything(names: Sequence[str]) -> list[Case | str]:
    """What is compared: losses of links, and the names of losses of labels."""
    return [*cases(names), *(name for name in names if name in LABELLED)]


def compare_one(names: Sequence[str], seed: int, count: int, number: int) -> tuple[str, Worst]:
    """Compares one of everything, with random numbers of its own, and returns its name, too."""
    mp.mp.dps = DIGITS
    rng, worst = np.random.default_rng([seed, number]), Worst()
    match everything(names)[number]:
        case str(name):
            identity = links.Identity()
            for size, regimes, each in ((SIZE, REGIMES, 10 * count), (30, LONG_REGIMES, 1)):
                made = lists(rng, identity, regimes, each, size, targets=False)
                compare_labels(rng, name, made, worst)
        case case:
            name = type(case.loss).__name__
            compare_case(rng, case, count, worst)
    return name, worst


def sweep(names: Sequence[str], seed: int, count: int, processes: int) -> dict[str, Worst]:
    """Compares all losses once; a process that has compiled many of them gives way to another."""
    worst = {name: Worst() for name in names}
    task = functools.partial(compare_one, names, seed, count)
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    with context.Pool(processes, maxtasksperchild=40) as pool:
        for name, found in pool.imap_unordered(task, range(len(everything(names)))):
            worst[name].join(found)
    return worst


def compare_case(rng: np.random.Generator, case: Case, count: int, worst: Worst) -> None:
    """Compares a loss of a link on lists of all regimes."""
    on_the_line = case.link in ON_THE_LINE
    regimes = REGIMES if on_the_line else BOUNDED_REGIMES
    each = count if on_the_line else 10 * count
    made = lists(rng, case.link, regimes, each, SIZE, case.family.targets)
    padded = np.arange(SIZE) >= rng.choice((1, 2, SIZE, SIZE), (len(made.s), 1))
    compare(case, dataclasses.replace(made, s=np.where(padded, np.nan, made.s)), worst)
    if case.link in LONG and not isinstance(case.loss, losses.ContrastiveMatchingLoss):
        made = lists(rng, case.link, LONG_REGIMES, 1, 10_000, case.family.targets)
        compare(case, made, worst)


def main() -> None:
    """Prints the table of the largest errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=3, help="lists of a regime")
    parser.add_argument("--processes", type=int, default=2)
    names = [*SCALAR, *softmaxes(1.0), *LABELLED]
    parser.add_argument("losses", nargs="*", default=names, help=f"any of {', '.join(names)}")
    arguments = parser.parse_args()
    names, seed = tuple(arguments.losses), arguments.seed
    worst = sweep(names, seed, arguments.count, arguments.processes)
    versions = f"mpmath {mp.__version__}, seed {seed}"
    print(f"{machine()}, {versions}, {datetime.date.today()}", HEAD, sep="\n\n")
    for name, found in worst.items():
        print(f"| `{name}` | {found.lists:,} | {found.loss[0]:.1e} | {found.gradient[0]:.1e} |")
    for name, found in worst.items():
        print(f"{name}: {found.loss[1]}; {found.gradient[1]}", file=sys.stderr)


if __name__ == "__main__":
    main()
