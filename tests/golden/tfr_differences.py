"""Intended differences from the losses of tensorflow-ranking, with reasons.

`python -m tests.golden.tfr_differences` prints the table of `docs/migration.md`.
"""

import math
from typing import Any

import numpy as np

from tests.golden import differences
from tests.golden.differences import Difference
from tests.golden.vectors import Case
from tests.references import listwise as reference

SOFTMAXES = (
    "SoftmaxLoss",
    "UniqueSoftmaxLoss",
    "CoupledRankDistilLoss",
    "losses_impl.PolyOneSoftmaxLoss",
)
PAIRWISE = (
    "PairwiseHingeLoss",
    "PairwiseLogisticLoss",
    "PairwiseMSELoss",
    "PairwiseSoftZeroOneLoss",
)
NEURAL_SORTS = ("losses_impl.NeuralSortCrossEntropyLoss", "losses_impl.NeuralSortNDCGLoss")
WITHOUT_LAMBDA_WEIGHTS = (
    "UniqueSoftmaxLoss",
    "ApproxNDCGLoss",
    "ApproxMRRLoss",
    "GumbelApproxNDCGLoss",
    "MixtureEMLoss",
)


def rows(case: Case) -> list[tuple[list[float], list[Any]]]:
    """The labels and scores of the valid items of each list."""
    pairs = (zip(*x, strict=True) for x in zip(case["y_true"], case["y_pred"], strict=True))
    valid = ([(y, s) for y, s in row if y >= 0] for row in pairs)
    return [([y for y, _ in row], [s for _, s in row]) for row in valid]


def width(case: Case) -> int:
    return max((len(x) for x in case["y_true"]), default=0)


def is_padded(case: Case) -> bool:
    return any(len(labels) < width(case) for labels, _ in rows(case))


def logits(case: Case) -> list[tuple[list[float], list[float]]]:
    """The scores of each padded list over the temperature: those of all items and of valid ones."""
    temperature = case["kwargs"].get("temperature", 1.0)
    divided = [[s / temperature for s in row] for row in case["y_pred"]]
    return [
        (row, [x for y, x in zip(labels, row, strict=True) if y >= 0])
        for labels, row in zip(case["y_true"], divided, strict=True)
        if sum(y >= 0 for y in labels) < width(case)
    ]


def ranks_padding_with_items(case: Case) -> bool:
    """Whether the lowest score less 1e-6 is, in float32, no less than the score of some item."""
    return any(
        bool(valid) and np.float32(min(valid)) <= np.float32(min(row)) - np.float32(1e-6)
        for row, valid in logits(case)
    )


def leaks_padding(case: Case) -> bool:
    """Whether the exp(-23) of padding counts beside the exponential of some item."""
    return any(bool(valid) and min(valid) < -23.0 - math.log(1e-6) for _, valid in logits(case))


def has_list_without_relevant(case: Case) -> bool:
    return any(labels and not any(labels) for labels, _ in rows(case))


def spreads_beyond_float32(case: Case) -> bool:
    temperature = case["kwargs"].get("temperature", 1.0)
    scores = [s for row in case["y_pred"] for s in row]
    return bool(scores) and (max(scores) - min(scores)) / temperature > 80.0


def overflows_circle(case: Case) -> bool:
    """Whether the term of some two items, padding and items that are no pair too, overflows."""
    gamma, margin = (case["kwargs"].get(n, x) for n, x in (("gamma", 64.0), ("margin", 0.25)))
    clipped = [np.clip(row, 0.0, 1.0) for row in case["y_pred"] if row]
    return any(gamma * ((1 - min(s)) ** 2 + max(s) ** 2 - 2 * margin**2) > 80.0 for s in clipped)


def has_small_shares(case: Case) -> bool:
    """Whether a share of the soft permutation is so small that 1e-20 counts beside it."""
    temperature = case["kwargs"].get("temperature", 1.0)
    soft = (reference.neural_sort([s / temperature for s in x]) for _, x in rows(case))
    return any(share < math.log(1e-20 / 1e-6) for sort in soft for row in sort for share in row)


def pairs(case: Case) -> list[tuple[float, float]]:
    """The scores of all pairs of different labels, that of the larger label first."""
    return [
        (s, t)
        for labels, scores in rows(case)
        for y, s in zip(labels, scores, strict=True)
        for z, t in zip(labels, scores, strict=True)
        if y > z
    ]


def has_label_of_no_class(case: Case) -> bool:
    return any(y >= case["kwargs"]["num_classes"] for labels, _ in rows(case) for y in labels)


