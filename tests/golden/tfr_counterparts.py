"""Counterparts of the losses of tensorflow-ranking, with their arguments.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another loss.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests.references import (
    listwise as ref_listwise,
    losses as ref_losses,
    pairwise as ref_pairwise,
)
from tfrank_sel import losses
from tfrank_sel.losses import lambdas
from tfrank_sel.ops import ranking

NEIGHBOURS = lambdas.YetiDCGLambdaWeight()


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
        holds: Whether its gradient holds a part constant, which the reference takes as `held`.
        by_width: Whether tensorflow-ranking multiplies by the list size, padding included, besides.
        is_of_order: Whether it is about the order of the labels: tensorflow-ranking gives equal
            labels some order, ours none.
    """

    make: Callable[..., Any]
    reference: Callable[..., float]
    times: Callable[[list[float], list[Any]], float] = one
    holds: bool = False
    by_width: bool = False
    is_of_order: bool = False


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


def softmax(temperature: float = 1.0, lambda_weight: Any = None) -> Ours:
    if lambda_weight is not None:
        weight = {
            "gain": in_floats(lambda_weight.gain),
            "discount": in_floats(lambda_weight.discount),
            "normalized": lambda_weight.normalized,
            "k": lambda_weight.k,
        }
        return Ours(
            functools.partial(losses.SoftmaxLoss, temperature, lambda_weight=lambda_weight),
            functools.partial(ref_pairwise.lambda_softmax, temperature=temperature, **weight),
            lambda labels, scores: sum(ref_pairwise.item_weights(labels, scores, **weight)),
        )
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
        is_of_order=True,
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


def gain_weight(make: Callable[..., lambdas.GainLambdaWeight]) -> Callable[..., Any]:
    """Makes a lambda weight of arguments as tensorflow-ranking names them."""
    names = {"topn": "k", "gain_fn": "gain", "rank_discount_fn": "discount"}
    return lambda **arguments: make(**{names.get(k, k): v for k, v in arguments.items()})


def weights_of_pairs(weight: Any) -> ref_pairwise.Weights | None:
    """The reference of a lambda weight."""
    if weight is None:
        return None
    if isinstance(weight, lambdas.PrecisionLambdaWeight):
        return ref_pairwise.precision(weight.k)
    if isinstance(weight, lambdas.LabelDiffLambdaWeight):
        return ref_pairwise.label_difference
    functions = {"gain": in_floats(weight.gain), "discount": in_floats(weight.discount)}
    if isinstance(weight, lambdas.SwapLambdaWeight):
        smooth = {"smooth_fraction": weight.smooth_fraction}
        return ref_pairwise.swap(k=weight.k, normalized=weight.normalized, **smooth, **functions)
    alone = isinstance(weight, lambdas.YetiDCGLambdaWeight)
    return ref_pairwise.lambda_loss(weight.k, weight.normalized, alone, **functions)


def pairwise(make: Callable[..., Any], surrogate: ref_pairwise.Surrogate) -> Callable[..., Ours]:
    def ours(lambda_weight: Any = None, temperature: float = 1.0) -> Ours:
        return Ours(
            functools.partial(make, lambda_weight, temperature, losses.sum_over_terms),
            functools.partial(
                ref_pairwise.pairwise,
                surrogate=surrogate,
                ordered=make.ordered,
                weigh=weights_of_pairs(lambda_weight),
                temperature=temperature,
                is_sum=True,
            ),
            holds=True,
            by_width=isinstance(lambda_weight, lambdas.GainLambdaWeight),
        )

    return ours


def yeti_logistic(
    lambda_weight: Any = NEIGHBOURS,
    temperature: float = 1.0,
    sample_size: int = 8,
    gumbel_temperature: float = 1.0,
    seed: int | None = None,
) -> Ours:
    return Ours(
        functools.partial(
            losses.YetiLogisticLoss,
            lambda_weight,
            temperature,
            sample_size,
            gumbel_temperature,
            seed,
        ),
        ref_pairwise.yeti,
        lambda labels, scores: float(sample_size),  # of whose losses ours has the mean
        by_width=True,
    )


def ordinal(ordinal_size: int, use_fraction_label: bool = False) -> Ours:
    return Ours(
        functools.partial(
            losses.OrdinalLoss, ordinal_size, use_fraction_label, losses.sum_over_terms
        ),
        functools.partial(ref_pairwise.ordinal, use_fraction_label=use_fraction_label, is_sum=True),
    )


def multi_class(num_classes: int, from_logits: bool, label_smoothing: float = 0.0) -> Ours:
    """Ours takes logits alone."""
    assert from_logits
    return Ours(
        functools.partial(
            losses.MultiClassLoss, num_classes, label_smoothing, losses.sum_over_terms
        ),
        functools.partial(ref_pairwise.multi_class, label_smoothing=label_smoothing, is_sum=True),
    )


def pointwise(make: Callable[..., Any], reference: Callable[..., float]) -> Callable[[], Ours]:
    return lambda: Ours(
        functools.partial(make, losses.sum_over_terms), functools.partial(reference, is_sum=True)
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "identity": ranking.linear_gain,
    "pow_minus_1": ranking.exponential_gain,
    "inverse": ranking.inverse_discount,
    "log2_inverse": ranking.log2_discount,
}

LAMBDA_WEIGHTS: dict[str, Callable[..., Any]] = {
    "ListMLELambdaWeight": lambda rank_discount_fn: rank_discount_fn,
    "LabelDiffLambdaWeight": lambdas.LabelDiffLambdaWeight,
    "DCGLambdaWeight": gain_weight(lambdas.DCGLambdaWeight),
    "NDCGLambdaWeight": gain_weight(lambdas.NDCGLambdaWeight),
    "NDCGLambdaWeightV2": gain_weight(lambdas.NDCGLambdaWeightV2),
    "YetiDCGLambdaWeight": gain_weight(lambdas.YetiDCGLambdaWeight),
    "PrecisionLambdaWeight": lambda topn: lambdas.PrecisionLambdaWeight(topn),
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
    "PairwiseHingeLoss": pairwise(losses.PairwiseHingeLoss, ref_pairwise.hinge),
    "PairwiseLogisticLoss": pairwise(losses.PairwiseLogisticLoss, ref_pairwise.logistic),
    "PairwiseMSELoss": pairwise(losses.PairwiseMSELoss, ref_pairwise.squared),
    "PairwiseSoftZeroOneLoss": pairwise(losses.PairwiseSoftZeroOneLoss, ref_pairwise.soft_zero_one),
    "YetiLogisticLoss": yeti_logistic,
    "SigmoidCrossEntropyLoss": pointwise(
        losses.SigmoidCrossEntropyLoss, ref_pairwise.sigmoid_cross_entropy
    ),
    "MeanSquaredLoss": pointwise(
        functools.partial(losses.MeanSquaredLoss, min_label=0.0), ref_pairwise.mean_squared
    ),
    "OrdinalLoss": ordinal,
    "losses_impl.MultiClassLoss": multi_class,
    "ClickEMLoss": click_em,
    "MixtureEMLoss": mixture_em,
}
