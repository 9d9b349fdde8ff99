"""Counterparts of the losses of tensorflow-ranking, with their arguments.

A function here takes the arguments of a constructor of tensorflow-ranking and returns ours. An
argument that it does not know is a TypeError, so that no vector is replayed by another loss.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests.references import pairwise as reference
from tfrank_sel import losses
from tfrank_sel.losses import lambdas
from tfrank_sel.ops import ranking


class Ours(NamedTuple):
    """A loss of this package that stands for one of tensorflow-ranking.

    Attributes:
        make: Makes the loss; takes `dtype` and `reduction`.
        times: By what our loss of a list of these labels and scores is multiplied, so that it is
            the sum over the items of the list (or over the samples) that tensorflow-ranking has.
        by_width: Whether tensorflow-ranking multiplies by the list size, padding included, besides.
        is_of_order: Whether it is about the order of the labels: tensorflow-ranking gives equal
            labels some order, ours none.
    """

    make: Callable[..., Any]
    times: Callable[[list[float], list[Any]], float] = lambda labels, scores: 1.0
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


def named(make: Callable[..., Any], *known: str, **fields: Any) -> Callable[..., Ours]:
    """A loss whose arguments have these names, or these and others there: `"theirs=ours"`."""
    names = dict(name.split("=") if "=" in name else (name, name) for name in known)

    def ours(**arguments: Any) -> Ours:
        if unknown := arguments.keys() - names:
            raise TypeError(f"unknown arguments: {unknown}")
        return Ours(
            functools.partial(make, **{names[k]: v for k, v in arguments.items()}), **fields
        )

    return ours


def softmax(lambda_weight: Any = None, **arguments: Any) -> Ours:
    ours = named(losses.SoftmaxLoss, "temperature", times=sum_of_labels)(**arguments)
    if lambda_weight is None:
        return ours

    def times(labels: list[float], scores: list[Any]) -> float:
        gain, discount = (
            lambda x, f=f: float(f(tf.constant(x, tf.float64)))
            for f in (lambda_weight.gain, lambda_weight.discount)
        )
        options = {"normalized": lambda_weight.normalized, "k": lambda_weight.k}
        weights = reference.item_weights(labels, scores, gain=gain, discount=discount, **options)
        return sum(weights)

    return Ours(functools.partial(ours.make, lambda_weight=lambda_weight), times)


def sum_of_labels(labels: list[float], scores: list[Any]) -> float:
    """The targets of ours are shares of the labels, those of the other are the labels."""
    return sum(labels)


def calibrated_softmax(virtual_label: float = 0.0, **arguments: Any) -> Ours:
    make = functools.partial(losses.CalibratedSoftmaxLoss, virtual_label, **arguments)
    return Ours(make, lambda labels, scores: sum(labels) + virtual_label)


def of_samples(make: Callable[..., Any], *known: str, **fields: Any) -> Callable[..., Ours]:
    """A loss of which ours has the mean over the samples, the other the sum."""

    def ours(sample_size: int = 8, **arguments: Any) -> Ours:
        found = named(make, *known, **fields)(**arguments)
        return found._replace(
            make=functools.partial(found.make, sample_size=sample_size),
            times=lambda labels, scores: float(sample_size),
        )

    return ours


def gumbel_approx_ndcg(temperature: float = 0.1, **arguments: Any) -> Ours:
    make = functools.partial(losses.GumbelLoss, losses.ApproxNDCGLoss(temperature))
    return of_samples(make, "gumbel_temperature=temperature", "seed")(**arguments)


def pairwise(make: Callable[..., Any]) -> Callable[..., Ours]:
    def ours(lambda_weight: Any = None, temperature: float = 1.0) -> Ours:
        return Ours(
            functools.partial(make, lambda_weight, temperature, losses.sum_over_terms),
            by_width=isinstance(lambda_weight, lambdas.GainLambdaWeight),
        )

    return ours


def multi_class(from_logits: bool, **arguments: Any) -> Ours:
    """Ours takes logits alone."""
    assert from_logits
    return summed(losses.MultiClassLoss, "num_classes", "label_smoothing")(**arguments)


def summed(make: Callable[..., Any], *known: str, **own: Any) -> Callable[..., Ours]:
    return named(functools.partial(make, normalizer=losses.sum_over_terms, **own), *known)


def gain_weight(make: Callable[..., lambdas.GainLambdaWeight]) -> Callable[..., Any]:
    """Makes a lambda weight of arguments as tensorflow-ranking names them."""
    names = {"topn": "k", "gain_fn": "gain", "rank_discount_fn": "discount"}
    return lambda **arguments: make(**{names.get(k, k): v for k, v in arguments.items()})


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
    "UniqueSoftmaxLoss": named(losses.UniqueSoftmaxLoss, "temperature"),
    "losses_impl.PolyOneSoftmaxLoss": named(
        losses.PolyOneSoftmaxLoss, "epsilon", "temperature", times=sum_of_labels
    ),
    "losses_impl.CircleLoss": named(losses.CircleLoss, "gamma", "margin"),
    "ListMLELoss": named(
        losses.ListMLELoss, "lambda_weight=position_weight", "temperature", is_of_order=True
    ),
    "ApproxNDCGLoss": named(losses.ApproxNDCGLoss, "temperature"),
    "ApproxMRRLoss": named(losses.ApproxMRRLoss, "temperature"),
    "GumbelApproxNDCGLoss": gumbel_approx_ndcg,
    "CoupledRankDistilLoss": named(
        losses.CoupledRankDistilLoss, "sample_size", "topk=k", "temperature"
    ),
    "losses_impl.NeuralSortCrossEntropyLoss": named(
        losses.NeuralSortCrossEntropyLoss, "temperature"
    ),
    "losses_impl.NeuralSortNDCGLoss": named(losses.NeuralSortNDCGLoss, "temperature"),
    "PairwiseHingeLoss": pairwise(losses.PairwiseHingeLoss),
    "PairwiseLogisticLoss": pairwise(losses.PairwiseLogisticLoss),
    "PairwiseMSELoss": pairwise(losses.PairwiseMSELoss),
    "PairwiseSoftZeroOneLoss": pairwise(losses.PairwiseSoftZeroOneLoss),
    "YetiLogisticLoss": of_samples(
        losses.YetiLogisticLoss,
        "lambda_weight",
        "temperature",
        "gumbel_temperature",
        "seed",
        by_width=True,
    ),
    "SigmoidCrossEntropyLoss": summed(losses.SigmoidCrossEntropyLoss),
    "MeanSquaredLoss": summed(losses.MeanSquaredLoss, min_label=0.0),
    "OrdinalLoss": summed(losses.OrdinalLoss, "ordinal_size", "use_fraction_label"),
    "losses_impl.MultiClassLoss": multi_class,
    "ClickEMLoss": named(
        losses.ClickEMLoss,
        "exam_loss_weight=exam_weight",
        "rel_loss_weight=relevance_weight",
        times=lambda labels, scores: float(len(labels)),  # of whose losses ours has the mean
    ),
    # accepts a temperature and ignores it, as tensorflow-ranking does; ours has none
    "MixtureEMLoss": lambda temperature=1.0, **given: named(losses.MixtureEMLoss, "alpha")(**given),
}
