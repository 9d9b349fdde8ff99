"""Where our losses mean to differ from those of tensorflow-ranking, and why.

`python -m tests.golden.tfr_differences` prints the table of `docs/migration.md`.
"""

from typing import Any

from tests.golden import differences
from tests.golden.differences import Difference
from tests.golden.vectors import Case

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


def is_padded(case: Case) -> bool:
    width = max((len(x) for x in case["y_true"]), default=0)
    return any(len(labels) < width for labels, _ in rows(case))


def has_list_without_relevant(case: Case) -> bool:
    return any(labels and not any(labels) for labels, _ in rows(case))


def spreads_beyond_float32(case: Case) -> bool:
    temperature = case["kwargs"].get("temperature", 1.0)
    scores = [s for row in case["y_pred"] for s in row]
    return bool(scores) and (max(scores) - min(scores)) / temperature > 80.0


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
        ("PairwiseLogisticLoss",),
        "equal scores of a pair",
        "The gradient of such a pair is 0, so that equal scores stay so. Here it is -1/2 and 1/2, "
        "the slope.",
        lambda case: case["deterministic"] and any(s == t for s, t in pairs(case)),
    ),
    Difference(
        PAIRWISE,
        "lambda weights, and scores beside padding that are large, or tied at the lowest",
        "Padding is ranked by the lowest score less 1e-6, which rounds to that score, so that it "
        "has the rank of a valid item. Here it is behind all of them.",
        lambda case: (
            case["lambda_weight"] is not None
            and case["lambda_weight"]["class"] != "LabelDiffLambdaWeight"  # which has no ranks
            and case["scenario"] in ("large_scores", "low_ties_pad")
        ),
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
        lambda case: case["scenario"] in ("very_low_scores", "large_scores"),
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
        lambda case: case["scenario"] == "zero_width",
    ),
    Difference(
        ("losses_impl.CircleLoss",),
        "lists without a pair",
        "The weight of such a list is 0 / 0 = NaN. Here its loss is 0.",
        lambda case: any(len(set(labels)) < 2 for labels, _ in rows(case)),
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

RAISED = Difference(
    ("GumbelApproxNDCGLoss",),
    "a scalar weight",
    "It raises an error. Here it weighs every list.",
    lambda case: "error" in case,
)

USED_BY = {
    "SoftmaxLoss": ("DCGLambdaWeight", "NDCGLambdaWeight"),
    "ListMLELoss": ("ListMLELambdaWeight",),
}


def of(case: Case) -> Difference | None:
    """The intended difference of a case, if there is one."""
    return next(
        (d for d in [REFUSED, RAISED, *DIFFERENCES] if case["loss"] in d.about and d.where(case)),
        None,
    )


def table() -> str:
    """The table of all differences in markdown."""

    def named(losses: tuple[str, ...]) -> str:
        return ", ".join(name.removeprefix("losses_impl.") for name in losses)

    return differences.table("loss of tensorflow-ranking", [*DIFFERENCES, REFUSED, RAISED], named)


if __name__ == "__main__":
    print(table())
