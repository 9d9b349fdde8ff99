"""Which loss of this package each loss of tensorflow-ranking is, arguments and all.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another loss.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.references import losses as ref_losses
from tfrank_sel import losses
from tfrank_sel.ops import ranking


def one(labels: list[float], scores: list[Any]) -> float:
    """A list counts once in both."""
    return 1.0


class Ours(NamedTuple):
    """A loss of this package that stands for one of tensorflow-ranking.

    Attributes:
        make: Makes the loss; takes `dtype` and `reduction`.
        reference: The loss of one list, of its labels, scores and weights.
        times: By what our loss of a list of these labels and scores is multiplied, so that it is
            the sum over the items of the list (or over the samples) that tensorflow-ranking has.
    """

    make: Callable[..., Any]
    reference: Callable[..., float]
    times: Callable[[list[float], list[Any]], float] = one


def of(case: dict[str, Any]) -> Ours:
    """Our counterpart of the loss of a golden case."""
    arguments = {k: v for k, v in case["kwargs"].items() if k != "ragged"}  # ours take any input
    if case["lambda_weight"] is not None:
        arguments["lambda_weight"] = lambda_weight(case)
    return LOSSES[case["loss"]](**arguments)


def lambda_weight(case: dict[str, Any]) -> Any:
    """Our counterpart of the lambda weight of a golden case."""
    given = case["lambda_weight"]
    arguments = {
        k: FUNCTIONS[v] if isinstance(v, str) else v for k, v in given.get("kwargs", {}).items()
    }
    return LAMBDA_WEIGHTS[given["class"]](**arguments)


def softmax(temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.SoftmaxLoss, temperature),
        functools.partial(ref_losses.softmax, temperature=temperature),
        lambda labels, scores: sum(labels),  # ours has shares of the labels for targets
    )


def p_list_mle(rank_discount_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return rank_discount_fn


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "identity": ranking.linear_gain,
    "pow_minus_1": ranking.exponential_gain,
    "log2_inverse": ranking.log2_discount,
}

LAMBDA_WEIGHTS: dict[str, Callable[..., Any]] = {
    "ListMLELambdaWeight": p_list_mle,
}

LOSSES: dict[str, Callable[..., Ours]] = {
    "SoftmaxLoss": softmax,
}

# What is not written yet; a loss or lambda weight leaves this list with the commit that adds it
# above.
TO_COME = {
    "PairwiseHingeLoss",
    "PairwiseLogisticLoss",
    "PairwiseMSELoss",
    "PairwiseSoftZeroOneLoss",
    "YetiLogisticLoss",
    "SigmoidCrossEntropyLoss",
    "MeanSquaredLoss",
    "OrdinalLoss",
    "losses_impl.MultiClassLoss",
    "SoftmaxLoss with NDCGLambdaWeight",
    "SoftmaxLoss with DCGLambdaWeight",
}


def name_of(case: dict[str, Any]) -> str:
    """The name of the loss of a case, and of its lambda weight."""
    given = case["lambda_weight"]
    return case["loss"] if given is None else f"{case['loss']} with {given['class']}"


def is_to_come(case: dict[str, Any]) -> bool:
    return bool({case["loss"], name_of(case)} & TO_COME)