DIFFERENCES = [
    Difference(
        PAIRWISE,
        "lambda weights, and scores beside padding that are large, or tied at the lowest",
        "Padding is ranked by the lowest score less 1e-6, which rounds to that score, so that it "
        "has the rank of a valid item. Here it is behind all of them.",
        lambda case: (
            case["lambda_weight"] is not None
            and case["lambda_weight"]["class"] != "LabelDiffLambdaWeight"  # which has no ranks
            and ranks_padding_with_items(case)
        ),
    ),
    Difference(
        ("PairwiseLogisticLoss",),
        "equal scores of a pair",
        "The gradient of such a pair is 0, so that equal scores stay so. Here it is -1/2 and 1/2, "
        "the slope.",
        lambda case: any(s == t for s, t in pairs(case)),
        of=("gradient",),
    ),
    Difference(
        ("losses_impl.MultiClassLoss",),
        "labels that are no class",
        "The gradient is not the slope of the value. Here it is.",
        has_label_of_no_class,
    ),
    Difference(
        SOFTMAXES,
        "scores far below zero beside padding",
        "Padding scores log(1e-10) = -23 there, and wins over valid items that score less. Here "
        "it has no share, whatever the scores.",
        leaks_padding,
    ),
    Difference(
        ("ListMLELoss",),
        "scores more than 80 apart",
        "The sum of exponentials behind an item underflows: the loss is -inf and its gradient NaN. "
        "Here both are exact.",
        spreads_beyond_float32,
    ),
    Difference(
        ("ListMLELoss", "CoupledRankDistilLoss"),
        "padding",
        "Padding is ranked behind the valid items and adds a cost of its own, log(m!) for m of it. "
        "Here it changes nothing.",
        is_padded,
    ),
    Difference(
        ("ListMLELoss",),
        "lists whose labels are all 0",
        "They are trained towards a random order. Here a list without a relevant item has loss 0, "
        "as it has there once it is weighted.",
        has_list_without_relevant,
    ),
    Difference(
        ("ApproxMRRLoss",),
        "lists of width zero",
        "0 / 0 = NaN. Here a list without items has loss 0.",
        lambda case: "error" not in case and not width(case),
    ),
    Difference(
        ("losses_impl.CircleLoss",),
        "lists without a pair",
        "The weight of such a list is 0 / 0 = NaN. Here its loss is 0.",
        lambda case: any(len(set(labels)) < 2 for labels, _ in rows(case)),
    ),
    Difference(
        ("losses_impl.CircleLoss",),
        "two items, padding too, whose term is beyond exp(80)",
        "The exponential of the term overflows, and 0 * inf = NaN where they are no pair. Here the "
        "loss is exact.",
        overflows_circle,
    ),
    Difference(
        ("losses_impl.NeuralSortCrossEntropyLoss",),
        "shares of the soft permutation around 1e-20 and below",
        "The logarithm is that of the share and 1e-20, so that no share costs more than 46. Here "
        "it is that of the share.",
        has_small_shares,
    ),
]

REFUSED = Difference(
    (*WITHOUT_LAMBDA_WEIGHTS, "SoftmaxLoss", "ListMLELoss"),
    "lambda weights that the loss cannot use",
    "They are ignored. Here they are an error: the loss has no such argument, or names what it "
    "takes.",
    lambda case: (
        case["lambda_weight"] is not None
        and case["lambda_weight"]["class"] not in USED_BY.get(case["loss"], ())
    ),
)

RAISED = [
    Difference(
        ("GumbelApproxNDCGLoss",),
        "a scalar weight",
        "It raises an error. Here it weighs every list.",
        lambda case: "error" in case and case["weight_kind"] == "w_scalar",
    ),
    Difference(
        ("CoupledRankDistilLoss", *NEURAL_SORTS),
        "lists of width zero",
        "They raise an error. Here a list without items has loss 0.",
        lambda case: "error" in case and not width(case),
    ),
]

USED_BY = {
    "SoftmaxLoss": ("DCGLambdaWeight", "NDCGLambdaWeight"),
    "ListMLELoss": ("ListMLELambdaWeight",),
}


def of(case: Case) -> Difference | None:
    """The intended difference of a case, if there is one."""
    return next(
        (d for d in [REFUSED, *RAISED, *DIFFERENCES] if case["loss"] in d.about and d.where(case)),
        None,
    )


def table() -> str:
    """The table of all differences in markdown."""

    def named(losses: tuple[str, ...]) -> str:
        return ", ".join(name.removeprefix("losses_impl.") for name in losses)

    return differences.table("loss of tensorflow-ranking", [*DIFFERENCES, REFUSED, *RAISED], named)


if __name__ == "__main__":
    print(table())
