"""Which loss of this package each loss of tensorflow-ranking is, arguments and all.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another loss.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests.references import listwise as ref_listwise, losses as ref_losses
from tfrank_sel import losses
from tfrank_sel.ops import ranking


def one(labels: list[float], scores: list[Any]) -> float:
    """A list counts once in both."""
    return 1.0


def sum_of_labels(labels: list[float], scores: list[Any]) -> float:
    """The targets of ours are shares of the labels, those of the other are the labels."""
    return sum(labels)


class Ours(NamedTuple):
    """A loss of this package that stands for one of tensorflow-ranking.

    Attributes:
        make: Makes the loss; takes `dtype` and `reduction`.
        reference: The loss of one list, of its labels, scores and weights; and of its noise, a row
            for each sample, if the loss is random.
        times: By what our loss of a list of these labels and scores is multiplied, so that it is
            the sum over the items of the list (or over the samples) that tensorflow-ranking has.
    """

    make: Callable[..., Any]
    reference: Callable[..., float]
    times: Callable[[list[float], list[Any]], float] = one
    holds: bool = False


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


def in_floats(f: Callable[[Any], Any] | None) -> Callable[[float], float] | None:
    """A function of tensors as a reference takes it."""
    return None if f is None else lambda x: float(f(tf.constant(x, tf.float64)))


def softmax(temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.SoftmaxLoss, temperature),
        functools.partial(ref_losses.softmax, temperature=temperature),
        sum_of_labels,
    )


def calibrated_softmax(temperature: float = 1.0, virtual_label: float = 0.0) -> Ours:
    return Ours(
        functools.partial(losses.CalibratedSoftmaxLoss, virtual_label, temperature),
        functools.partial(
            ref_listwise.calibrated_softmax, virtual_label=virtual_label, temperature=temperature
        ),
        lambda labels, scores: sum(labels) + virtual_label,
    )


def poly_one_softmax(epsilon: float = 1.0, temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.PolyOneSoftmaxLoss, epsilon, temperature),
        functools.partial(ref_listwise.poly_one_softmax, epsilon=epsilon, temperature=temperature),
        sum_of_labels,
    )


def unique_softmax(temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.UniqueSoftmaxLoss, temperature),
        functools.partial(ref_listwise.unique_softmax, temperature=temperature),
    )


def circle(gamma: float = 64.0, margin: float = 0.25) -> Ours:
    return Ours(
        functools.partial(losses.CircleLoss, gamma, margin),
        functools.partial(ref_listwise.circle, gamma=gamma, margin=margin),
        holds=True,
    )


def list_mle(temperature: float = 1.0, lambda_weight: Any = None) -> Ours:
    return Ours(
        functools.partial(losses.ListMLELoss, lambda_weight, temperature),
        functools.partial(
            ref_listwise.list_mle, position_weight=in_floats(lambda_weight), temperature=temperature
        ),
    )


def approx_ndcg(temperature: float = 0.1) -> Ours:
    return Ours(
        functools.partial(losses.ApproxNDCGLoss, temperature),
        functools.partial(ref_listwise.approx_ndcg, temperature=temperature),
    )


def approx_mrr(temperature: float = 0.1) -> Ours:
    return Ours(
        functools.partial(losses.ApproxMRRLoss, temperature),
        functools.partial(ref_listwise.approx_mrr, temperature=temperature),
    )


def gumbel_approx_ndcg(
    temperature: float = 0.1,
    sample_size: int = 8,
    gumbel_temperature: float = 1.0,
    seed: int | None = None,
) -> Ours:
    ndcg = functools.partial(ref_listwise.approx_ndcg, temperature=temperature)
    return Ours(
        functools.partial(
            losses.GumbelLoss,
            losses.ApproxNDCGLoss(temperature),
            sample_size,
            gumbel_temperature,
            seed,
        ),
        functools.partial(ref_listwise.gumbel, inner=ndcg, temperature=gumbel_temperature),
        lambda labels, scores: float(sample_size),  # of whose losses ours has the mean
    )


def coupled_rank_distil(
    sample_size: int, topk: int | None = None, temperature: float = 1.0
) -> Ours:
    return Ours(
        functools.partial(losses.CoupledRankDistilLoss, sample_size, topk, temperature),
        functools.partial(ref_listwise.coupled_rank_distil, k=topk, temperature=temperature),
    )


def neural_sort_cross_entropy(temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.NeuralSortCrossEntropyLoss, temperature),
        functools.partial(ref_listwise.neural_sort_cross_entropy, temperature=temperature),
    )


def neural_sort_ndcg(temperature: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.NeuralSortNDCGLoss, temperature),
        functools.partial(ref_listwise.neural_sort_ndcg, temperature=temperature),
    )


def click_em(exam_loss_weight: float = 1.0, rel_loss_weight: float = 1.0) -> Ours:
    return Ours(
        functools.partial(losses.ClickEMLoss, exam_loss_weight, rel_loss_weight),
        functools.partial(
            ref_listwise.click_em, exam_weight=exam_loss_weight, relevance_weight=rel_loss_weight
        ),
        lambda labels, scores: float(len(labels)),  # of whose losses ours has the mean
        holds=True,
    )


def mixture_em(temperature: float = 1.0, alpha: float = 1.0) -> Ours:
    """Accepts a temperature and ignores it, as tensorflow-ranking does; ours has none."""
    return Ours(
        functools.partial(losses.MixtureEMLoss, alpha),
        functools.partial(ref_listwise.mixture_em, alpha=alpha),
        holds=True,
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "identity": ranking.linear_gain,
    "pow_minus_1": ranking.exponential_gain,
    "inverse": ranking.inverse_discount,
    "log2_inverse": ranking.log2_discount,
}

LAMBDA_WEIGHTS: dict[str, Callable[..., Any]] = {
    "ListMLELambdaWeight": lambda rank_discount_fn: rank_discount_fn,
}

LOSSES: dict[str, Callable[..., Ours]] = {
    "SoftmaxLoss": softmax,
    "CalibratedSoftmaxLoss": calibrated_softmax,
    "UniqueSoftmaxLoss": unique_softmax,
    "losses_impl.PolyOneSoftmaxLoss": poly_one_softmax,
    "losses_impl.CircleLoss": circle,
    "ListMLELoss": list_mle,
    "ApproxNDCGLoss": approx_ndcg,
    "ApproxMRRLoss": approx_mrr,
    "GumbelApproxNDCGLoss": gumbel_approx_ndcg,
    "CoupledRankDistilLoss": coupled_rank_distil,
    "losses_impl.NeuralSortCrossEntropyLoss": neural_sort_cross_entropy,
    "losses_impl.NeuralSortNDCGLoss": neural_sort_ndcg,
    "ClickEMLoss": click_em,
    "MixtureEMLoss": mixture_em,
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
